package problem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// golden is what each error is to others. Codes and statuses are those of
// architecture section 7, written out so that a slip in a table shows.
var golden = []struct {
	name   string
	err    error
	status int
	code   string
	ect    string
	native canonical.Code
	retry  time.Duration
}{
	{"unknown", errors.New("secret"), 500, "internal_error", "internal_error", canonical.CodeInternal, 0},
	{"nil", nil, 500, "internal_error", "internal_error", canonical.CodeInternal, 0},
	{"unknown agent", &problem.UnknownAgentError{Agent: "x"}, 404, "unknown_agent", "internal_error", canonical.CodeSkillNotFound, 0},
	{"no path", &problem.NoPathError{From: "a", To: "b"}, 404, "no_translation_path", "internal_error", canonical.CodeUnsupportedOp, 0},
	{"not found", &problem.NotFoundError{What: "task"}, 404, "not_found", "internal_error", canonical.CodeResourceNotFound, 0},
	{"conflict", &problem.ConflictError{Reason: "taken"}, 409, "conflict", "internal_error", canonical.CodeInvalidRequest, 0},
	{"query", &problem.QueryError{Reason: "no from"}, 400, "malformed_message", "internal_error", canonical.CodeInvalidRequest, 0},
	{"method", &problem.MethodError{Allow: "GET"}, 405, "method_not_allowed", "internal_error", canonical.CodeInvalidRequest, 0},
	{"media type", &problem.MediaTypeError{Want: []string{"a/b"}}, 415, "unsupported_media_type", "internal_error", canonical.CodeUnsupportedMedia, 0},
	{"task ended", &problem.TaskStateError{Reason: "the task has ended"}, 409, "conflict", "semantic_loss", canonical.CodeUnsupportedOp, 0},
	{"in progress", &problem.InProgressError{}, 409, "in_progress", "internal_error", canonical.CodeUnavailable, time.Second},
	{"in progress, longer", &problem.InProgressError{RetryAfter: time.Minute}, 409, "in_progress", "internal_error", canonical.CodeUnavailable, time.Minute},
	{"approval pending", &problem.ApprovalError{ID: "1", State: "pending"}, 409, "approval_required", "policy_violation", canonical.CodeUnavailable, 5 * time.Second},
	{"paused", &problem.LevelError{Workflow: "w", Reason: "why"}, 409, "paused", "policy_violation", canonical.CodeUnavailable, 5 * time.Second},
	{"held for good", &problem.LevelError{Workflow: "w", Stopped: true}, 403, "stopped", "policy_violation", canonical.CodeForbidden, 0},
	{"approval denied", &problem.ApprovalError{ID: "1", State: "denied"}, 403, "approval_refused", "policy_violation", canonical.CodeForbidden, 0},
	{"approval in another state", &hitl.StateError{State: hitl.Denied, Kind: hitl.Grant}, 409, "conflict", "internal_error", canonical.CodeInvalidRequest, 0},
	{"decision refused", &hitl.RefusedError{Reason: "its time is over"}, 403, "forbidden", "internal_error", canonical.CodeForbidden, 0},
	{"recording", &problem.RecordingError{Err: errors.New("disk")}, 503, "unavailable", "internal_error", canonical.CodeUnavailable, time.Second},
	{"unauthenticated", &problem.UnauthenticatedError{}, 401, "unauthenticated", "internal_error", canonical.CodeUnauthenticated, 0},
	{"identity", &problem.IdentityError{Reason: "expired"}, 400, "identity_invalid", "internal_error", canonical.CodeUnauthenticated, 0},
	{"draining", &problem.DrainingError{}, 503, "draining", "internal_error", canonical.CodeUnavailable, 5 * time.Second},
	{"circuit open", &problem.CircuitOpenError{RetryAfter: 30 * time.Second}, 503, "circuit_open", "internal_error", canonical.CodeUnavailable, 30 * time.Second},
	{"circuit open, no time", &problem.CircuitOpenError{}, 503, "circuit_open", "internal_error", canonical.CodeUnavailable, time.Second},
	{"stopped", &problem.StoppedError{}, 503, "draining", "internal_error", canonical.CodeUnavailable, 5 * time.Second},
	{"retired", &problem.RetiredError{}, 410, "retired", "internal_error", canonical.CodeUnavailable, 0},
	{"ECT invalid", &ect.InvalidError{Reason: ect.ReasonReplay}, 403, "ect_invalid", "internal_error", canonical.CodeForbidden, 0},
	{"ECT malformed", &ect.MalformedError{Reason: "no"}, 400, "ect_invalid", "internal_error", canonical.CodeForbidden, 0},
	{"ECT too large", &ect.TooLargeError{What: "token", Limit: 1}, 431, "ect_invalid", "internal_error", canonical.CodeForbidden, 0},
	{"ancestors too large", &problem.AncestorsTooLargeError{Size: 2, Limit: 1}, 431, "ect_invalid", "internal_error", canonical.CodeForbidden, 0},
	{"ECT conflict", &ect.ConflictError{ID: "x"}, 403, "ect_invalid", "internal_error", canonical.CodeForbidden, 0},
	{"ECT repeated", &ect.ReplayedError{}, 409, "in_progress", "internal_error", canonical.CodeUnavailable, time.Second},
	{"ECT required", fmt.Errorf("here: %w", ect.ErrRequired), 403, "ect_required", "internal_error", canonical.CodeForbidden, 0},
	{"forbidden", &policy.Forbidden{Constraint: policy.ConstraintCallers}, 403, "forbidden", "internal_error", canonical.CodeForbidden, 0},
	{"denied", &policy.Denied{Constraint: policy.ConstraintHops}, 403, "policy_violation", "policy_violation", canonical.CodeForbidden, 0},
	{"level", &policy.LevelError{Required: ect.L3}, 403, "policy_violation", "policy_violation", canonical.CodeForbidden, 0},
	{"policy document", &policy.DocumentError{Reason: "no"}, 403, "policy_violation", "policy_violation", canonical.CodeForbidden, 0},
	{"loss of content", &policy.SemanticLossError{Codes: []string{"L33"}}, 422, "semantic_loss", "semantic_loss", canonical.CodeBadParams, 0},
	{"loss of an operation", &policy.SemanticLossError{Codes: []string{"L33", "L36"}}, 422, "semantic_loss", "semantic_loss", canonical.CodeUnsupportedOp, 0},
	{"rate", &limit.ExceededError{Scope: limit.ScopeIdentity, RetryAfter: 3 * time.Second}, 429, "rate_limited", "internal_error", canonical.CodeRateLimited, 3 * time.Second},
	{"malformed", &translators.MalformedError{Path: "/a", Reason: "no"}, 400, "malformed_message", "internal_error", canonical.CodeInvalidRequest, 0},
	{"malformed at the top", &translators.MalformedError{Reason: "no"}, 400, "malformed_message", "internal_error", canonical.CodeInvalidRequest, 0},
	{"not JSON", &translators.MalformedError{Reason: "no", Syntax: true}, 400, "malformed_message", "internal_error", canonical.CodeParse, 0},
	{"too large", &translators.MalformedError{Reason: "no", Large: true}, 413, "too_large", "internal_error", canonical.CodeInvalidRequest, 0},
	{"malformed sentinel", translators.ErrMalformed, 400, "malformed_message", "internal_error", canonical.CodeInvalidRequest, 0},
	{"too large sentinel", translators.ErrTooLarge, 413, "too_large", "internal_error", canonical.CodeInvalidRequest, 0},
	{"body too large", fmt.Errorf("read: %w", &http.MaxBytesError{Limit: 1}), 413, "too_large", "internal_error", canonical.CodeInvalidRequest, 0},
	{"unreachable", &transport.UnreachableError{Agent: "x"}, 502, "upstream_unreachable", "internal_error", canonical.CodeUnavailable, 0},
	{"agent too slow", &transport.TimeoutError{Agent: "x"}, 504, "timeout", "timeout", canonical.CodeTimeout, 0},
	{"bad reply", &transport.BadReplyError{Agent: "x"}, 502, "bad_upstream_reply", "internal_error", canonical.CodeBadUpstream, 0},
	{"next gateway: hops", &transport.RefusedError{Agent: "x", Status: 403, Code: "policy_violation", Detail: "hops"}, 404, "no_translation_path", "policy_violation", canonical.CodeUnsupportedOp, 0},
	{"next gateway: busy", &transport.RefusedError{Agent: "x", Status: 429, Code: "rate_limited", RetryAfter: time.Minute}, 429, "rate_limited", "internal_error", canonical.CodeRateLimited, time.Minute},
	{"next gateway: its trouble", &transport.RefusedError{Agent: "x", Status: 500, Code: "internal_error", Detail: "secret"}, 404, "no_translation_path", "internal_error", canonical.CodeUnsupportedOp, 0},
	{"next gateway: ours", &transport.RefusedError{Agent: "x", Status: 403, Code: "forbidden", Detail: "secret"}, 404, "no_translation_path", "internal_error", canonical.CodeUnsupportedOp, 0},
	{"egress, evident", &egress.DeniedError{Host: "10.0.0.1", Reason: egress.ReasonPrivate, Evident: true}, 403, "policy_violation", "policy_violation", canonical.CodeForbidden, 0},
	{"egress", &egress.DeniedError{Host: "10.0.0.1", Reason: "private"}, 403, "policy_violation", "policy_violation", canonical.CodeForbidden, 0},
	{"agent entry", &directory.InvalidAgentError{Name: "x", Reason: "no"}, 400, "malformed_message", "internal_error", canonical.CodeInvalidRequest, 0},
	{"configured agent", &directory.ConfiguredError{Name: "x"}, 409, "conflict", "internal_error", canonical.CodeInvalidRequest, 0},
	{"agent changed meanwhile", &directory.RaceError{Name: "x"}, 409, "conflict", "internal_error", canonical.CodeInvalidRequest, 0},
	{"own share full", fmt.Errorf("ect: %w", &state.FullError{What: "x", Own: true}), 429, "rate_limited", "internal_error", canonical.CodeRateLimited, time.Second},
	{"state full", fmt.Errorf("ect: %w", &state.FullError{What: "x", RetryAfter: 2 * time.Second}), 503, "unavailable", "internal_error", canonical.CodeUnavailable, 2 * time.Second},
	{"own share full", fmt.Errorf("ect: %w", &state.FullError{What: "x", Own: true, RetryAfter: 2 * time.Second}), 429, "rate_limited", "internal_error", canonical.CodeRateLimited, 2 * time.Second},
	{"no space to record", &problem.RecordingError{Err: &state.FullError{What: "x"}}, 503, "unavailable", "internal_error", canonical.CodeUnavailable, time.Second},
	{"own share full, at a record", &problem.RecordingError{Err: fmt.Errorf("x: %w", &state.FullError{Own: true})}, 429, "rate_limited", "internal_error", canonical.CodeRateLimited, time.Second},
	{"replay not excluded", &state.UnavailableError{Lacks: state.LacksReplay, RetryAfter: 29 * time.Second}, 503, "unavailable", "internal_error", canonical.CodeUnavailable, 29 * time.Second},
	{"shared state away", &problem.RecordingError{Err: &state.UnavailableError{Lacks: state.LacksShared, RetryAfter: 2 * time.Second}}, 503, "unavailable", "internal_error", canonical.CodeUnavailable, 2 * time.Second},
	{"deadline", fmt.Errorf("dial: %w", context.DeadlineExceeded), 504, "timeout", "timeout", canonical.CodeTimeout, 0},
	{"socket deadline", &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, 504, "timeout", "timeout", canonical.CodeTimeout, 0},
	{"caller gone", context.Canceled, 504, "timeout", "timeout", canonical.CodeTimeout, 0},
	{"codec: bad params", &canonical.Error{Code: canonical.CodeBadParams}, 400, "malformed_message", "internal_error", canonical.CodeBadParams, 0},
	{"codec: no method", &canonical.Error{Code: canonical.CodeNoMethod}, 422, "method_not_found", "semantic_loss", canonical.CodeNoMethod, 0},
	{"codec: version", &canonical.Error{Code: canonical.CodeUnsupportedVersion}, 404, "no_translation_path", "internal_error", canonical.CodeUnsupportedVersion, 0},
	{"codec: other", &canonical.Error{Code: canonical.CodeOther, Message: "secret"}, 500, "internal_error", "internal_error", canonical.CodeOther, 0},
	{"codec: new code", &canonical.Error{Code: "brand new", Message: "secret"}, 500, "internal_error", "internal_error", "brand new", 0},
}

