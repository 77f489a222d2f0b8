package evidence

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepbctl/program"
	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
)

// archiveServer is the admin API of a gateway with some workflows.
type archiveServer struct {
	pages     [][]string          // ids of workflows
	workflows map[string][]string // tokens
	refuses   bool
	since     string // of the last list
}

func (s *archiveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	wid, one := strings.CutPrefix(r.URL.Path, "/api/workflows/")
	tokens := s.workflows[wid]
	switch {
	case s.refuses:
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"code":"policy_denied","detail":"this operator lacks the role auditor"}`))
	case one && len(tokens) > 0:
		_ = json.NewEncoder(w).Encode(map[string]any{"wid": wid, "ects": tokens})
	case r.URL.Path == "/api/workflows":
		at := 0
		_, _ = fmt.Sscan(r.URL.Query().Get("after"), &at)
		answer := map[string]any{"wids": s.pages[at]}
		if at+1 < len(s.pages) {
			answer["next"] = fmt.Sprint(at + 1)
		}
		s.since = r.URL.Query().Get("since")
		_ = json.NewEncoder(w).Encode(answer)
	default:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"code":"not_found","detail":"no such workflow"}`))
	}
}

// exporter is an operator of an archiveServer.
type exporter struct {
	dir, admin string
	party      *ecttest.Party
}

func newExporter(t *testing.T, s *archiveServer) *exporter {
	t.Helper()
	admin := httptest.NewServer(s)
	t.Cleanup(admin.Close)
	dir := t.TempDir()
	return &exporter{dir, admin.URL, partyOf(t, dir)}
}

// partyOf is the client of a development gateway in a folder.
func partyOf(t *testing.T, dir string) *ecttest.Party {
	t.Helper()
	dev, err := identity.LoadOrCreate(dir, "aepb.dev", func() time.Time { return time.Now().Add(-time.Hour) })
	if err != nil {
		t.Fatal(err)
	}
	kid, err := ect.Thumbprint(dev.Client.Key.Public())
	if err != nil {
		t.Fatal(err)
	}
	key, _ := dev.Client.Key.(*ecdsa.PrivateKey)
	return &ecttest.Party{ID: dev.Client.ID, Key: key, Chain: dev.Client.Chain, KeyID: kid}
}

// evidencetest.Tokens are the tokens of a workflow, of some time ago.
func tokensIn(t *testing.T, by *ecttest.Party, wid string, ago time.Duration) []string {
	t.Helper()
	at := time.Now().Add(-ago)
	claims := ect.Claims{ID: ect.NewID(), Workflow: wid, Audience: []string{"spiffe://aepb.dev/gateway"}, IssuedAt: at.Unix(), Expires: at.Add(time.Minute).Unix()}
	root := ecttest.Mint(t, by, ecttest.Recipe{Claims: claims})
	claims.Parents, claims.ID = []ect.ID{claims.ID}, ect.NewID()
	return []string{root, ecttest.Mint(t, by, ecttest.Recipe{Claims: claims})}
}

// export exports into a file, and returns the exit code and what was printed.
func (e *exporter) export(t *testing.T, file string, args ...string) (code int, printed string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = program.Run(t.Context(), Commands, append([]string{"evidence", "export", "--dir", e.dir, "--admin", e.admin, "--gateway", e.admin, "--to", file}, args...), nil, &out, &errs)
	if _, err := os.Stat(file); (err == nil) != (code == program.ExitOK) {
		t.Errorf("%v: exit %d, and the archive is there: %v", args, code, err == nil)
	}
	return code, out.String() + errs.String()
}

