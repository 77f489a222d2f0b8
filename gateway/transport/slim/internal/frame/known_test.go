package frame

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

func self(t *testing.T) name.Name {
	t.Helper()
	n, err := name.New("org", "ns", "gogate")
	if err != nil {
		t.Fatal(err)
	}
	return n.With(name.ID{High: 1, Low: 2})
}

func alice(t *testing.T) name.Name {
	t.Helper()
	n, err := name.New("org", "ns", "alice")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fixed is a provider whose token is known.
type fixed string

func (f fixed) Token(context.Context) (string, error) { return string(f), nil }

func (f fixed) Sign([]byte) ([]byte, error) { return nil, nil }

// TestFrame_KnownAnswers holds our messages to recorded ones that real nodes took:
// whoever changes dataplane.proto by mistake learns it here.
func TestFrame_KnownAnswers(t *testing.T) {
	t.Parallel()
	route := Route{From: self(t), To: alice(t), Session: 7, Message: 1}
	data := Data(route, Msg, Payload{"msg", []byte("hi")}, map[string]string{"k": "v"})
	route.Message = 9
	join := Control(route, Join(1000, 10), nil)
	for _, m := range []*dataplane.Message{data, join} {
		if err := Seal(t.Context(), m, fixed("tok")); err != nil {
			t.Fatal(err)
		}
	}
	covered, err := signed(join)
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range []struct {
		what   string
		got    []byte
		size   int
		digest string
	}{
		{
			"greeting", encode(t, Greeting("c2ed4db6-6c32-44dd-8415-f3532b871ddb", nil, nil)), 51,
			digest(t, "2a310a2f0a2463326564346462362d366333322d343464642d383431352d6633353332623837316464621205322e302e302802"),
		},
		{"ack of a subscription", encode(t, ack()), 6, digest(t, "3204084d1001")},
		{"subscribe", encode(t, SubscribeTo(self(t), 77, "tok")), 148, "0c2a4914a7604e0c0cc2f6cb71b019242d065df7f7858a7570b5e15fe086a4e2"},
		{"data", encode(t, data), 193, "1a1f2d55c1d7f6faacab41d58b6d2d290352f58c51e729a9038220c84865feb4"},
		{"join", encode(t, join), 185, "ceb8ef935d15e8691b582a9d6e74f6fab6a7e9a66db90f7cb944dd13282d1442"},
		{"what a signature covers", covered, 155, "659cdd0c92c765ac981c64321fe8fac5e9df51c16d68074de175ff4bb5d21bd8"},
	} {
		sum := sha256.Sum256(known.got)
		if len(known.got) != known.size || hex.EncodeToString(sum[:]) != known.digest {
			t.Errorf("%s: %d bytes %x", known.what, len(known.got), known.got)
		}
	}
}

func ack() *dataplane.Message {
	return &dataplane.Message{MessageType: &dataplane.Message_SubscriptionAck{
		SubscriptionAck: &dataplane.SubscriptionAck{SubscriptionId: 77, Success: true},
	}}
}

func encode(t *testing.T, m *dataplane.Message) []byte {
	t.Helper()
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func digest(t *testing.T, text string) string {
	t.Helper()
	bytes, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes)
	return hex.EncodeToString(sum[:])
}