// Whoever is refused because a store is away is told which guarantee that costs it.
// TestOnRecord_NamesNoCaller: what others may read of a refusal has no id in it.
func TestOnRecord_NamesNoCaller(t *testing.T) {
	t.Parallel()
	const bob = "spiffe://example.test/bob"
	refused := &policy.Forbidden{Caller: bob, Constraint: policy.ConstraintCallers}
	for _, err := range []error{refused, fmt.Errorf("here: %w", refused)} {
		if shown := problem.From(err).Detail; !strings.Contains(shown, bob) {
			t.Errorf("the caller reads %q", shown)
		}
		if got := problem.OnRecord(err); got == "" || strings.Contains(got, bob) || !strings.Contains(got, "may not call this agent") {
			t.Errorf("on record: %q", got)
		}
	}
	if got := problem.OnRecord(&problem.ConflictError{Reason: "taken"}); got != "taken" {
		t.Errorf("of another error: %q", got)
	}
}

func TestFrom_NamesTheGuaranteeThatIsLacking(t *testing.T) {
	t.Parallel()
	for _, lacks := range []state.Guarantee{state.LacksRecording, state.LacksReading, state.LacksReplay, state.LacksShared, state.LacksCheckpoint} {
		away := &state.UnavailableError{Err: errors.New("secret"), Lacks: lacks, RetryAfter: 1500 * time.Millisecond}
		for _, err := range []error{away, fmt.Errorf("ect: %w", away), &problem.RecordingError{Err: fmt.Errorf("ect: %w", away)}} {
			want := string(lacks) + "; try again in 2 s"
			if p := problem.From(err); p.Detail != want {
				t.Errorf("%T: %q, want %q", err, p.Detail, want)
			}
		}
	}
}