// TestEvidenceExport_Since: all pages are read, a page may be empty, a workflow may come twice, and one whose records have
// left is no error. The archive verifies.
func TestEvidenceExport_Since(t *testing.T) {
	t.Parallel()
	early, late, gone := string(ect.NewID()), string(ect.NewID()), string(ect.NewID())
	s := &archiveServer{pages: [][]string{{early}, {}, {gone, early, late}}}
	e := newExporter(t, s)
	first := tokensIn(t, e.party, early, 10*time.Minute)
	s.workflows = map[string][]string{early: first, late: append(tokensIn(t, e.party, late, 0), first...)} // ancestors in another workflow
	for name, tc := range map[string]struct {
		args []string
		code int
		want string
	}{
		"since":             {[]string{"--since", "1h"}, program.ExitOK, "4 tokens of 2 workflows,"},
		"and a workflow":    {[]string{"--since", "1h", early}, program.ExitOK, "4 tokens of 2 workflows,"},
		"until":             {[]string{"--since", "1h", "--until", "5m"}, program.ExitOK, "2 tokens of 1 workflow,"},
		"until nothing":     {[]string{"--since", "2h", "--until", "1h"}, program.ExitFailed, "no workflow has a record from "},
		"until before":      {[]string{"--since", "1h", "--until", "2h"}, program.ExitUsage, "is not after --since"},
		"until alone":       {[]string{"--until", "1h", early}, program.ExitUsage, "give both"},
		"not a time":        {[]string{"--since", "monday"}, program.ExitUsage, "expected an age such as 24h"},
		"an age to come":    {[]string{"--since", "-1h"}, program.ExitUsage, "expected an age such as 24h"},
		"neither of either": {nil, program.ExitUsage, "name workflows, or a time with --since"},
	} {
		file := filepath.Join(e.dir, strings.ReplaceAll(name, " ", "-")+".tar.gz")
		code, printed := e.export(t, file, tc.args...)
		if code != tc.code || !strings.Contains(printed, tc.want) {
			t.Errorf("%s: exit %d, %q, want %d, %q", name, code, printed, tc.code, tc.want)
		}
		if code != program.ExitOK {
			continue
		}
		var out bytes.Buffer
		if code := program.Run(t.Context(), Commands, []string{"ect", "verify", "--dir", e.dir, file}, nil, &out, &out); code != program.ExitOK || !strings.Contains(out.String(), "complete: ") {
			t.Errorf("%s: the archive does not verify: %s", name, &out)
		}
	}
	if code, printed := e.export(t, filepath.Join(e.dir, "day.tar.gz"), "--since", "2026-11-29"); code != program.ExitOK || s.since != "2026-11-29T00:00:00Z" {
		t.Errorf("a day: exit %d, %s, asked since %s", code, printed, s.since)
	}
}

// TestEvidenceExport_Refused: without the role auditor, without any workflow, and with too many tokens nothing is written.
func TestEvidenceExport_Refused(t *testing.T) {
	t.Parallel()
	many := map[string][]string{}
	for n := range 3 {
		wid := fmt.Sprint("workflow-", n)
		for i := range 7000 {
			many[wid] = append(many[wid], fmt.Sprintf("x.%d.%d", n, i))
		}
	}
	for name, tc := range map[string]struct {
		server *archiveServer
		want   string
	}{
		"not an auditor":  {&archiveServer{refuses: true}, "this operator lacks the role auditor"},
		"no workflow":     {&archiveServer{pages: [][]string{{}, {}}}, "no workflow has a record since "},
		"too many tokens": {&archiveServer{pages: [][]string{{"workflow-0", "workflow-1", "workflow-2"}}, workflows: many}, "more than 20000 tokens, the most of one archive: narrow the time with --since and --until"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newExporter(t, tc.server)
			if code, printed := e.export(t, filepath.Join(e.dir, "out.tar.gz"), "--since", "24h"); code != program.ExitFailed || !strings.Contains(printed, tc.want) {
				t.Errorf("exit %d, %q, want %d, %q", code, printed, program.ExitFailed, tc.want)
			}
		})
	}
}

// TestEvidenceExport_ForeignTokens: a token of a CA that we do not know is exported with all others, with a warning; the
// workflow alone is refused.
func TestEvidenceExport_ForeignTokens(t *testing.T) {
	t.Parallel()
	ours, foreign := string(ect.NewID()), string(ect.NewID())
	s := &archiveServer{pages: [][]string{{ours, foreign}}}
	e := newExporter(t, s)
	s.workflows = map[string][]string{ours: tokensIn(t, e.party, ours, 0), foreign: tokensIn(t, partyOf(t, t.TempDir()), foreign, 0)}
	if code, printed := e.export(t, filepath.Join(e.dir, "all.tar.gz"), "--since", "1h"); code != program.ExitOK || !strings.Contains(printed, "warning: 2 of the exported tokens do not hold") {
		t.Errorf("all: exit %d, %s", code, printed)
	}
	if code, printed := e.export(t, filepath.Join(e.dir, "one.tar.gz"), foreign); code != program.ExitFailed || !strings.Contains(printed, "does not hold") {
		t.Errorf("the workflow alone: exit %d, %s", code, printed)
	}
}
