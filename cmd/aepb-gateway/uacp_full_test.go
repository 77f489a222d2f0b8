package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// echoed is a reply to a text of so many octets, its tokens, and what it names
// where there is no room for one.
func (b *bed) echoed(t *testing.T, octets int) (reply []byte, tokens []string, named string) {
	t.Helper()
	reply = b.askUACP(t, "concierge", frameOf(t, uacp.FormEnveloped, telling(strings.Repeat("x", octets))))
	tokens, err := uacp.Evidence(reply)
	must(t, err)
	if _, rest, ok := strings.Cut(string(reply), `"parent_jti":"`); ok {
		named, _, _ = strings.Cut(rest, `"`)
	}
	return reply, tokens, named
}

// TestEvidenceThatFitsNoFrame: a reply that fills its frame goes out with as much
// of its evidence as there is room for, the token about itself first; where there
// is none, it names that token, which its caller fetches.
func TestEvidenceThatFitsNoFrame(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	small, both, named := b.echoed(t, 1)
	if len(both) != 2 || named != "" {
		t.Fatalf("a small reply: %d tokens, names %q", len(both), named)
	}
	bare := len(small) - len(both[0]) - len(both[1])
	next, more, _ := b.echoed(t, 1001)
	each := (len(next) - len(more[0]) - len(more[1]) - bare) / 1000 // octets of a reply for one of the text
	leaves := func(room int) int { return (uacp.MaxFrame - room - bare) / each }

	reply, tokens, named := b.echoed(t, leaves(3500)) // for one of the two
	if len(tokens) != 1 {
		t.Fatalf("a reply with room for one token has %d", len(tokens))
	}
	if v := b.testifies(t, tokens[0], reply); string(v.ID()) != named {
		t.Errorf("the token that fits is %s, and the reply names %s", v.ID(), named)
	}

	reply, tokens, named = b.echoed(t, leaves(1500)) // for none
	if len(tokens) != 0 || named == "" {
		t.Fatalf("a reply without room has %d tokens and names %q", len(tokens), named)
	}
	got := b.send(t, letter{method: http.MethodGet, at: "/ects/" + named})
	if got.status != http.StatusOK {
		t.Fatalf("the token that it names: got %d %s", got.status, short(got.body))
	}
	b.testifies(t, string(got.body), reply)
	got = b.send(t, letter{method: http.MethodGet, at: b.at.Admin + "/metrics"})
	if count := `aepb_ects_by_reference_total{protocol="uacp-v1",reason="full"} 1`; !strings.Contains(string(got.body), count) {
		t.Errorf("not counted: %s", count)
	}
}

// testifies verifies a token about a reply.
func (b *bed) testifies(t *testing.T, compact string, reply []byte) ect.Verified {
	t.Helper()
	v, err := b.judge.Verify(t.Context(), compact, ect.Check{Purpose: ect.Parent})
	must(t, err)
	input, err := uacp.HashInput(reply)
	must(t, err)
	if v.Claims().OutputHash != ect.Hash(input) {
		t.Error("the token is about another message")
	}
	return v
}
