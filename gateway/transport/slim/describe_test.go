package slim

import (
	"errors"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/a2aproto"
	"github.com/aepb/aepb-gateway/translators"
)

// oldCard is a card of A2A 0.3, whose addresses and security have other numbers than
// in 1.0, or other contents.
func oldCard(t testing.TB) []byte {
	t.Helper()
	card, err := proto.Marshal(&a2aproto.AgentCard{
		Name: "helper", Description: "helps", Version: "1", Provider: &a2aproto.AgentProvider{Url: "u", Organization: "o"},
		Capabilities: &a2aproto.AgentCapabilities{Streaming: new(bool)}, DefaultInputModes: []string{"text/plain"}, DefaultOutputModes: []string{"a/b"},
		Skills: []*a2aproto.AgentSkill{{Id: "help", Name: "Help me", Description: "helps", Tags: []string{"x"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for number, text := range map[protowire.Number]string{3: "org/ns/a", 8: "\xff", 9: "\xff", 14: "slimrpc", 16: "0.3.0", 17: "\xff"} {
		card = protowire.AppendString(protowire.AppendTag(card, number, protowire.BytesType), text)
	}
	return protowire.AppendVarint(protowire.AppendTag(card, 13, protowire.VarintType), 1)
}

func TestUpgraded_OldCard(t *testing.T) {
	t.Parallel()
	body, err := upgraded(oldCard(t))
	if err != nil {
		t.Fatal(err)
	}
	text, losses, err := unpack(outputOf(methodCard), body)
	if err != nil || len(losses) > 0 || !strings.Contains(string(text), `"name":"Help me"`) || !strings.Contains(string(text), `"organization":"o"`) {
		t.Errorf("%s %v %v", text, losses, err)
	}
	for _, bad := range []string{"\x0a", "\x0a\x05abc", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", "\x0c"} {
		var malformed *translators.MalformedError
		if _, err := upgraded([]byte(bad)); !errors.As(err, &malformed) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzUpgraded_PartOrTypedError: a part of what came, or a typed error; and what it makes is read or
// refused like any other card.
func FuzzUpgraded_PartOrTypedError(f *testing.F) {
	f.Add(oldCard(f))
	f.Add([]byte("\x0a\x05abc"))
	f.Fuzz(func(t *testing.T, old []byte) {
		body, err := upgraded(old)
		if err != nil {
			if !errors.Is(err, translators.ErrMalformed) {
				t.Errorf("%v", err)
			}
			return
		}
		if len(body) > len(old) {
			t.Errorf("%d bytes of %d", len(body), len(old))
		}
		again, err := upgraded(body)
		if err != nil || string(again) != string(body) {
			t.Errorf("%x becomes %x: %v", body, again, err)
		}
		_, _, _ = unpack(outputOf(methodCard), body)
	})
}
