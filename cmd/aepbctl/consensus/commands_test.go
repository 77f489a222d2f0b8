package consensus_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/consensus/signed"
)

func contains(t *testing.T, text string, wants ...string) {
	t.Helper()
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in: %s", want, text)
		}
	}
}

func TestGroup_IsShown(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	contains(t, s.does("a", "group", "ops"), "spiffe://example.org/agents/b, weight 1.00", "majority: at least 2", "weighted: at least 150", "24 h", "oldest")
	s.fails("no such round or group", "a", "group", "none")
}

// TestPropose_AsksForTheGroup: participants, weights and quorum are the group's.
func TestPropose_AsksForTheGroup(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	file := filepath.Join(t.TempDir(), "action.json")
	must(t, os.WriteFile(file, []byte(`{"from": "a file"}`), 0o600))
	wid := string(ect.NewID())
	id := s.does("a", "propose", "--group", "ops", "--subject", "restart", "--action", "@"+file, "--mechanism", "weighted", "--quorum", "200",
		"--timeout", "5m", "--reveal", "1m", "--resource", "east", "--urgency", "2", "--reversible", "--wid", wid)
	p := s.rounds[0].round.Proposal
	if p.Round != id || len(p.Participants) != 3 || p.Quorum != 200 || p.Terms.Weights == "" || string(p.Action) != `{"from":"a file"}` || p.Terms.Workflow != wid || p.Terms.Urgency != 2 || !p.Terms.Reversible || p.Terms.Resource != "east" {
		t.Errorf("%+v", p)
	}
	if !p.Timeout.Equal(s.now.Add(5*time.Minute)) || !p.Terms.RevealBy.Equal(s.now.Add(6*time.Minute)) {
		t.Error(p.Timeout, p.Terms.RevealBy)
	}
	s.proposes()
	if p := s.rounds[1].round.Proposal; p.Quorum != 2 || p.Terms.Weights != "" || p.Mechanism != consensus.Majority || !p.Terms.RevealBy.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestPropose_IsRefused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	for want, flags := range map[string][]string{
		"--mechanism is majority":            {"--mechanism", "dictator"},
		"--timeout is at least":              {"--timeout", "1ms"},
		"--reveal is at least":               {"--reveal", "1ms"},
		"--reveal does not go":               {"--reveal", "1m", "--mechanism", "leader"},
		"--urgency is 0 to 3":                {"--urgency", "4"},
		"--quorum is not negative":           {"--quorum", "-1"},
		"--quorum is 1, expected at least 2": {"--quorum", "1"},
		"--action is a JSON object":          {"--action", `{"a": 1, "a": 2}`},
		"no such file":                       {"--action", "@/none"},
		"HTTP 409":                           {"--mechanism", "optimistic"},
		"HTTP 404":                           {"--group", "other"},
		"are required":                       {"--subject", ""},
		"wid of the proposal is a UUID":      {"--wid", "x"},
	} {
		s.fails(want, "a", append([]string{"propose", "--group", "ops", "--subject", "x", "--action", "{}"}, flags...)...)
	}
	s.fails("where the gateway took the proposal and its answer was lost", "c", "propose", "--group", "ops", "--subject", "x", "--action", "{}")
	s.group.Mechanisms = []consensus.Mechanism{consensus.Majority}
	s.fails("the group does not decide by leader", "a", "propose", "--group", "ops", "--subject", "x", "--action", "{}", "--mechanism", "leader")
}