func TestFrom_Table(t *testing.T) {
	t.Parallel()
	for _, tc := range golden {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := problem.From(tc.err)
			if p.Status != tc.status || p.Code != tc.code || p.ECTError != tc.ect || p.Native != tc.native || p.RetryAfter != tc.retry {
				t.Errorf("got %d %s %s %s %v, want %d %s %s %s %v", p.Status, p.Code, p.ECTError, p.Native, p.RetryAfter,
					tc.status, tc.code, tc.ect, tc.native, tc.retry)
			}
			if p.Title == "" || p.Detail == "" {
				t.Errorf("title %q, detail %q", p.Title, p.Detail)
			}
			if strings.Contains(p.Title+p.Detail, "secret") {
				t.Errorf("an unknown error shows its text: %q", p.Detail)
			}
			if !slices.Contains(problem.Codes(), p.Code) {
				t.Errorf("%s is not among the codes", p.Code)
			}
			if wrapped := problem.From(fmt.Errorf("a: %w", errors.Join(errors.New("b"), tc.err))); tc.err != nil && !cmp.Equal(wrapped, p) {
				t.Errorf("wrapped it is something else: %+v", wrapped)
			}
		})
	}
}

// Every code can happen.
func TestCodes_AllAreUsed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, tc := range golden {
		used[tc.code] = true
	}
	for _, code := range problem.Codes() {
		if !used[code] {
			t.Errorf("no error becomes %s", code)
		}
	}
}

