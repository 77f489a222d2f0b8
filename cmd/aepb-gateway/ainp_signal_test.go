package main

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
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// careful is an AINP agent that sets a checkpoint before it does anything, can
// go back to it, and hears what humans decide.
type careful struct {
	t      *testing.T
	b      *bed
	by     *ecttest.Party
	mu     sync.Mutex
	heard  []*canonical.Message
	before ect.ID // the checkpoint
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
	head, bad := ainpHead(body)
	if err != nil || bad != nil || !holds(r.Context(), head, body, ainp.SigDraft) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation}
	var evidence []string
	switch said := m.Body.(type) {
	case *canonical.DescribeRequest:
		reply.Body = &canonical.Description{Name: "careful", Capabilities: []canonical.Capability{{ID: "do", Profile: canonical.ProfileMessage}}}
	case *canonical.Signal:
		f.heard = append(f.heard, m)
		reply.Body = &canonical.Done{}
		if m.Op == canonical.OpRollback {
			asked, _, err := ect.ParseUnverified(said.Token)
			if err != nil {
				return
			}
			reply.Body = &canonical.Signal{Token: f.mint(ect.Claims{
				Act: ect.ActRollbackResult, Audience: []string{f.b.self(), string(asked.Issuer)}, Workflow: asked.Workflow, Parents: []ect.ID{asked.ID},
				OutputHash: ect.Hash([]byte("as it was")), Ext: restored(asked),
			})}
		}
	default:
		f.heard = append(f.heard, m)
		leg, _, err := ect.ParseUnverified(tokensIn(body)[0])
		if err != nil {
			return
		}
		token := f.mint(ect.Claims{Act: "atd:checkpoint", Audience: []string{f.b.self()}, Workflow: leg.Workflow, Parents: []ect.ID{leg.ID}})
		set, _, err := ect.ParseUnverified(token)
		if err != nil {
			return
		}
		f.before, evidence = set.ID, []string{token}
		reply.Body = &canonical.Result{Output: &canonical.Output{Parts: []canonical.Part{{Kind: canonical.KindText, Text: "done"}}}}
	}
	out, _, err := form.Encode(reply, translators.Target{Stamp: translators.Addressing{From: did("careful").DID, To: head.From, At: time.Now()}})
	if err == nil && len(evidence) > 0 {
		out.Body, err = ainpWithEvidence(out.Body, evidence)
	}
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	_, _ = w.Write(signed(did("careful"), out.Body, ainp.SigDraft))
}

// TestAINPSignals: a callback is registered in payload.aepb.hitl_callback, a
// rollback is asked for with AtdRollbackRequest and answered with its result, a
// decision arrives as a RESULT with its token (AEPB, Checkpoint and Rollback
// Signal Carriage; HITL Callback Registration).
func TestAINPSignals(t *testing.T) {
	t.Parallel()
	b := newBed(t, plan{})
	svid := b.svid(t, "/careful")
	f := &careful{t: t, b: b, by: b.party(t, svid)}
	server := httptest.NewUnstartedServer(f)
	server.TLS = serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	b.listAs(t, "careful", svid.ID, directory.Endpoint{Binding: ainp.Binding, URL: server.URL, DID: did("careful").DID})

	form, workflow := ainp.New(translators.Config{}), string(ect.NewID())
	via := b.client
	send := func(m *canonical.Message, claims *ect.Claims) reply {
		t.Helper()
		m.Phase, m.Correlation.WireID = canonical.PhaseRequest, json.RawMessage(`"`+string(ect.NewID())+`"`)
		wire, _, err := form.Encode(m, translators.Target{Stamp: translators.Addressing{From: did("alice").DID, At: time.Now()}})
		must(t, err)
		body := wire.Body
		for op, says := range map[canonical.Op]string{canonical.OpInvoke: `"hitl_callback":"https://`, canonical.OpRollback: `"@type":"AtdRollbackRequest"`, canonical.OpDecision: `"msg_type":"RESULT"`} {
			if m.Op == op && !strings.Contains(string(body), says) {
				t.Errorf("%s does not say %s: %s", op, says, short(body))
			}
		}
		if claims != nil {
			input, err := ainp.HashInput(body)
			must(t, err)
			claims.OutputHash = ect.Hash(input)
			body, err = ainpWithEvidence(body, []string{ecttest.Mint(t, b.me, ecttest.Recipe{Claims: *claims})})
			must(t, err)
		}
		return b.send(t, letter{via: via, at: "/agents/careful/ainp", body: string(signed(did("alice"), body, ainp.SigDraft))})
	}
	told := make(chan string, 2)
	hook := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		told <- r.Header.Get(ect.HeaderName)
		w.WriteHeader(http.StatusNoContent)
	}))
	hook.TLS = serving(b.svid(t, "/hook"))
	hook.StartTLS()
	t.Cleanup(hook.Close)
	begin := &canonical.Message{Op: canonical.OpInvoke, Callback: hook.URL + "/hook", Body: telling("go")}
	first := send(begin, &ect.Claims{Audience: []string{b.self()}, Workflow: workflow})
	if !strings.Contains(string(first.body), "done") || f.heard[0].Callback != begin.Callback {
		t.Fatalf("got %d %s, with the callback %q", first.status, short(first.body), f.heard[0].Callback)
	}

	request := ecttest.Mint(t, b.me, ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActRollbackRequest, Audience: []string{b.self(), string(svid.ID)}, Workflow: workflow, Parents: []ect.ID{f.before},
		Ext: ect.Ext{"atd.reason": json.RawMessage(`"it went wrong"`), "atd.cascade": json.RawMessage("false")},
	}})
	asked, _, err := ect.ParseUnverified(request)
	must(t, err)
	got := send(&canonical.Message{Op: canonical.OpRollback, Body: &canonical.Signal{Token: request}}, nil)
	back, err := form.Decode(translators.Wire{Body: got.body, Re: canonical.OpRollback})
	must(t, err)
	said, ok := back.Body.(*canonical.Signal)
	if !ok {
		t.Fatalf("got %d %s", got.status, short(got.body))
	}
	result, _, err := ect.ParseUnverified(said.Token)
	must(t, err)
	if result.Act != ect.ActRollbackResult || !slices.Contains(result.Parents, asked.ID) {
		t.Errorf("the result is %s of %v", result.Act, result.Parents)
	}
	if last := f.heard[len(f.heard)-1]; last.Op != canonical.OpRollback || last.Body.(*canonical.Signal).Token != request {
		t.Errorf("the agent heard %s", last.Op)
	}

	approver := b.svid(t, approverPath)
	via = b.caller(t, approver) // who asks for an approval may not grant it
	decision := ecttest.Mint(t, b.party(t, approver), ecttest.Recipe{Claims: ect.Claims{
		Act: ect.ActApprovalGranted, Audience: []string{b.self(), string(b.me.ID)}, Workflow: workflow, Parents: []ect.ID{f.before},
	}})
	got = send(&canonical.Message{Op: canonical.OpDecision, Body: &canonical.Signal{Token: decision, Approval: "a-1"}}, nil)
	heard, err := form.Decode(translators.Wire{Body: got.body, Re: canonical.OpDecision})
	must(t, err)
	if _, ok := heard.Body.(*canonical.Done); got.status != http.StatusOK || !ok {
		t.Errorf("got %d %s", got.status, short(got.body))
	}
	select {
	case token := <-told:
		if token != decision {
			t.Error("another token was told")
		}
	case <-time.After(patience):
		t.Error("the decision was not told")
	}
}
