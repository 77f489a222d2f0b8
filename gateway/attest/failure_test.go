package attest_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
)

func (b *env) failure(cause error) attest.Failure {
	return attest.Failure{
		Subject: b.subject(), Lineage: attest.Lineage{Workflow: b.workflow, Parents: ids(1)}, Cause: cause,
		Input: ect.Hash([]byte("asked")), Pair: attest.Pair{From: "a2a-v1", To: "mcp-v1", HashForm: "jcs-without-ect"},
	}
}

// A failure leaves a token that says in a word why (AEPB, Translation Failure Handling),
// also without a permit; and not more of the agent's network than its reader may know.
func TestFailure_Says(t *testing.T) {
	t.Parallel()
	unreachable := &transport.UnreachableError{Agent: "calculator", Err: &net.DNSError{Name: "host.internal"}}
	for name, tc := range map[string]struct {
		cause  error
		knows  bool
		word   string
		reason string // JSON text; empty: not said
	}{
		"meaning":                  {&policy.SemanticLossError{Codes: []string{"L36"}}, false, problem.ECTSemanticLoss, ""},
		"policy":                   {&policy.Denied{Constraint: policy.ConstraintHops}, false, problem.ECTPolicyViolation, ""},
		"time":                     {&transport.TimeoutError{Agent: "calculator"}, false, problem.ECTTimeout, `"timeout"`},
		"network":                  {unreachable, false, problem.ECTInternal, `"unreachable"`},
		"network, to its operator": {unreachable, true, problem.ECTInternal, `"dns"`},
		"anything else":            {errors.New("secret"), false, problem.ECTInternal, ""},
		"a long text":              {&problem.ConflictError{Reason: strings.Repeat("é", 400)}, false, problem.ECTInternal, ""},
	} {
		for _, entrance := range []transport.EntryPoint{transport.Native, transport.Translate, transport.TranslateCPAT} {
			b, trail := newEnv(t), attest.Begin()
			ctx := t.Context()
			if tc.knows {
				ctx = problem.WithReasons(ctx)
			}
			f := b.failure(tc.cause)
			f.Subject.Permit, f.Subject.EntryPoint = policy.Permit{}, entrance
			if !b.Failure(ctx, trail, f) || trail.Count() != 1 || trail.Request() != "" || trail.Reply() != "" {
				t.Fatalf("%s: the trail has %v", name, trail.IDs())
			}
			c := b.read(b.caller, trail.Tokens()[0], nil).Claims()
			if c.Act != ect.ActTranslateError || c.Workflow != b.workflow || !slices.Equal(c.Parents, f.Lineage.Parents) || c.InputHash != f.Input || c.OutputHash != "" {
				t.Errorf("%s: got %+v", name, c)
			}
			says(t, c.Ext, map[string]string{
				ect.ExtError: strconv.Quote(tc.word), ect.ExtUpstreamReason: tc.reason, ect.ExtHashForm: `"jcs-without-ect"`,
				ect.ExtSourceProtocol: `"a2a-v1"`, ect.ExtDestProtocol: `"mcp-v1"`, ect.ExtGatewayID: strconv.Quote(string(b.self.ID)),
			})
			answering, _ := c.Ext.String(ect.ExtDescription)
			if len(answering) > 256 || strings.Contains(answering, "secret") || strings.ContainsRune(answering, '�') || name == "a long text" && len(answering) < 250 {
				t.Errorf("%s: described with %d bytes: %s", name, len(answering), answering)
			}
			rec := b.record(c.ID)
			if !slices.Equal(rec.Members, []ect.Identity{b.caller.ID}) || rec.Holder != f.Subject.Holder || rec.Workflow != b.workflow {
				t.Errorf("%s: recorded with members %v, holder %q", name, rec.Members, rec.Holder)
			}
			if got := strings.Join(b.counts.issued, ", "); got != "aepb:translate_error L2" {
				t.Errorf("%s: counted %s", name, got)
			}
		}
	}
}

// A failure of an outsider's message is kept out of the workflow that it names (R14).
func TestFailure_Unlisted(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	f := b.failure(&policy.Forbidden{})
	f.Unlisted = true
	if !b.Failure(t.Context(), trail, f) {
		t.Fatal("it left no token")
	}
	if rec := b.record(trail.IDs()[0]); rec.Workflow != "" || len(rec.Members) != 0 {
		t.Errorf("recorded in workflow %q, members %v", rec.Workflow, rec.Members)
	}
}

