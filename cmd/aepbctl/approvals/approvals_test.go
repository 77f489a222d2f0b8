package approvals

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal"
	"github.com/aepb/aepb-gateway/cmd/aepbctl/terminal/terminaltest"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

const callText = "agent files, tool delete_all\n{\n  \"path\": \"\\u{202E}/\"\n}"

// approvalsServer is the admin API of a gateway with some approvals.
type approvalsServer struct {
	mu    sync.Mutex
	views []approvalView
	posts []string // path and body of each decision
	page  int      // approvals of one page
	after func()   // called after each list
}

func (s *approvalsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, deciding := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/api/approvals/"), "/decision")
	if r.URL.Path == "/api/approvals" {
		s.list(w, r)
		return
	}
	for i := range s.views {
		a := &s.views[i]
		if a.ID != id {
			continue
		}
		if deciding {
			var order struct{ Decision, Shown, Reason string }
			body, _ := io.ReadAll(r.Body)
			if json.Unmarshal(body, &order) != nil || order.Shown != a.Shown {
				w.WriteHeader(http.StatusForbidden)
				_, _ = io.WriteString(w, `{"code":"forbidden","detail":"another text"}`)
				return
			}
			s.posts = append(s.posts, r.Method+" "+r.URL.Path+" "+string(body))
			a.State = map[string]hitl.State{"approve": hitl.Granted, "deny": hitl.Denied}[order.Decision]
		}
		_ = json.NewEncoder(w).Encode(*a)
		return
	}
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, `{"code":"not_found","detail":"no such approval"}`)
}

func (s *approvalsServer) list(w http.ResponseWriter, r *http.Request) {
	page := map[string]any{}
	list, n := []approvalView{}, 0
	for _, a := range s.views {
		if state := r.URL.Query().Get("state"); state != "" && string(a.State) != state || a.ID <= r.URL.Query().Get("after") {
			continue
		}
		if n++; n > s.page {
			page["next"] = list[len(list)-1].ID
			break
		}
		a.Text = ""
		list = append(list, a)
	}
	page["approvals"] = list
	_ = json.NewEncoder(w).Encode(page)
	if s.after != nil {
		s.after()
	}
}

func waitingCall(id string) approvalView {
	return approvalView{
		ID: id, State: hitl.Pending, Rules: []string{"approval-1"}, Workflow: "w", Task: "task-1",
		Demand: approvalDemand{Roles: []string{"approver"}, Approvers: 1, Unreachable: hitl.DenyCall},
		Call:   hitl.Call{Caller: "spiffe://example.org/caller", Agent: "files", Operation: "invoke", Tool: "delete_all"},
		Until:  time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), Whole: true, Text: callText, Shown: ect.Hash([]byte(callText)),
	}
}

// startApprovals serves approvals, and returns what names their gateway to a command.
func startApprovals(t *testing.T, views ...approvalView) (s *approvalsServer, flags []string) {
	t.Helper()
	s = &approvalsServer{views: views, page: 2}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	if _, err := identity.LoadOrCreate(dir, "example.org", time.Now); err != nil {
		t.Fatal(err)
	}
	return s, []string{"--dir", dir, "--admin", server.URL}
}

// TestApprovals_List: those that wait, in all pages; others with --state.
func TestApprovals_List(t *testing.T) {
	t.Parallel()
	denied := waitingCall("4")
	denied.State = hitl.Denied
	half := waitingCall("3")
	half.Demand.Approvers, half.Decisions = 2, []hitl.Decision{{Granted: true}}
	_, flags := startApprovals(t, waitingCall("1"), waitingCall("2"), half, denied)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"pending": {nil, program.ExitOK, "ID  STATE        CALLER                       AGENT  TOOL        RULES       UNTIL\n" +
			"1   pending      spiffe://example.org/caller  files  delete_all  approval-1  2030-01-02T03:04:05Z\n" +
			"2   pending      spiffe://example.org/caller  files  delete_all  approval-1  2030-01-02T03:04:05Z\n" +
			"3   pending,1/2  spiffe://example.org/caller  files  delete_all  approval-1  2030-01-02T03:04:05Z\n"},
		"denied": {[]string{"--state", "denied"}, program.ExitOK, "ID  STATE   CALLER                       AGENT  TOOL        RULES       UNTIL\n" +
			"4   denied  spiffe://example.org/caller  files  delete_all  approval-1  2030-01-02T03:04:05Z\n"},
		"none":      {[]string{"--state", "expired", "-o", "json"}, program.ExitOK, "{\n  \"approvals\": []\n}\n"},
		"bad state": {[]string{"--state", "maybe"}, program.ExitUsage, ""},
	} {
		var out, errs bytes.Buffer
		if got := program.Run(t.Context(), Commands, append(append([]string{"approvals", "list"}, c.args...), flags...), nil, &out, &errs); got != c.code || out.String() != c.want {
			t.Errorf("%s: exit %d, %s\n%s", name, got, &errs, &out)
		}
	}
	var out bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"approvals", "list", "--state", "all", "-o", "json"}, flags...), nil, &out, io.Discard); got != program.ExitOK || strings.Count(out.String(), `"shown"`) != 4+1 {
		t.Errorf("all: exit %d, %s", got, &out)
	}
}

