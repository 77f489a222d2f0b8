package workflow_test

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	pure "github.com/aepb/aepb-gateway/lifecycle/workflow"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFailure_KindOfEveryCode: each code of an error has a severity and a type of its own choosing, a further
// gateway's refusal is a cascade, and only trouble of this gateway is critical.
func TestFailure_KindOfEveryCode(t *testing.T) {
	t.Parallel()
	for _, code := range problem.Codes() {
		severity, kind := workflow.Failure{Code: code}.Kind()
		if severity.String() == "" {
			t.Errorf("%s has the severity %q", code, severity)
		}
		if kind == pure.ErrorUnknown && code != problem.CodeInternal {
			t.Errorf("%s has no type of its own: add it to the table", code)
		}
		if severity.Escalates() != (code == problem.CodeInternal) {
			t.Errorf("%s has the severity %s", code, severity)
		}
	}
	for code, want := range map[string]pure.ErrorType{
		"": pure.ErrorActionFailed, problem.CodeTimeout: pure.ErrorTimeout, problem.CodePolicyViolation: pure.ErrorConstraintViolation,
		problem.CodeRateLimited: pure.ErrorResourceExhausted, problem.CodeCircuitOpen: pure.ErrorUpstreamCascade,
	} {
		if _, kind := (workflow.Failure{Code: code}).Kind(); kind != want {
			t.Errorf("%q is %s, expected %s", code, kind, want)
		}
	}
	if _, kind := (workflow.Failure{Code: problem.CodeNoPath, Next: problem.CodeTimeout}).Kind(); kind != pure.ErrorUpstreamCascade {
		t.Errorf("a further gateway's refusal is %s", kind)
	}
}

// hugeStore is a store with workflows of many tokens, which counts its pages.
type hugeStore struct {
	ect.Store

	compact []string
	pages   int
}

func (s *hugeStore) Workflow(_ context.Context, wid, after string, limit int) (records []ect.Record, next string, err error) {
	s.pages++
	from, _ := strconv.Atoi(after)
	to := min(from+limit, len(s.compact))
	for _, compact := range s.compact[from:to] {
		records = append(records, ect.Record{Compact: compact, Workflow: wid})
	}
	if to < len(s.compact) {
		next = strconv.Itoa(to)
	}
	return records, next, nil
}

// TestAttack_LargeWorkflowsReadAgain: a member of many large workflows cannot have them read one after the other;
// a workflow that is read already costs no more, and other callers do not wait.
func TestAttack_LargeWorkflowsReadAgain(t *testing.T) {
	t.Parallel()
	now := time.Now()
	gateway := ecttest.NewParty(t, "spiffe://example.com/gateway")
	store := &hugeStore{}
	for range 1200 {
		store.compact = append(store.compact, ecttest.Mint(t, gateway, ecttest.Recipe{Claims: ect.Claims{Workflow: string(ect.NewID()), Act: "send_task"}}))
	}
	memory, err := state.New(state.Config{}, state.Deps{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	service, err := workflow.New(workflow.Deps{
		Entries: memory.Entries(), Store: store, Logger: slog.New(slog.DiscardHandler),
		Now:      func() time.Time { now = now.Add(10 * time.Millisecond); return now }, // each look at the clock costs time
		Belongs:  func(context.Context, string, ect.Identity) (bool, error) { return true, nil },
		Escalate: func(context.Context, string, string) {},
		Failed:   func(context.Context, workflow.Failure, string) {},
		Follow:   func(context.Context, workflow.Failure, attest.Statement) (string, error) { return "", nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := service.Report(t.Context(), "first", "member"); err != nil {
		t.Fatal(err)
	}
	pages := store.pages
	for _, wid := range []string{"second", "first"} {
		_, err := service.Report(t.Context(), wid, "member")
		if p := problem.From(err); p.Status != 409 || p.RetryAfter == 0 || store.pages != pages {
			t.Errorf("%s, at once: %v, and %d pages were read", wid, err, store.pages-pages)
		}
	}
	if _, err := service.Report(t.Context(), "second", "another"); err != nil {
		t.Errorf("another caller: %v", err)
	}
	now = now.Add(10 * time.Second)
	if _, err := service.Report(t.Context(), "second", "member"); err != nil {
		t.Errorf("later: %v", err)
	}
}
