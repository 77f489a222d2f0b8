package consensus_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	coordinator "github.com/aepb/aepb-gateway/gateway/consensus"
	surface "github.com/aepb/aepb-gateway/gateway/httpapi/consensus"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// rig is a coordinator over memory, with members who have keys of the kind that most deployments have.
type rig struct {
	b       *testing.B
	svc     *coordinator.Service
	signers []*ect.Signer // the gateway's, and those of the members
	group   consensus.Group
	deps    coordinator.Deps
}

// alone: there are no listed agents and no humans.
type alone struct{}

func (alone) Find(ect.Identity) (string, bool)              { return "", false }
func (alone) Send(context.Context, coordinator.Order) error { return nil }
func (alone) Ask(context.Context, approval.Question) error  { return nil }
func (alone) Answer(context.Context, string) (bool, bool, error) {
	return false, false, &problem.NotFoundError{What: "approval"}
}

func newRig(b *testing.B, members int) *rig {
	b.Helper()
	r := &rig{b: b, group: consensus.Group{Name: "ops", Mechanisms: consensus.Mechanisms(), Proposers: map[ect.Identity]int{}}}
	var parties []*ecttest.Party
	for i := range members + 1 {
		p := ecttest.NewParty(b, ect.Identity(fmt.Sprintf("spiffe://prod.example/agent/%03d", i)))
		parties, r.signers = append(parties, p), append(r.signers, p.Signer(b, time.Now))
		if i > 0 {
			r.group.Members = append(r.group.Members, consensus.Member{ID: p.ID, Weight: 1})
			r.group.Proposers[p.ID] = 1
		}
	}
	memory, err := state.New(state.Config{
		MaxTokens: 1 << 20, MaxTokenBytes: 1 << 30, MaxEntries: 1 << 22, MaxEntriesBytes: 4 << 30, MaxEntriesPerOwner: 1 << 21, MaxEntriesBytesPerOwner: 2 << 30,
	}, state.Deps{Now: time.Now})
	r.must(err)
	verifier, err := ect.NewVerifier(ect.VerifierDeps{Keys: ecttest.KeysOf(parties...), Replay: ecttest.NewReplay(), Audience: []string{string(parties[0].ID)}, Now: time.Now})
	r.must(err)
	metrics, err := telemetry.New(telemetry.Deps{Bindings: []canonical.Binding{"a2a-v1"}})
	r.must(err)
	r.deps = coordinator.Deps{
		Entries: memory.Entries(), Evidence: r.statements(memory.Tokens, verifier, metrics), Signer: func() *ect.Signer { return r.signers[0] }, Verifier: verifier,
		Belongs: func(context.Context, string, ect.Identity) (bool, error) { return true, nil }, Agents: alone{}, Humans: alone{}, Metrics: metrics.Consensus(),
		Clock: func(context.Context) (time.Time, error) { return time.Now(), nil }, Now: time.Now,
		Go: func(_ string, work func(context.Context)) error { work(b.Context()); return nil }, Logger: slog.New(slog.DiscardHandler), Replica: "one",
	}
	r.svc, err = coordinator.New(r.deps)
	r.must(err)
	r.svc.Configure([]consensus.Group{r.group})
	return r
}

func (r *rig) statements(store ect.Store, verifier *ect.Verifier, metrics *telemetry.Metrics) attest.Statements {
	dialects, err := ect.NewDialects(ect.DialectsDeps{})
	r.must(err)
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: store})
	r.must(err)
	members, err := membership.New(membership.Deps{Store: store, Self: r.signers[0].Issuer()})
	r.must(err)
	refusals, err := sample.New(sample.Config{}, sample.Deps{Now: time.Now})
	r.must(err)
	service, err := attest.New(attest.Deps{
		Signer: r.signers[0], Dialects: dialects, Verifier: verifier, Recorder: recorder, Evidence: store, Members: members, Refusals: refusals, Metrics: metrics,
		Logger: slog.New(slog.DiscardHandler), NewID: func() string { return string(ect.NewID()) }, Version: func() string { return "1.0.0" },
	})
	r.must(err)
	return service.Statements()
}

func (r *rig) must(err error) {
	r.b.Helper()
	if err != nil {
		r.b.Fatal(err)
	}
}