// TestAttack_Approvals_EndlessList: a gateway that always names a next page is not asked for ever.
func TestAttack_Approvals_EndlessList(t *testing.T) {
	t.Parallel()
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		requests++
		_, _ = io.WriteString(w, `{"approvals":[],"next":"x"}`)
	}))
	defer server.Close()
	_, flags := startApprovals(t)
	var errs bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"approvals", "list"}, append(flags, "--admin", server.URL)...), nil, io.Discard, &errs); got != program.ExitFailed || requests != maxApprovalPages {
		t.Errorf("exit %d after %d pages: %s", got, requests, &errs)
	}
}

// TestApprovals_Watch: each approval is shown once, and again when it changes, until the reader interrupts.
func TestApprovals_Watch(t *testing.T) {
	t.Parallel()
	s, flags := startApprovals(t, waitingCall("1"))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	looks := 0
	s.after = func() {
		switch looks++; looks {
		case 1:
			s.views = append(s.views, waitingCall("2"))
		case 2:
			s.views[0].Demand.Approvers, s.views[0].Decisions = 2, []hitl.Decision{{Granted: true}}
		case 4:
			stop()
		}
	}
	var out, errs bytes.Buffer
	if got := program.Run(ctx, Commands, append([]string{"approvals", "list", "--watch"}, flags...), nil, &out, &errs); got != program.ExitOK {
		t.Errorf("exit %d, %s", got, &errs)
	}
	var ids []string
	for line := range strings.Lines(out.String()) {
		fields := strings.Fields(line)
		ids = append(ids, fields[0]+" "+fields[1])
	}
	if got := strings.Join(ids, ", "); got != "ID STATE, 1 pending, 2 pending, 1 pending,1/2" {
		t.Errorf("shown are %s", got)
	}
}

// TestApprovals_Show: the text is printed as it is, behind what is known of the approval.
func TestApprovals_Show(t *testing.T) {
	t.Parallel()
	decided := waitingCall("1")
	decided.Decisions = []hitl.Decision{{Approver: hitl.Approver{Name: "ann"}, Granted: true, Reason: "fine", At: decided.Until}}
	unread := waitingCall("2")
	unread.Text, unread.Whole = "", false
	_, flags := startApprovals(t, decided, unread)
	var out, errs bytes.Buffer
	if got := program.Run(t.Context(), Commands, append([]string{"approvals", "show", "1"}, flags...), nil, &out, &errs); got != program.ExitOK || !strings.HasSuffix(out.String(), "\n\n"+callText+"\n") {
		t.Errorf("exit %d, %s\n%s", got, &errs, &out)
	}
	for _, want := range []string{"approval   1 pending,1/1\n", "call       spiffe://example.org/caller -> files delete_all\n", "decision   granted by ann at 2030-01-02T03:04:05Z: fine\n", "shown      " + decided.Shown + "\n", "until      2030-01-02T03:04:05Z, then deny\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, &out)
		}
	}
	out.Reset()
	if got := program.Run(t.Context(), Commands, append([]string{"approvals", "show", "2"}, flags...), nil, &out, &errs); got != program.ExitOK || !strings.Contains(out.String(), "the text is for auditors") || !strings.Contains(out.String(), "deny only") {
		t.Errorf("without the text: exit %d, %s%s", got, &out, &errs)
	}
	if got := program.Run(t.Context(), Commands, append([]string{"approvals", "show", "9"}, flags...), nil, &out, &errs); got != program.ExitFailed || !strings.Contains(errs.String(), "not_found") {
		t.Errorf("unknown: exit %d, %s", got, &errs)
	}
}

