package approvals

import (
	"strings"
	"testing"

	"github.com/aepb/aepb-gateway/ect"
)

// TestJudge_Calls: each way in which a call may end, and each that must not be.
func TestJudge_Calls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		call           call
		sent, consumed int
		wrong          string // empty: nothing
	}{
		"completed":                    {call{kind: kindA2A, key: "grant-1", task: "t", state: taskDone}, 1, 1, ""},
		"completed, never sent":        {call{kind: kindA2A, key: "grant-1", task: "t", state: taskDone}, 0, 1, "never sent"},
		"completed, sent twice":        {call{kind: kindA2A, key: "grant-1", task: "t", state: taskDone}, 2, 2, "sent 2 times"},
		"sent, not consumed":           {call{kind: kindTranslate, key: "grant-1", task: "t", state: taskDone}, 1, 0, "0 of its approvals"},
		"rejected":                     {call{kind: kindA2A, key: "deny-1", task: "t", state: taskRejected}, 0, 0, ""},
		"rejected, sent":               {call{kind: kindA2A, key: "grant-1", task: "t", state: taskRejected}, 1, 1, "rejected, and sent"},
		"denied, sent":                 {call{kind: kindMCP, key: "deny-1", state: endRefused}, 1, 1, "no approver granted"},
		"not decided, sent":            {call{kind: kindMCP, key: "leave-1", state: endRefused}, 1, 1, "no approver granted"},
		"failed, not known":            {call{kind: kindA2A, key: "grant-1", task: "t", state: taskFailed, why: "x is not known"}, 1, 1, ""},
		"failed, nothing sent":         {call{kind: kindA2A, key: "grant-1", task: "t", state: taskFailed, why: "nothing was sent"}, 0, 1, ""},
		"failed, falsely nothing sent": {call{kind: kindA2A, key: "grant-1", task: "t", state: taskFailed, why: "nothing was sent"}, 1, 1, "does not learn"},
		"failed without a word":        {call{kind: kindA2A, key: "grant-1", task: "t", state: taskFailed, why: "oh"}, 0, 1, "does not learn"},
		"did not end":                  {call{kind: kindA2A, key: "grant-1", task: "t", failure: "it did not end"}, 0, 0, "did not end"},
		"not told, sent twice":         {call{kind: kindA2A, key: "grant-1"}, 2, 1, "sent 2 times"},
		"sent again twice":             {call{kind: kindMCP, key: "grant-1", state: endResult}, 2, 2, ""},
		"sent more than granted":       {call{kind: kindMCP, key: "grant-1", state: endResult}, 2, 1, "1 of its approvals"},
		"result, never sent":           {call{kind: kindMCP, key: "grant-1", state: endResult}, 0, 0, "never sent"},
		"unclear":                      {call{kind: kindMCP, key: "grant-1", state: endUnclear, why: "429"}, 0, 0, "told neither"},
	} {
		wrong := strings.Join(tc.call.judge(tc.sent, tc.consumed), "; ")
		if (wrong == "") != (tc.wrong == "") || !strings.Contains(wrong, tc.wrong) {
			t.Errorf("%s: %q, expected %q", name, wrong, tc.wrong)
		}
	}
}

// TestJudge_Decisions: a decision is on record, and has one request at most.
func TestJudge_Decisions(t *testing.T) {
	t.Parallel()
	decision := ect.Claims{ID: "d", Act: ect.ActApprovalGranted}
	request := ect.Claims{ID: "r", Act: ect.ActTranslate, Parents: []ect.ID{"i", "d"}}
	for name, tc := range map[string]struct {
		claims  []ect.Claims
		missing bool
		wrong   string
	}{
		"none":    {[]ect.Claims{decision}, false, ""},
		"one":     {[]ect.Claims{decision, request}, false, ""},
		"two":     {[]ect.Claims{decision, request, request}, false, "2 requests"},
		"missing": {[]ect.Claims{request}, true, "not on record"},
	} {
		what, missing := follows(tc.claims, "d")
		if missing != tc.missing || (what == "") != (tc.wrong == "") || !strings.Contains(what, tc.wrong) {
			t.Errorf("%s: %q, %v", name, what, missing)
		}
	}
}

// TestJudge_Key: the key is read from the text that approvers are shown.
func TestJudge_Key(t *testing.T) {
	t.Parallel()
	if key := keyIn("arguments:\n{\n  \"key\": \"grant-1\"\n}"); key != "grant-1" {
		t.Errorf("the key is %q", key)
	}
	if key := keyIn("no arguments"); key != "" {
		t.Errorf("the key of a text without one is %q", key)
	}
}