// Whoever wraps an error in a type of its own has said what it means.
func TestFrom_OutermostErrorDecides(t *testing.T) {
	t.Parallel()
	inner := &ect.InvalidError{Reason: ect.ReasonReplay}
	if p := problem.From(&problem.RecordingError{Err: inner}); p.Status != 503 {
		t.Errorf("recording over evidence: %d", p.Status)
	}
	unreachable := &transport.UnreachableError{Agent: "x", Err: context.DeadlineExceeded}
	if p := problem.From(unreachable); p.Code != "upstream_unreachable" || !p.UpstreamFault {
		t.Errorf("unreachable over a deadline: %+v", p)
	}
}

// Only the agent's own failures count against it.
func TestUpstreamFault_OnlyFailuresOfTheAgent(t *testing.T) {
	t.Parallel()
	faults := []string{"next gateway: its trouble", "unreachable", "agent too slow", "bad reply"}
	for _, tc := range golden {
		if got := problem.From(tc.err).UpstreamFault; got != slices.Contains(faults, tc.name) {
			t.Errorf("%s: %v", tc.name, got)
		}
	}
}

func TestDetail_BoundedAndClean(t *testing.T) {
	t.Parallel()
	p := problem.From(&problem.UnknownAgentError{Agent: "x\r\nInjected: 1\u202e\x00" + strings.Repeat("é", 5000)})
	if len(p.Detail) > 512 || strings.ContainsAny(p.Detail, "\r\n\x00\u202e") || !strings.HasSuffix(p.Detail, "é") {
		t.Errorf("%d bytes: %.80q", len(p.Detail), p.Detail)
	}
}

func TestStoredError_ProblemIsRepeated(t *testing.T) {
	t.Parallel()
	for _, tc := range golden {
		want := problem.From(tc.err)
		blob, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back problem.Problem
		if err := json.Unmarshal(blob, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, problem.From(&problem.StoredError{Problem: back})); diff != "" {
			t.Errorf("%s: %s", tc.name, diff)
		}
		if got := problem.Native(&problem.StoredError{Problem: back}).Code; got != tc.native {
			t.Errorf("%s: native %s, want %s", tc.name, got, tc.native)
		}
	}
}

func TestReading_BodyErrors(t *testing.T) {
	t.Parallel()
	body := http.MaxBytesReader(httptest.NewRecorder(), io.NopCloser(strings.NewReader("too long")), 3)
	_, tooLarge := io.ReadAll(body)
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"too large": {tooLarge, "too_large"},
		"too slow":  {&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "timeout"},
		"cut off":   {io.ErrUnexpectedEOF, "malformed_message"},
	} {
		if got := problem.From(problem.Reading(tc.err)).Code; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
	if err := problem.Reading(nil); err != nil {
		t.Errorf("nil: %v", err)
	}
}

// TestCircuitOpenError_SaysForHowLong: the text says for how long the agent is not called.
func TestCircuitOpenError_SaysForHowLong(t *testing.T) {
	t.Parallel()
	if got := (&problem.CircuitOpenError{RetryAfter: 30 * time.Second}).Error(); got != "too many calls to this agent have failed, and it is not called for 30s: try again then" {
		t.Error(got)
	}
}