// TestPropose_GroupThatContradictsItself: nothing is signed for it.
func TestPropose_GroupThatContradictsItself(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(map[string]any){
		"hash of weights is not that": func(g map[string]any) { g["weights_hash"] = ect.Hash(nil) },
		"not one of the participants": func(g map[string]any) { g["participants"] = []string{"spiffe://example.org/agents/a"} },
		`answered with group "other"`: func(g map[string]any) { g["group"] = "other" },
	} {
		s := newSetup(t)
		view := s.groupView()
		change(view)
		s.answers["GET /consensus/groups/ops"] = func(w http.ResponseWriter) { s.write(w, 200, view) }
		s.fails(want, "a", "propose", "--group", "ops", "--subject", "x", "--action", "{}")
		if len(s.posts) > 0 {
			t.Error(s.posts)
		}
	}
	s := newSetup(t)
	s.answers["GET /consensus/groups/ops"] = func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"group":"ops","group":"ops"}`) }
	s.fails("cannot be read", "a", "group", "ops")
}

// TestPropose_Again: a proposal that failed keeps its id, in another round.
func TestPropose_Again(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	first := s.proposes()
	if o := s.tally(0); o.Reason != consensus.NoQuorum {
		t.Fatal(o)
	}
	of := s.rounds[0].round.Proposal.ID
	s.fails("too soon", "a", "propose", "--group", "ops", "--subject", "x", "--action", "{}", "--again", of)
	s.later(time.Minute)
	second := s.proposes("--again", of)
	if first == second || s.rounds[1].round.Proposal.ID != of || s.rounds[1].round.Attempt != 2 {
		t.Errorf("%s, %s, %+v", first, second, s.rounds[1].round)
	}
}

// TestVote_ReceivedComesFirst: the proposal is acknowledged, then the vote is sent, and no second one.
func TestVote_ReceivedComesFirst(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	_, errs, err := s.run("b", "vote", id, "approve", "--rationale", "fine")
	must(t, err)
	contains(t, errs, "agents/a: restart: {")
	first := s.rounds[0].messages
	if len(first) != 2 || first[0].Kind != "ack" || first[1].Kind != "vote" {
		t.Fatal(first)
	}
	contains(t, s.does("b", "vote", id, "approve"), "was there before", first[1].hash)
	s.fails("would make both void", "b", "vote", id, "reject", "--rationale", "changed my mind")
	if got := len(s.rounds[0].messages); got != 2 {
		t.Errorf("%d messages, expected 2", got)
	}
}

func TestVote_IsRefused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	s.fails("a vote is approve, reject or abstain", "b", "vote", id, "maybe")
	s.fails("--rationale is required", "b", "vote", id, "reject")
	s.fails("--bundle needs the name", "b", "vote", id, "approve", "--bundle", "x")
	s.fails("no such round", "b", "vote", string(ect.NewID()), "approve")
	s.fails("is not a participant", "outsider", "vote", id, "approve")
	other := s.proposes("--reveal", "1m")
	s.fails("--keep is required", "b", "vote", other, "approve")
	s.answers["GET /consensus/rounds/"+id] = func(w http.ResponseWriter) { s.write(w, 200, s.view(s.rounds[1])) }
	s.fails("answered with round "+other, "b", "vote", id, "approve")
	s.answers["GET /consensus/rounds/"+id] = func(w http.ResponseWriter) {
		v := s.view(s.rounds[1])
		v["round"] = id
		s.write(w, 200, v)
	}
	s.fails("the proposal is that of round "+other, "b", "vote", id, "approve")
	p := s.rounds[0].round.Proposal
	p.Proposer = idOf("b")
	forged, err := signed.Sign(s.signer(s.agents["a"]), p)
	must(t, err)
	s.answers["GET /consensus/rounds/"+id] = func(w http.ResponseWriter) {
		v := s.view(s.rounds[0])
		v["proposal"] = forged
		s.write(w, 200, v)
	}
	s.fails("not verified as one of spiffe://example.org/agents/b", "b", "vote", id, "approve")
	delete(s.answers, "GET /consensus/rounds/"+id)
	if n := len(s.rounds[0].messages); n > 0 {
		t.Errorf("%d messages were sent", n)
	}
	s.answers["POST /consensus/rounds/"+id+"/votes"] = func(w http.ResponseWriter) { s.write(w, 202, map[string]string{"hash": "another"}) }
	s.fails("took a message with hash another", "b", "vote", id, "approve")
	delete(s.answers, "POST /consensus/rounds/"+id+"/votes")
	s.tally(0)
	s.fails("votes are not received any more", "c", "vote", id, "approve")
}

// TestVote_CommitAndReveal: the hash is sent, and the vote of the file after the timeout; the file is used again.
func TestVote_CommitAndReveal(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes("--timeout", "5m", "--reveal", "1m")
	dir := t.TempDir()
	later, waits := filepath.Join(dir, "b"), filepath.Join(dir, "c")
	contains(t, s.does("b", "vote", id, "approve", "--keep", later, "--no-wait"), "sealed of round", "send the vote between")
	if s.posted("vote") != 0 || s.posted("ack") != 2 {
		t.Fatalf("%d votes and %d acknowledgements, expected 0 and 2", s.posted("vote"), s.posted("ack"))
	}
	if info, err := os.Stat(later); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	s.does("b", "vote", id, "approve", "--keep", later, "--no-wait")
	if s.posted("ack") != 2 {
		t.Error("the hash was sent twice")
	}
	s.fails("holds a vote to approve", "b", "vote", id, "abstain", "--keep", later, "--no-wait")
	s.fails("name another file with --keep", "c", "vote", id, "approve", "--keep", later, "--no-wait")
	s.later(time.Second)
	s.fails("the hash of another vote is with the gateway", "b", "vote", id, "approve", "--keep", filepath.Join(dir, "other"), "--no-wait")
	must(t, os.WriteFile(filepath.Join(dir, "bad"), []byte("{}"), 0o600))
	s.fails("does not hold what was kept", "b", "vote", id, "approve", "--keep", filepath.Join(dir, "bad"))
	s.does("c", "vote", id, "approve", "--keep", waits)
	s.does("b", "vote", id, "approve", "--keep", later)
	s.fails("it is too late", "a", "vote", id, "approve", "--keep", filepath.Join(dir, "late"))
	if o := s.tally(0); o.Result != consensus.Commit || o.Tally.Approve != 2 {
		t.Errorf("%+v", o)
	}
	s.does("a", "show", id, "--save", filepath.Join(dir, "saved"))
	contains(t, s.does("a", "verify", filepath.Join(dir, "saved")), "acknowledges: sealed", "the outcome holds")
}

// TestAck_Executed: only of a commit whose votes hold.
func TestAck_Executed(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	s.does("b", "ack", id, "executed")
	st := s.rounds[0]
	a, err := signed.Parse[consensus.Ack](st.messages[len(st.messages)-1].Message)
	must(t, err)
	if a.Content.Kind != consensus.Executed || len(a.Content.Outcomes) != 1 || a.Content.Outcomes[0] != st.round.End.Signature {
		t.Errorf("%+v", a.Content)
	}
	s.fails("expected the coordinator spiffe://example.org/other", "b", "ack", id, "executed", "--coordinator", "spiffe://example.org/other")
	st.messages[1].hash = "left out" // a vote
	s.fails("the outcome does not hold (messages: they are not those", "c", "ack", id, "executed")
	s.does("c", "ack", id, "refuses", "--rationale", "a vote is missing")
}

func TestAck_IsRefused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	s.fails("an acknowledgement is received", "b", "ack", id, "sealed")
	s.fails("--rationale is required", "b", "ack", id, "refuses")
	s.fails("--other is required", "b", "ack", id, "disputed")
	s.fails("--keep is required", "b", "ack", id, "nonce")
	s.fails("has no outcome", "b", "ack", id, "executed")
	s.does("b", "ack", id, "received")
	s.tally(0)
	s.fails("the outcome is an abort", "b", "ack", id, "executed")
	st := s.rounds[0]
	st.round.End.Outcome.Coordinator = idOf("c")
	m, err := signed.Sign(s.gateway, st.round.End.Outcome)
	must(t, err)
	st.round.End.Signature = m.Compact
	s.fails("not verified as one of spiffe://example.org/agents/c", "b", "ack", id, "refuses", "--rationale", "x")
}

// TestAck_Disputed: with two outcomes that say different things alone.
func TestAck_Disputed(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	dir := filepath.Join(t.TempDir(), "saved")
	s.does("b", "show", id, "--save", dir)
	s.fails("is there: --save names a new folder", "b", "show", id, "--save", dir)
	s.fails("there is nothing to dispute", "b", "ack", id, "disputed", "--other", dir)
	st := s.rounds[0]
	first := st.round.End.Signature
	st.round.End.Outcome.Result, st.round.Phase = consensus.Abort, consensus.Aborted
	s.sign(st)
	s.does("b", "ack", id, "disputed", "--other", dir)
	a, err := signed.Parse[consensus.Ack](st.messages[len(st.messages)-1].Message)
	must(t, err)
	if o := a.Content.Outcomes; len(o) != 2 || o[0] != first || o[1] != st.round.End.Signature {
		t.Error(o)
	}
	s.fails("no such file", "b", "ack", id, "disputed", "--other", t.TempDir())
}

// TestNonce_IsKeptAndOpened: propose keeps it, and ack sends it while the draw goes on.
func TestNonce_IsKeptAndOpened(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	s.group.Deadlock = consensus.Random
	file := filepath.Join(t.TempDir(), "nonce")
	s.fails("--keep is required", "a", "propose", "--group", "ops", "--subject", "x", "--action", "{}", "--resource", "east")
	id := s.proposes("--resource", "east", "--keep", file)
	s.fails("--keep names a new file", "a", "propose", "--group", "ops", "--subject", "x", "--action", "{}", "--resource", "east", "--keep", file)
	s.fails("nonces are opened while it is drawing", "a", "ack", id, "nonce", "--keep", file)
	st := s.rounds[0]
	p := st.round.Proposal
	st.round.Phase, st.round.Deadlock.Candidates = consensus.Drawing, []consensus.Candidate{{Proposal: p.ID, Proposer: p.Proposer, Nonce: p.Terms.Nonce}}
	s.fails("does not hold the nonce of a proposal of ours", "b", "ack", id, "nonce", "--keep", file)
	s.does("a", "ack", id, "nonce", "--keep", file)
	a, err := signed.Parse[consensus.Ack](st.messages[0].Message)
	must(t, err)
	if a.Content.Kind != consensus.NonceOpen || ect.Hash([]byte(a.Content.Nonce)) != p.Terms.Nonce {
		t.Errorf("%+v", a.Content)
	}
}

func TestList_AllPages(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	contains(t, s.does("a", "list"), "there is no round")
	for range 5 {
		s.proposes()
	}
	for _, flags := range [][]string{nil, {"--operator"}} {
		out := s.does("a", append([]string{"list"}, flags...)...)
		for _, st := range s.rounds {
			contains(t, out, st.round.Proposal.Round+"  voting")
		}
	}
	s.answers["GET /consensus/rounds"] = func(w http.ResponseWriter) { s.write(w, 200, map[string]string{"next": "1"}) }
	s.fails("lists more than 1000 pages", "a", "list")
	s.answers["GET /api/consensus"] = func(w http.ResponseWriter) { s.problem(w, 403, "no operator") }
	s.fails("no operator", "a", "list", "--operator")
}

func TestShow_SavesBytesAsTheyCame(t *testing.T) {
	t.Parallel()
	s, id := committed(t)
	contains(t, s.does("a", "show", id), "commit, accepted, by spiffe://example.org/gateway", "2 approve, 1 reject, 0 abstain, of 3", "subject       restart")
	contains(t, s.does("a", "show", id, "--operator"), "committed")
	s.fails("does not go with --operator", "a", "show", id, "--operator", "--save", "x")
	raw := []byte(nil)
	s.answers["GET /consensus/rounds/"+id] = func(w http.ResponseWriter) {
		text, err := json.MarshalIndent(s.view(s.rounds[0]), " ", "\t")
		must(t, err)
		raw = append(text, '\n', ' ')
		_, _ = w.Write(raw)
	}
	dir := filepath.Join(t.TempDir(), "saved")
	s.does("a", "show", id, "--save", dir)
	got, err := os.ReadFile(filepath.Join(dir, "round.json"))
	must(t, err)
	if string(got) != string(raw) {
		t.Errorf("saved %q, expected %q", got, raw)
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	if len(names) != 4 { // six messages, two a page
		t.Error(names)
	}
	delete(s.answers, "GET /consensus/rounds/"+id)
	open := s.proposes()
	s.fails("has no outcome", "a", "show", open, "--save", filepath.Join(dir, "x"))
}

// TestWatch_UntilItIsOver: each change once, over streams that end; the exit says how the round ended.
func TestWatch_UntilItIsOver(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	for _, name := range []string{"a", "b"} {
		s.does(name, "vote", id, "approve")
	}
	path := "GET /consensus/rounds/" + id + "/events"
	s.answers[path] = func(w http.ResponseWriter) { // a gateway that is stopped after the first event
		text, err := json.Marshal(map[string]any{"round": id, "phase": "voting"})
		must(t, err)
		_, _ = io.WriteString(w, "event: round\ndata: "+string(text)+"\n\nevent: round\ndata: "+string(text)+"\n\n")
	}
	s.onWait = func() {
		s.mu.Lock()
		delete(s.answers, path)
		s.mu.Unlock()
		s.tally(0)
	}
	out := s.does("a", "watch", id)
	if strings.Count(out, "\n") != 1 {
		t.Error(out)
	}
	contains(t, out, "voting\n", " committed, accepted: 2 approve")
}

func TestWatch_Refused(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	id := s.proposes()
	s.tally(0)
	if out, _, err := s.run("a", "watch", id); !errors.Is(err, errRefused) || !strings.Contains(out, "aborted, no_quorum") {
		t.Error(out, err)
	}
	for text, want := range map[string]string{
		"event: other\ndata: {}\n\n":                        "without an event",
		"event: round\ndata: {}\n\n":                        "expected " + id,
		"event: round\ndata: {\ndata: \"round\":1}\n\n":     "cannot be read",
		"event: round\ndata: " + strings.Repeat("x", 5<<20): "too long",
	} {
		s.answers["GET /consensus/rounds/"+id+"/events"] = func(w http.ResponseWriter) { _, _ = io.WriteString(w, text) }
		s.fails(want, "a", "watch", id)
	}
}