// round is the proposal of a new round, signed by the first member.
func (r *rig) round() (consensus.Proposal, []byte) {
	now := time.Now()
	p := consensus.Proposal{
		ID: string(ect.NewID()), Round: string(ect.NewID()), Proposer: r.group.Members[0].ID, Mechanism: consensus.Majority, Subject: "restart", Action: []byte(`{"text":"restart"}`),
		Timeout: consensus.At(now.Add(time.Minute)), Quorum: r.group.Floor(consensus.Majority, r.group.Members),
		Terms: consensus.Terms{Group: "ops", Timestamp: now},
	}
	for _, m := range r.group.Members {
		p.Participants = append(p.Participants, m.ID)
	}
	return p, message(r, r.signers[1], p)
}

func message[M signed.Content](r *rig, by *ect.Signer, m M) []byte {
	out, err := signed.Sign(by, m)
	r.must(err)
	text, err := out.MarshalJSON()
	r.must(err)
	return text
}

func (r *rig) vote(p consensus.Proposal, member int) []byte {
	return message(r, r.signers[member+1], consensus.Vote{
		Proposal: p.ID, Round: p.Round, Voter: r.group.Members[member].ID, Decision: consensus.Approve, Timestamp: time.Now(),
	})
}

// BenchmarkRound_Whole is a whole round: the proposal, a vote of each participant, the tally, and a token for each. ns/vote must not grow
// with the participants.
func BenchmarkRound_Whole(b *testing.B) {
	for _, n := range []int{5, 50, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, ctx := newRig(b, n), b.Context()
			b.ResetTimer()
			for b.Loop() {
				p, text := r.round()
				_, err := r.svc.Propose(ctx, p.Proposer, text)
				r.must(err)
				for i, m := range r.group.Members {
					_, err := r.svc.Vote(ctx, m.ID, p.Round, r.vote(p, i))
					r.must(err)
				}
				r.svc.Step(ctx, true)
				if got, err := r.svc.Show(ctx, p.Round, p.Proposer); err != nil || got.Phase != consensus.Committed {
					b.Fatalf("the round is %s, %v", got.Phase, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/vote")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rounds/s")
		})
	}
}

// BenchmarkMessages_TenSignedAndVerified is what the messages of a round of five cost by themselves: ten are signed and verified.
func BenchmarkMessages_TenSignedAndVerified(b *testing.B) {
	r := newRig(b, 5)
	p, _ := r.round()
	for b.Loop() {
		for i := range 10 {
			m, err := signed.Parse[consensus.Vote](r.vote(p, i%5))
			r.must(err)
			r.must(m.Verify(b.Context(), r.deps.Verifier))
		}
	}
}

// BenchmarkRound_OverHTTP is a round of five over HTTP: a proposal, five votes, and each participant reads the outcome.
func BenchmarkRound_OverHTTP(b *testing.B) {
	r := newRig(b, 5)
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.Use(func(c *gin.Context) {
		caller := identity.Caller{Peer: ect.Peer{ID: ect.Identity(c.Request.Header.Get("Caller"))}}
		c.Request = c.Request.WithContext(transport.WithCaller(c.Request.Context(), caller, ""))
	})
	surface.Mount(engine, r.svc)
	server := httptest.NewServer(engine)
	defer server.Close()
	call := func(method, path string, who ect.Identity, text []byte) {
		request, err := http.NewRequestWithContext(b.Context(), method, server.URL+path, bytes.NewReader(text))
		r.must(err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Caller", string(who))
		response, err := server.Client().Do(request)
		r.must(err)
		body, err := io.ReadAll(response.Body)
		r.must(err)
		r.must(response.Body.Close())
		if response.StatusCode >= http.StatusBadRequest {
			b.Fatalf("%s %s: %d %s", method, path, response.StatusCode, body)
		}
	}
	b.ResetTimer()
	for b.Loop() {
		p, text := r.round()
		call(http.MethodPost, "/consensus/rounds", p.Proposer, text)
		for i, m := range r.group.Members {
			call(http.MethodPost, "/consensus/rounds/"+p.Round+"/votes", m.ID, r.vote(p, i))
		}
		for _, m := range r.group.Members {
			call(http.MethodGet, "/consensus/rounds/"+p.Round, m.ID, nil)
		}
	}
}