func TestFailure_CannotBeRecorded(t *testing.T) {
	t.Parallel()
	b, trail := newEnv(t), attest.Begin()
	b.store.fail = errors.New("gone")
	if b.Failure(t.Context(), trail, b.failure(errors.New("broken"))) || trail.Count() != 0 || len(b.counts.issued) != 0 {
		t.Errorf("the trail has %v, counted %v", trail.IDs(), b.counts.issued)
	}
	if !strings.Contains(b.log.String(), "error evidence could not be recorded") {
		t.Errorf("it is not logged: %s", b.log)
	}
}

// TestEvidence_ClientAndActor: who showed the caller's access token, and who acts by it, is on record.
func TestEvidence_ClientAndActor(t *testing.T) {
	t.Parallel()
	for actor, want := range map[string]string{"robot": `"robot"`, "": ""} {
		b := newEnv(t)
		subject := b.subject()
		subject.Caller.Grant = &identity.Grant{Client: "desktop", Actor: actor}
		b.Negotiation(t.Context(), attest.Negotiation{Subject: subject, Lineage: attest.Lineage{Workflow: b.workflow}, From: "a2a-v1", To: "mcp-v1", Candidates: []string{"mcp-v1"}, Reason: "only"})
		if len(b.store.records) != 1 {
			t.Fatalf("%d tokens are on record", len(b.store.records))
		}
		ext := b.read(b.caller, b.store.records[0].Compact, nil).Claims().Ext
		if string(ext[ect.ExtClient]) != `"desktop"` || string(ext[ect.ExtActor]) != want {
			t.Errorf("got %s, %s, want %q", ext[ect.ExtClient], ext[ect.ExtActor], want)
		}
	}
}

// What a negotiation came to is on record (AEPB, Protocol Downgrade Attacks). It is no
// evidence of a message, so one that cannot be recorded is logged and holds up nothing.
func TestNegotiation_Says(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	n := attest.Negotiation{
		Subject: b.subject(), Lineage: attest.Lineage{Workflow: b.workflow, Parents: ids(1)}, From: "a2a-v1", To: "mcp-v1",
		Candidates: []string{"mcp-v1", "ainp-v1"}, Reason: "preferred",
	}
	b.Negotiation(t.Context(), n)
	if len(b.store.records) != 1 {
		t.Fatalf("%d tokens are on record", len(b.store.records))
	}
	rec := b.store.records[0]
	c := b.read(b.caller, rec.Compact, nil).Claims()
	if c.Act != ect.ActNegotiate || c.Workflow != b.workflow || !slices.Equal(c.Parents, n.Lineage.Parents) || c.InputHash != "" || c.OutputHash != "" ||
		!rec.Own || rec.Holder != n.Subject.Holder {
		t.Errorf("got %+v in the share %q", c, rec.Holder)
	}
	says(t, c.Ext, map[string]string{
		ect.ExtCandidates: `["mcp-v1","ainp-v1"]`, ect.ExtReason: `"preferred"`, ect.ExtSourceProtocol: `"a2a-v1"`, ect.ExtDestProtocol: `"mcp-v1"`,
		ect.ExtGatewayID: strconv.Quote(string(b.self.ID)), ect.ExtCaller: strconv.Quote(string(b.caller.ID)),
	})
	b.store.fail = errors.New("gone")
	b.Negotiation(t.Context(), n)
	if got := strings.Join(b.counts.issued, ", "); got != "aepb:negotiate L2" || !strings.Contains(b.log.String(), "a negotiation could not be recorded") {
		t.Errorf("counted %s, logged %s", got, b.log)
	}
}

// refusals are what the tokens on record say, in order: how many of which source.
func (b *env) refusals() (out []string) {
	b.t.Helper()
	for _, rec := range b.store.records {
		ext := b.claims(rec.Compact).Ext
		source, _ := ext.String(ect.ExtCaller)
		why, _ := ext.String(ect.ExtRefusal)
		out = append(out, strings.TrimSpace(string(ext[ect.ExtRefusals])+" "+why+" "+source))
	}
	return out
}

