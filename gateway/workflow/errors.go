package workflow

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
)

// Failure is an action of a workflow that failed.
type Failure struct {
	Workflow    string
	Action      []ect.ID          // the token of what failed: the request, else what its caller brought
	Code        string            // one of [problem.Codes]; empty: the agent says itself that its action failed
	Next        string            // code of a further gateway that refused; empty: it did not
	Severity    workflow.Severity // zero: that of the code
	Description string            // never quotes a message
	Upstream    []ect.ID          // of the errors that caused it, the nearest first
	Caller      ect.Identity
	Holder      string
	Owner       string // whose share of the store it takes
	Checkpoint  ect.ID // of the action; empty: it has none

	Cascade      bool // a rollback of what led to the failure begins
	Irreversible bool // the action cannot be undone, and what it did is not known
}

// Lasts reports whether something follows from a failure beside its error.
func (f Failure) Lasts() bool {
	severity, _ := f.Kind()
	return severity >= workflow.SeverityError && (f.Cascade || f.Irreversible && slices.Contains(unknown, f.Code))
}

// unknown are the codes of failures after which it is not known what an agent did.
var unknown = []string{problem.CodeTimeout, problem.CodeBadReply, problem.CodeInternal}

// kinds says how grave a failure is and of which type, by the code of its problem (ATD, Error Signaling).
var kinds = map[string]struct {
	severity workflow.Severity
	kind     workflow.ErrorType
}{
	"":                          {workflow.SeverityError, workflow.ErrorActionFailed},
	problem.CodeTimeout:         {workflow.SeverityError, workflow.ErrorTimeout},
	problem.CodeInternal:        {workflow.SeverityCritical, workflow.ErrorUnknown},
	problem.CodeUnavailable:     {workflow.SeverityError, workflow.ErrorResourceExhausted},
	problem.CodeBadReply:        {workflow.SeverityError, workflow.ErrorActionFailed},
	problem.CodeUnreachable:     {workflow.SeverityError, workflow.ErrorActionFailed},
	problem.CodeNoPath:          {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeSemanticLoss:    {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodePolicyViolation: {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeForbidden:       {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeECTRequired:     {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeECTInvalid:      {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeUnauthenticated: {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeIdentityInvalid: {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeUnknownAgent:    {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeNoMethod:        {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeNotAllowed:      {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeNotFound:        {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeMalformed:       {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeMediaType:       {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeRetired:         {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodeConflict:        {workflow.SeverityWarning, workflow.ErrorConstraintViolation},
	problem.CodeInProgress:      {workflow.SeverityInfo, workflow.ErrorConstraintViolation},
	problem.CodeTooLarge:        {workflow.SeverityError, workflow.ErrorResourceExhausted},
	problem.CodeRateLimited:     {workflow.SeverityWarning, workflow.ErrorResourceExhausted},
	problem.CodeDraining:        {workflow.SeverityWarning, workflow.ErrorResourceExhausted},
	problem.CodeCircuitOpen:     {workflow.SeverityWarning, workflow.ErrorUpstreamCascade},

	problem.CodeApprovalRequired: {workflow.SeverityInfo, workflow.ErrorConstraintViolation},
	problem.CodeApprovalRefused:  {workflow.SeverityError, workflow.ErrorConstraintViolation},
	problem.CodePaused:           {workflow.SeverityInfo, workflow.ErrorConstraintViolation},
	problem.CodeStopped:          {workflow.SeverityError, workflow.ErrorConstraintViolation},
}

// Kind is the severity and the type of a failure.
func (f Failure) Kind() (workflow.Severity, workflow.ErrorType) {
	k, known := kinds[f.Code]
	k.severity = cmp.Or(f.Severity, k.severity)
	switch {
	case !known:
		return workflow.SeverityError, workflow.ErrorUnknown
	case f.Next != "":
		return k.severity, workflow.ErrorUpstreamCascade
	}
	return k.severity, k.kind
}

// Fail signs the atd:error of a failure, whose parent is the failed action, and for a critical one an
// atd:escalate, whose parent is the error (ATD, Error Signaling and HITL Escalation; R22: without a checkpoint
// atd.checkpoint_id is null). What cannot be recorded is logged: the failure has evidence of its own.
func (s *Service) Fail(ctx context.Context, f Failure) {
	severity, kind := f.Kind()
	ext := ect.Ext{}
	ext.SetString(ect.ExtSeverity, severity.String())
	ext.SetString(ect.ExtErrorType, string(kind))
	if ext[ect.ExtCheckpointID] = json.RawMessage("null"); f.Checkpoint != "" {
		ext.SetString(ect.ExtCheckpointID, string(f.Checkpoint))
	}
	ext.SetText(ect.ExtATDDescription, f.Description)
	upstream := make([]string, 0, len(f.Upstream))
	for _, id := range f.Upstream {
		upstream = append(upstream, string(id))
	}
	ext.SetList(ect.ExtUpstreamErrors, upstream, 0)
	statement := attest.Statement{
		Act: ect.ActError, Lineage: attest.Lineage{Workflow: f.Workflow, Parents: f.Action}, Audience: []string{string(f.Caller)}, Ext: ext, Holder: f.Holder,
	}
	record := s.deps.Evidence.State
	if f.Lasts() {
		record = func(ctx context.Context, st attest.Statement) (string, error) { return s.deps.Follow(ctx, f, st) }
	}
	compact, err := record(ctx, statement)
	if _, full := errors.AsType[*state.FullError](err); full && f.Lasts() { // a caller does not hide its failures by filling its share
		s.deps.Logger.ErrorContext(ctx, "nothing follows from the error of a step of a workflow: its caller's share of the store is full",
			slog.String("wid", f.Workflow), slog.String("caller", string(f.Caller)))
		compact, err = s.deps.Evidence.State(ctx, statement)
	}
	if err == nil && severity.Escalates() {
		err = s.escalate(ctx, f, compact)
	}
	if err == nil {
		s.deps.Failed(ctx, f, compact)
	}
	if err != nil {
		s.deps.Logger.ErrorContext(ctx, "the error of a step of a workflow is not recorded", slog.String("wid", f.Workflow), slog.Any("error", err))
	}
}

// escalate calls a human to an error of a workflow.
func (s *Service) escalate(ctx context.Context, f Failure, compact string) error {
	ext := ect.Ext{}
	ext.SetString(ect.ExtEscalation, "critical")
	token, err := s.deps.Evidence.State(ctx, attest.Statement{
		Act: ect.ActEscalate, Lineage: attest.After(compact), Audience: []string{string(f.Caller)}, Ext: ext, Holder: f.Holder,
	})
	if err == nil {
		s.deps.Escalate(ctx, f.Workflow, token)
	}
	return err
}
