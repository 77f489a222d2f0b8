package workflow_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/problem"
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
		if _, known := pure.ParseSeverity(severity.String()); !known {
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
