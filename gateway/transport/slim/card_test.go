package slim

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/a2aproto"
)

// TestCard_NamesOfSLIMRPC: a card has one interface for each name of SLIMRPC that a released client
// looks for.
func TestCard_NamesOfSLIMRPC(t *testing.T) {
	t.Parallel()
	out := &told{}
	if err := doorFor(&script{}, "spiffe://x/alice", "").Serve(t.Context(), callOf(ServiceA2A, methodCard, "", nil), out); err != nil {
		t.Fatal(err)
	}
	var card a2aproto.AgentCard
	if err := proto.Unmarshal(out.frames[0].Body, &card); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, one := range card.GetSupportedInterfaces() {
		got = append(got, one.GetProtocolBinding()+" "+one.GetUrl()+" "+one.GetProtocolVersion())
	}
	want := []string{
		"https://a2a-protocol.org/bindings/experimental-slimrpc/v1 org/ns/a 1.0",
		"https://a2a-protocol.org/bindings/experimental-slimrpc org/ns/a 1.0",
		"slimrpc org/ns/a 1.0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the card lists %q, expected %q", got, want)
	}
}