// TestApprovals_Decide: a person types yes after the text; a script names the hash of the text; a denial needs neither.
func TestApprovals_Decide(t *testing.T) {
	t.Parallel()
	hash := ect.Hash([]byte(callText))
	unread := waitingCall("2")
	unread.Text = ""
	for name, c := range map[string]struct {
		args  []string
		typed string // on a terminal; empty: there is none
		code  int
		post  string // what the gateway got; empty: nothing
		text  string // among what is printed
	}{
		"yes":                       {[]string{"approve", "1", "--reason", "fine"}, "yes\n", program.ExitOK, `POST /api/approvals/1/decision {"decision":"approve","shown":"` + hash + `","reason":"fine"}`, "approval 1 is granted\n"},
		"yes, the text is printed":  {[]string{"approve", "1"}, "yes\n", program.ExitOK, `POST /api/approvals/1/decision {"decision":"approve","shown":"` + hash + `"}`, "\n\n" + callText + "\ngrant this call? type yes: "},
		"no":                        {[]string{"approve", "1"}, "no\n", program.ExitFailed, "", "not granted"},
		"y":                         {[]string{"approve", "1"}, "y\n", program.ExitFailed, "", "not granted"},
		"only a line break":         {[]string{"approve", "1"}, "\n", program.ExitFailed, "", "not granted"},
		"yes without its line":      {[]string{"approve", "1"}, "yes", program.ExitFailed, "", "not granted"},
		"end of input":              {[]string{"approve", "1"}, "\x04", program.ExitFailed, "", "not granted"},
		"a script":                  {[]string{"approve", "1", "--yes", "--shown", hash}, "", program.ExitOK, `POST /api/approvals/1/decision {"decision":"approve","shown":"` + hash + `"}`, "granted"},
		"a script without yes":      {[]string{"approve", "1", "--shown", hash}, "", program.ExitOK, `POST /api/approvals/1/decision {"decision":"approve","shown":"` + hash + `"}`, "granted"},
		"a script without a hash":   {[]string{"approve", "1"}, "", program.ExitUsage, "", "--shown is required"},
		"a script, yes alone":       {[]string{"approve", "1", "--yes"}, "", program.ExitUsage, "", "--shown is required"},
		"a terminal, yes alone":     {[]string{"approve", "1", "--yes"}, "yes\n", program.ExitUsage, "", "--shown is required"},
		"a script, another hash":    {[]string{"approve", "1", "--yes", "--shown", "x"}, "", program.ExitFailed, "", "another text"},
		"a terminal, another hash":  {[]string{"approve", "1", "--shown", "x"}, "yes\n", program.ExitFailed, "", "another text"},
		"a terminal with a hash":    {[]string{"approve", "1", "--shown", hash}, "no\n", program.ExitFailed, "", "not granted"},
		"a text that is not for us": {[]string{"approve", "2", "--shown", hash}, "", program.ExitFailed, "", "role approver"},
		"deny":                      {[]string{"deny", "1", "--reason", "no"}, "", program.ExitOK, `POST /api/approvals/1/decision {"decision":"deny","shown":"` + hash + `","reason":"no"}`, "approval 1 is denied\n"},
		"unknown":                   {[]string{"deny", "9"}, "", program.ExitFailed, "", "not_found"},
	} {
		s, flags := startApprovals(t, waitingCall("1"), unread)
		var in io.Reader = strings.NewReader("yes\n") // of a pipe: it is not read
		var out, errs terminaltest.Screen
		var toErrs io.Writer = &errs
		if c.typed != "" {
			in = terminaltest.Keyboard{Reader: strings.NewReader(c.typed)}
		} else {
			toErrs = &errs.Buffer
		}
		got := program.Run(t.Context(), Commands, append(append([]string{"approvals"}, c.args...), flags...), in, &out.Buffer, toErrs)
		if printed := errs.String() + out.String(); got != c.code || strings.Join(s.posts, "\n") != c.post || !strings.Contains(printed, c.text) {
			t.Errorf("%s: exit %d, posted %q, printed %s", name, got, s.posts, printed)
		}
	}
}

// TestAttack_Approvals_TextOfAnotherHash: a gateway that shows one text and has another decided about is found out.
func TestAttack_Approvals_TextOfAnotherHash(t *testing.T) {
	t.Parallel()
	a := waitingCall("1")
	a.Shown = ect.Hash([]byte("another"))
	s, flags := startApprovals(t, a)
	for _, args := range [][]string{{"show", "1"}, {"approve", "1", "--yes", "--shown", a.Shown}, {"deny", "1"}} {
		var out, errs bytes.Buffer
		if got := program.Run(t.Context(), Commands, append(append([]string{"approvals"}, args...), flags...), nil, &out, &errs); got != program.ExitFailed || !strings.Contains(errs.String(), "does not have the hash") || len(s.posts) != 0 {
			t.Errorf("%q: exit %d, %s%s", args, got, &out, &errs)
		}
	}
}

// TestAttack_Approvals_Terminal: texts of callers and approvers give a terminal no orders, and make no lines but those of
// the text.
func TestAttack_Approvals_Terminal(t *testing.T) {
	t.Parallel()
	a := terminaltest.Of[approvalView]()
	var out bytes.Buffer
	if err := a.print(&out); err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "show", out.String(), 11+2+strings.Count(terminaltest.Hostile, "\n"))
	out.Reset()
	if err := terminal.PrintRows(&out, approvalLines([]approvalView{a})); err != nil {
		t.Fatal(err)
	}
	terminaltest.Harmless(t, "list", out.String(), 2)
}
