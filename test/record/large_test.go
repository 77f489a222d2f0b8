package record_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/dag"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/redis"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
)

// stored is a store of tokens and entries, as a gateway has it.
type stored struct {
	evidence ect.Store
	entries  record.Entries
}

func onBolt(b testing.TB) stored {
	b.Helper()
	s, err := bolt.Open(bolt.Config{Path: filepath.Join(b.TempDir(), "state")}, bolt.Deps{Now: time.Now})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return stored{s, s.Entries()}
}

func onRedis(b testing.TB) stored {
	b.Helper()
	server, err := redisserver.Start(b.Context(), filepath.Join(b.TempDir(), "redis"), "--appendfsync", "no")
	if server != nil {
		b.Cleanup(func() { _ = server.End(syscall.SIGKILL) })
	}
	if err != nil {
		b.Fatal(err)
	}
	s, err := redis.Open(redis.Config{Addresses: []string{server.Address()}}, redis.Deps{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	return stored{s, s.Entries()}
}

// BenchmarkWorkflow_Report reads a workflow of 10,000 tokens from its store, and finds the states of its steps.
func BenchmarkWorkflow_Report(b *testing.B) {
	gateway := ecttest.NewParty(b, "spiffe://example.com/gateway")
	for name, open := range map[string]func(testing.TB) stored{"bbolt": onBolt, "redis": onRedis} {
		b.Run(name, func(b *testing.B) {
			s := open(b)
			wid := string(ect.NewID())
			fill(b, s, gateway, wid)
			b.ResetTimer()
			for b.Loop() {
				service, err := workflow.New(workflow.Deps{
					Entries: s.entries, Evidence: attest.Statements{}, Store: s.evidence, Now: time.Now, Logger: slog.New(slog.DiscardHandler),
					Belongs:  func(context.Context, string, ect.Identity) (bool, error) { return true, nil },
					Escalate: func(context.Context, string, string) {},
				})
				if err != nil {
					b.Fatal(err)
				}
				report, err := service.Report(b.Context(), wid, gateway.ID)
				if err != nil || len(report.Steps) != dag.MaxNodes/2 || report.Tokens != dag.MaxNodes {
					b.Fatal(len(report.Steps), report.Tokens, err)
				}
			}
		})
	}
}

// fill records exchanges of a caller without tokens: a request and its reply each.
func fill(b *testing.B, s stored, gateway *ecttest.Party, wid string) {
	b.Helper()
	parents := []ect.ID{}
	for n := range dag.MaxNodes {
		direction := `"request"`
		if n%2 == 1 {
			direction = `"reply"`
		}
		token, err := gateway.Signer(b, time.Now).Sign(ect.Claims{
			Audience: []string{"spiffe://example.com/agents/calculator"}, Workflow: wid, Act: ect.ActTranslate, Parents: parents,
			InputHash: ect.Hash([]byte("in")), OutputHash: ect.Hash([]byte("out")), Ext: ect.Ext{
				ect.ExtSourceProtocol: []byte(`"a2a-v1"`), ect.ExtDestProtocol: []byte(`"mcp-v1"`), ect.ExtGatewayID: []byte(`"` + string(gateway.ID) + `"`),
				ect.ExtLeg: []byte(direction), ect.ExtWarnings: []byte("[]"), ect.ExtAgentVersion: []byte(`"1.0.0"`), ect.ExtCaller: []byte(`"spiffe://example.com/client"`),
			},
		})
		if err != nil {
			b.Fatal(err)
		}
		err = s.evidence.Put(b.Context(), ect.Record{
			Compact: token.Compact(), ID: token.ID(), Workflow: wid, Issuer: gateway.ID, Act: ect.ActTranslate, Parents: parents, Until: time.Now().Add(time.Hour), Own: true,
		})
		if err != nil {
			b.Fatal(err)
		}
		parents = []ect.ID{token.ID()}
	}
}
