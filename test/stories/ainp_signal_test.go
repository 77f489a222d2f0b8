package stories

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// careful is an AINP agent that sets a checkpoint before it does anything, can
// go back to it, and hears what humans decide.
type careful struct {
	t       *testing.T
	b       *gatewaytest.Fixture
	by      *ecttest.Party
	mu      sync.Mutex
	arrived []*canonical.Message
	before  ect.ID // the checkpoint
}

func (f *careful) mint(c ect.Claims) string {
	f.t.Helper()
	token, err := f.by.Signer(f.t, time.Now).Sign(c)
	if err != nil {
		f.t.Errorf("mint: %v", err)
	}
	return token.Compact()
}

func (f *careful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	form := ainp.New(translators.Config{})
	m, err := form.Decode(translators.Wire{Body: body})
	head, bad := gatewaytest.AINPHead(body)
	if err != nil || bad != nil || !gatewaytest.Holds(r.Context(), head, body, ainp.SigDraft) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation}
	var evidence []string
	switch answer := m.Body.(type) {
	case *canonical.DescribeRequest:
		reply.Body = &canonical.Description{Name: "careful", Capabilities: []canonical.Capability{{ID: "do", Profile: canonical.ProfileMessage}}}
	case *canonical.Signal:
		f.arrived = append(f.arrived, m)
		reply.Body = &canonical.Done{}
		if m.Op == canonical.OpRollback {
			request, _, err := ect.ParseUnverified(answer.Token)
			if err != nil {
				return
			}
			reply.Body = &canonical.Signal{Token: f.mint(ect.Claims{
				Act: ect.ActRollbackResult, Audience: []string{f.b.Self(), string(request.Issuer)}, Workflow: request.Workflow, Parents: []ect.ID{request.ID},
				OutputHash: ect.Hash([]byte("as it was")), Ext: gatewaytest.Restored(request),
			})}
		}
	default:
		f.arrived = append(f.arrived, m)
		direction, _, err := ect.ParseUnverified(gatewaytest.TokensIn(body)[0])
		if err != nil {
			return
		}
		token := f.mint(ect.Claims{Act: "atd:checkpoint", Audience: []string{f.b.Self()}, Workflow: direction.Workflow, Parents: []ect.ID{direction.ID}})
		set, _, err := ect.ParseUnverified(token)
		if err != nil {
			return
		}
		f.before, evidence = set.ID, []string{token}
		reply.Body = &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "done"}}}}
	}
	out, _, err := form.Encode(reply, translators.Target{Stamp: translators.Addressing{From: gatewaytest.Did("careful").DID, To: head.From, At: time.Now()}})
	if err == nil && len(evidence) > 0 {
		out.Body, err = gatewaytest.AINPWithEvidence(out.Body, evidence)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(gatewaytest.Signed(gatewaytest.Did("careful"), out.Body, ainp.SigDraft))
}

