package gateway_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway"
	"github.com/aepb/aepb-gateway/gateway/state"
	work "github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// BenchmarkExchange_WithoutNetwork is the pipeline without network: one ECT verified, two signed,
// two translations.
func BenchmarkExchange_WithoutNetwork(b *testing.B) { exchange(b, gateway.Settings{}) }

// BenchmarkExchange_FiftyRules is the same with 50 rules that demand approvals of other calls.
func BenchmarkExchange_FiftyRules(b *testing.B) {
	var rules []hitl.Config
	for i := range 50 {
		rule := hitl.Config{Agent: "calc*", Tool: "*_all?", Argument: &hitl.Argument{Pointer: "/a", Op: "gt", Value: "100"}}
		if i%2 == 0 {
			rule = hitl.Config{Agent: "agent-" + strconv.Itoa(i), Argument: rule.Argument}
		}
		rules = append(rules, rule)
	}
	exchange(b, gateway.Settings{Approvals: approvalRules(b, rules...)})
}

func exchange(b *testing.B, settings gateway.Settings) {
	b.Helper()
	env := newFixture(b, settings, policy.Rules{Open: true})
	const batch = 512
	for b.Loop() {
		b.StopTimer()
		calls := make([]string, 0, batch)
		signer := env.caller.Signer(b, nil)
		for range batch {
			token, err := signer.Sign(ect.Claims{
				Audience: []string{string(env.self.ID)}, Workflow: string(ect.NewID()), Act: "send_task", OutputHash: ect.Hash([]byte(addBody)),
			})
			if err != nil {
				b.Fatal(err)
			}
			calls = append(calls, token.Compact())
		}
		env.setNow(time.Now().Add(time.Duration(b.N) * time.Millisecond))
		b.StartTimer()
		for _, token := range calls {
			if _, err := env.Exchange(b.Context(), env.call(addBody, token)); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/exchange")
}

// BenchmarkWorkflow_WithAndWithoutStart is an exchange of a caller without tokens that names a parent: in a workflow without a
// start, and in one with a start, where the gateway signs an intent.
func BenchmarkWorkflow_WithAndWithoutStart(b *testing.B) {
	for name, begun := range map[string]bool{"without a start": false, "with a start": true} {
		b.Run(name, func(b *testing.B) {
			env := newFixture(b, gateway.Settings{}, policy.Rules{Open: true})
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

// BenchmarkCheckpoint_WithAndWithout is a call of a workflow that has a start, of a tool that only reads and of one that has a checkpoint, with state in memory.
func BenchmarkCheckpoint_WithAndWithout(b *testing.B) {
	for name, tool := range map[string]string{"without": "get_booking", "with": "create_booking"} {
		b.Run(name, func(b *testing.B) {
			env := newBookings(b, gateway.Settings{}, func(d *gateway.Deps) {
				blobs, err := state.NewMemoryBlobs(state.BlobBounds{MaxBytes: 8 << 30}, d.Now)
				if err != nil {
					b.Fatal(err)
				}
				d.Blobs = blobs
			})
			env.setNow(time.Now())
			const batch = 100 // as many as one caller may have made in a workflow at once
			for b.Loop() {
				b.StopTimer()
				wid, compact, err := env.Parts().Workflows.Begin(b.Context(), identity.Caller{Peer: env.caller.Peer()}, "", work.Plan{})
				if err != nil {
					b.Fatal(err)
				}
				start, err := ect.ParseRecorded(compact)
				if err != nil || start.Workflow != wid {
					b.Fatal(err)
				}
				body := `{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{"message":{"messageId":"m1","role":"ROLE_USER","parts":[{"data":{"skill":"` + tool + `","input":{"id":"b1","guest":"Ada"}}}]}}}`
				env.setNow(env.now().Add(time.Minute))
				b.StartTimer()
				for range batch {
					call := env.call(body)
					call.Parent = string(start.ID)
					if _, err := env.Exchange(b.Context(), call); err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/call")
		})
	}
}
