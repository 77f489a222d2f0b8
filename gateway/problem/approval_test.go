package problem_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// waiting are the members that say on which approval a message depends.
type waiting struct {
	Code  string    `json:"code"`
	URL   string    `json:"approval"`
	State string    `json:"approval_state"`
	Until time.Time `json:"until"`
}

// TestApproval_Members: a caller sees the path, the state and the end of its approval over HTTP, in a stream, in a
// native endpoint's error, and when a stored refusal is repeated. A call that may still be sent is asked to come again.
func TestApproval_Members(t *testing.T) {
	t.Parallel()
	until := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, state := range hitl.States() {
		err := error(&problem.ApprovalError{ID: "a/1", State: string(state), Until: until, Reason: "too risky"})
		want := waiting{"approval_refused", "/hitl/approvals/a%2F1", string(state), until}
		if state == hitl.Pending || state == hitl.Granted {
			want.Code = "approval_required"
		}
		encoded, marshalErr := json.Marshal(problem.From(err))
		var stored problem.Problem
		if marshalErr != nil || json.Unmarshal(encoded, &stored) != nil {
			t.Fatal(marshalErr)
		}
		for _, err := range []error{err, &problem.StoredError{Problem: stored}} {
			response := httptest.NewRecorder()
			problem.Write(response, httptest.NewRequestWithContext(t.Context(), "POST", "/", nil), err)
			for where, data := range map[string][]byte{
				"document": response.Body.Bytes(), "stream": problem.Document(t.Context(), err), "native": problem.Native(err).Details[0],
			} {
				var got waiting
				if err := json.Unmarshal(data, &got); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s, %s (-want +got):\n%s", state, where, diff)
				}
			}
			advice := response.Header().Get("Retry-After")
			if (advice != "") != (want.Code == "approval_required") {
				t.Errorf("%s: Retry-After is %q", state, advice)
			}
			text := problem.Native(err).Message
			if want.Code == "approval_required" && !strings.Contains(text, want.URL) || want.Code == "approval_refused" && !strings.Contains(text, "too risky") {
				t.Errorf("%s: the text is %q", state, text)
			}
		}
	}
}

// TestApproval_NoMembersOfOthers: other problems have no members of an approval.
func TestApproval_NoMembersOfOthers(t *testing.T) {
	t.Parallel()
	for _, tc := range golden {
		if own := strings.HasPrefix(tc.name, "approval ") && strings.HasPrefix(tc.code, "approval_"); own {
			continue
		}
		for _, data := range [][]byte{problem.Document(t.Context(), tc.err), slices.Concat(rawOf(problem.Native(tc.err))...)} {
			if text := string(data); strings.Contains(text, `"approval":`) || strings.Contains(text, `"until"`) {
				t.Errorf("%s: %s", tc.name, text)
			}
		}
	}
}

func rawOf(e *canonical.Error) (out [][]byte) {
	for _, raw := range e.Details {
		out = append(out, raw)
	}
	return out
}

// TestApproval_URL: the path that the gateway gives goes before that of the id.
func TestApproval_URL(t *testing.T) {
	t.Parallel()
	p := problem.From(&problem.ApprovalError{ID: "1", State: "pending", URL: "/elsewhere/1"})
	if p.Where.Approval.URL != "/elsewhere/1" || !strings.Contains(p.Detail, "/elsewhere/1") {
		t.Errorf("got %q in %q", p.Where.Approval.URL, p.Detail)
	}
}
