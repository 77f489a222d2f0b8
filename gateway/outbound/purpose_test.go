package outbound_test

import (
	"context"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

func TestPurposes_OfEachKind(t *testing.T) {
	t.Parallel()
	to := transport.Endpoint{Agent: "a", Caller: "spiffe://x/c"}
	inSession := to
	inSession.Session = "s"
	own := egress.Purpose{Agent: "a", Caller: "spiffe://x/c", Own: true}
	theirs := egress.Purpose{Agent: "a", Caller: "spiffe://x/c"}
	for name, tc := range map[string]struct {
		call      outbound.Call
		exchanges bool
		want      egress.Purpose // zero: none
		caller    string         // that the endpoint has
	}{
		"a message":                  {outbound.Call{Kind: outbound.Message, Endpoint: to}, true, theirs, "spiffe://x/c"},
		"a rollback":                 {outbound.Call{Kind: outbound.Rollback, Endpoint: to}, true, theirs, "spiffe://x/c"},
		"a description":              {outbound.Call{Kind: outbound.Description, Endpoint: to}, false, own, "spiffe://x/c"},
		"a description, exchanged":   {outbound.Call{Kind: outbound.Description, Endpoint: to}, true, own, ""},
		"one of a session":           {outbound.Call{Kind: outbound.Description, Endpoint: inSession}, true, theirs, "spiffe://x/c"},
		"one beyond another gateway": {outbound.Call{Kind: outbound.Description, Endpoint: to, Beyond: true}, true, egress.Purpose{}, "spiffe://x/c"},
		"a gateway":                  {outbound.Call{Kind: outbound.Peer, Endpoint: to}, true, egress.Purpose{}, "spiffe://x/c"},
		"a webhook":                  {outbound.Call{Kind: outbound.Webhook, Endpoint: to}, true, egress.Purpose{}, "spiffe://x/c"},
	} {
		sender := outbound.Purposes(func(string) bool { return tc.exchanges })(outbound.SendFunc(func(ctx context.Context, call *outbound.Call) (outbound.Reply, error) {
			if got, _ := egress.PurposeFrom(ctx); got != tc.want || string(call.Endpoint.Caller) != tc.caller {
				t.Errorf("%s: %+v, the endpoint has %q", name, got, call.Endpoint.Caller)
			}
			endpoint := call.Endpoint
			return outbound.Reply{Endpoint: &endpoint}, nil
		}))
		reply, err := sender.Send(t.Context(), &tc.call)
		if err != nil || reply.Endpoint.Caller != "spiffe://x/c" || tc.call.Endpoint.Caller != "spiffe://x/c" {
			t.Errorf("%s: the caller is lost: %v", name, err)
		}
	}
}