// TestAINPSignals_CallbackRollbackDecision: a callback is registered in payload.aepb.hitl_callback, a
// rollback is asked for with AtdRollbackRequest and answered with its result, a
// decision arrives as a RESULT with its token (AEPB, Checkpoint and Rollback
// Signal Carriage; HITL Callback Registration).
func TestAINPSignals_CallbackRollbackDecision(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	svid := b.SVID(t, "/careful")
	f := &careful{t: t, b: b, by: b.Party(t, svid)}
	server := httptest.NewUnstartedServer(f)
	server.TLS = gatewaytest.Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.ListAs(t, "careful", svid.ID, directory.Endpoint{Binding: ainp.Binding, URL: server.URL, DID: gatewaytest.Did("careful").DID})

	form, workflow := ainp.New(translators.Config{}), string(ect.NewID())
	via := b.Client
	send := func(m *canonical.Message, claims *ect.Claims) gatewaytest.Reply {
		t.Helper()
		m.Phase, m.Correlation.WireID = canonical.PhaseRequest, json.RawMessage(`"`+string(ect.NewID())+`"`)
		wire, _, err := form.Encode(m, translators.Target{Stamp: translators.Addressing{From: gatewaytest.Did("alice").DID, At: time.Now()}})
		gatewaytest.Must(t, err)
		body := wire.Body
		for op, says := range map[canonical.Op]string{canonical.OpInvoke: `"hitl_callback":"https://`, canonical.OpRollback: `"@type":"AtdRollbackRequest"`, canonical.OpDecision: `"msg_type":"RESULT"`} {
			if m.Op == op && !strings.Contains(string(body), says) {
				t.Errorf("%s does not say %s: %s", op, says, gatewaytest.Short(body))
			}
		}
		if claims != nil {
			input, err := ainp.HashInput(body)
			gatewaytest.Must(t, err)
			claims.OutputHash = ect.Hash(input)
			body, err = gatewaytest.AINPWithEvidence(body, []string{ecttest.Mint(t, b.Me, ecttest.Recipe{Claims: *claims})})
			gatewaytest.Must(t, err)
		}
		return b.Send(t, gatewaytest.HTTPRequest{Via: via, At: "/agents/careful/ainp", Body: string(gatewaytest.Signed(gatewaytest.Did("alice"), body, ainp.SigDraft))})
	}
	notified := make(chan string, 2)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		notified <- r.Header.Get(ect.HeaderName)
		w.WriteHeader(http.StatusNoContent)
	}))
	hook.TLS = gatewaytest.Serving(b.SVID(t, "/hook"))
	hook.StartTLS()
	t.Cleanup(hook.Close)
	begin := &canonical.Message{Op: canonical.OpInvoke, Callback: hook.URL + "/hook", Body: gatewaytest.TextInvoke("go")}
	first := send(begin, &ect.Claims{Audience: []string{b.Self()}, Workflow: workflow})
	if !strings.Contains(string(first.Body), "done") || f.arrived[0].Callback != begin.Callback {
		t.Fatalf("got %d %s, with the callback %q", first.Status, gatewaytest.Short(first.Body), f.arrived[0].Callback)
	}

	request := ecttest.Mint(t, b.Me, ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.Self(), string(svid.ID)}, Workflow: workflow, Parents: []ect.ID{f.before},
		Ext: ect.Ext{"atd.reason": json.RawMessage(`"it went wrong"`), "atd.cascade": json.RawMessage("false")},
	}})
	requested, _, err := ect.ParseUnverified(request)
	gatewaytest.Must(t, err)
	got := send(&canonical.Message{Op: canonical.OpRollback, Body: &canonical.Signal{Token: request}}, nil)
	back, err := form.Decode(translators.Wire{Body: got.Body, Re: canonical.OpRollback})
	gatewaytest.Must(t, err)
	answer, ok := back.Body.(*canonical.Signal)
	if !ok {
		t.Fatalf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	result, _, err := ect.ParseUnverified(answer.Token)
	gatewaytest.Must(t, err)
	if result.Act != ect.ActRollbackResult || !slices.Contains(result.Parents, requested.ID) {
		t.Errorf("the result is %s of %v", result.Act, result.Parents)
	}
	if last := f.arrived[len(f.arrived)-1]; last.Op != canonical.OpRollback || last.Body.(*canonical.Signal).Token != request {
		t.Errorf("the agent heard %s", last.Op)
	}

	approver := b.SVID(t, gatewaytest.ApproverPath)
	via = b.Caller(t, approver) // who asks for an approval may not grant it
	decision := ecttest.Mint(t, b.Party(t, approver), ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{b.Self(), string(b.Me.ID)}, Workflow: workflow, Parents: []ect.ID{f.before},
	}})
	got = send(&canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Token: decision, Approval: "a-1"}}, nil)
	received, err := form.Decode(translators.Wire{Body: got.Body, Re: canonical.OpDecision})
	gatewaytest.Must(t, err)
	if _, ok := received.Body.(*canonical.Done); got.Status != http.StatusOK || !ok {
		t.Errorf("got %d %s", got.Status, gatewaytest.Short(got.Body))
	}
	select {
	case token := <-notified:
		if token != decision {
			t.Error("another token was told")
		}
	case <-time.After(gatewaytest.Patience):
		t.Error("the decision was not told")
	}
}