// A flood of refusals leaves one token at once and one at the end, which has the count.
func TestRefusal_Sampled(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	source, began := limit.Identity(string(b.caller.ID)), b.now
	for range 500 {
		b.Refusal(t.Context(), source, &limit.ExceededError{})
	}
	id := string(b.caller.ID)
	if got := b.refusals(); !slices.Equal(got, []string{"1 rate_limited " + id}) {
		t.Errorf("at once: got %v", got)
	}
	b.now = b.now.Add(time.Second / 2)
	b.must(b.Flush(t.Context()))
	if got := b.refusals(); !slices.Equal(got, []string{"1 rate_limited " + id, "499 rate_limited " + id}) {
		t.Errorf("at the end: got %v", got)
	}
	rec := b.store.records[1]
	c := b.claims(rec.Compact)
	if c.Act != ect.ActTranslateError || c.Workflow != "" || len(c.Parents) != 0 || c.InputHash != "" || c.OutputHash != "" || rec.Holder != source || len(rec.Members) != 0 {
		t.Errorf("a sample testifies to no message: %+v", c)
	}
	b.read(b.caller, rec.Compact, nil)
	says(t, c.Ext, map[string]string{
		ect.ExtRefusedSince: strconv.FormatInt(began.Unix(), 10), ect.ExtError: strconv.Quote(problem.ECTInternal),
		ect.ExtAgentVersion: strconv.Quote(version), ect.ExtGatewayID: strconv.Quote(string(b.self.ID)),
	})
	b.must(b.Flush(t.Context()))
	if got := strings.Join(b.counts.issued, ", "); got != "aepb:translate_error L2, aepb:translate_error L2" {
		t.Errorf("counted %s", got)
	}
}

// An address is not named, and is no audience.
func TestRefusal_OfAnAddress(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	b.Refusal(t.Context(), limit.Address("192.0.2.1"), &limit.ExceededError{})
	if got := b.refusals(); !slices.Equal(got, []string{"1 rate_limited"}) {
		t.Errorf("got %v", got)
	}
	if c := b.claims(b.store.records[0].Compact); !slices.Equal(c.Audience, []string{string(b.self.ID)}) || strings.Contains(string(c.Ext[ect.ExtDescription]), "192") {
		t.Errorf("got %+v", c)
	}
}

// What could not be recorded is counted again; and a caller that has gone stops nothing.
func TestRefusal_CountedAgain(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	source := limit.Identity(string(b.caller.ID))
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	b.store.fail = errors.New("gone")
	for range 3 {
		b.Refusal(gone, source, &limit.ExceededError{})
	}
	if err := b.Flush(gone); !as[*problem.RecordingError](err) {
		t.Errorf("got %v, want a *problem.RecordingError", err)
	}
	if len(b.store.records) != 0 || !strings.Contains(b.log.String(), "a sample of refusals could not be recorded") {
		t.Errorf("%d on record, logged %s", len(b.store.records), b.log)
	}
	b.store.fail = nil
	b.must(b.Flush(gone))
	if got := b.refusals(); !slices.Equal(got, []string{"3 rate_limited " + string(b.caller.ID)}) {
		t.Errorf("got %v, want all three", got)
	}
}

// Of more sources than have a token of their own at the end, the others share one.
func TestRefusal_FlushIsBounded(t *testing.T) {
	t.Parallel()
	b := newEnv(t)
	const sources = 200
	for i := range sources {
		for range 2 {
			b.Refusal(t.Context(), limit.Address("192.0.2."+strconv.Itoa(i)), &limit.ExceededError{})
		}
	}
	before := len(b.store.records)
	b.must(b.Flush(t.Context()))
	if got := len(b.store.records) - before; got != 65 {
		t.Errorf("%d tokens at the end, want 64 and one that is shared", got)
	}
	sum := 0
	for _, rec := range b.store.records {
		n, err := strconv.Atoi(string(b.claims(rec.Compact).Ext[ect.ExtRefusals]))
		b.must(err)
		sum += n
	}
	if sum != 2*sources {
		t.Errorf("the tokens tell of %d refusals, there were %d", sum, 2*sources)
	}
}
