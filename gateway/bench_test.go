package gateway_test

import (
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy"
)

// BenchmarkExchange is the pipeline without network: one ECT verified, two signed,
// two translations.
func BenchmarkExchange(b *testing.B) {
	bed := newBed(b, gateway.Settings{}, policy.Rules{Open: true})
	const batch = 512
	for b.Loop() {
		b.StopTimer()
		calls := make([]string, 0, batch)
		signer := bed.caller.Signer(b, nil)
		for range batch {
			token, err := signer.Sign(ect.Claims{
				Audience: []string{string(bed.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash([]byte(addBody)),
			})
			if err != nil {
				b.Fatal(err)
			}
			calls = append(calls, token.Compact())
		}
		bed.now = time.Now().Add(time.Duration(b.N) * time.Millisecond)
		b.StartTimer()
		for _, token := range calls {
			if _, err := bed.Exchange(b.Context(), bed.call(addBody, token)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/exchange")
}

// BenchmarkWorkflow is an exchange of a caller without tokens that names a parent: in a workflow without a
// start, and in one with a start, where the gateway signs an intent.
func BenchmarkWorkflow(b *testing.B) {
	for name, begun := range map[string]bool{"without a start": false, "with a start": true} {
		b.Run(name, func(b *testing.B) {
			env := newBed(b, gateway.Settings{}, policy.Rules{Open: true})
			first, err := env.Exchange(b.Context(), env.call(addBody))
			if err != nil {
				b.Fatal(err)
			}
			parent := first.Evidence[len(first.Evidence)-1]
			if begun {
				if _, parent, err = env.Parts().Workflows.Begin(b.Context(), identity.Caller{Peer: env.caller.Peer()}, "", work.Plan{}); err != nil {
					b.Fatal(err)
				}
			}
			claims, _, err := ect.ParseUnverified(parent)
			if err != nil {
				b.Fatal(err)
			}
			call := env.call(addBody)
			call.Parent = string(claims.ID)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := env.Exchange(b.Context(), call); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
