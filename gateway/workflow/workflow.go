package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/workflow"
	"github.com/aepb/aepb-gateway/policy"
)

// KindWorkflow is what replicas share of a workflow, among the kinds of entries.
const KindWorkflow = "workflow"

const (
	// MaxDescription bounds the description of a workflow, in bytes.
	MaxDescription = 256
	// life is how long a record is kept after its last change: the longest that evidence of a step can be.
	life = 31 * 24 * time.Hour
	// absentFor is how long it is remembered that a workflow has no start.
	absentFor = time.Second
	pageSize  = 1000 // tokens of one read of the evidence store: at most 8 MB, usually 1 MB
)

// Record is what is decided about a workflow.
type Record struct {
	Term   uint64          `json:"term"`
	Start  ect.ID          `json:"start"`            // atd:workflow_start
	By     ect.Identity    `json:"by"`               // who began it
	At     time.Time       `json:"at"`               // iat of the start
	End    ect.ID          `json:"end,omitempty"`    // atd:workflow_complete; empty: it goes on
	Status workflow.Status `json:"status,omitempty"` // how it ended
	Plan   *Bound          `json:"plan,omitempty"`   // the descriptor that it follows (R27); nil: none
	Token  string          `json:"token,omitempty"`  // what this gateway signed of it last; empty: nothing
}

// Deps is what a Service is built from. Every field but Plans is required.
type Deps struct {
	Entries  record.Entries
	Evidence attest.Statements
	Store    ect.Store
	Belongs  func(ctx context.Context, workflow string, who ect.Identity) (bool, error) // R14
	Escalate func(ctx context.Context, workflow, compact string)                        // tells operators, and does not wait for that
	Failed   func(ctx context.Context, f Failure, compact string)                       // is told of each error that was signed
	// Follow signs and records the error of a failure from which something follows, so that it does follow from it.
	Follow func(ctx context.Context, f Failure, st attest.Statement) (compact string, err error)
	Plans  Plans // nil: there are no descriptors
	Now    func() time.Time
	Logger *slog.Logger
}

// Service knows workflows. It is safe for concurrent use.
type Service struct {
	deps     Deps
	records  *record.Machine[Record]
	readings readings
	plans    plans
	absent   moments // workflows that had no start on record a moment ago
	resting  moments // callers whose last reading cost much
}

// New makes a service.
func New(deps Deps) (*Service, error) {
	if deps.Store == nil || deps.Belongs == nil || deps.Escalate == nil || deps.Failed == nil || deps.Follow == nil {
		return nil, errors.New("workflow: incomplete Deps: every field is required")
	}
	records, err := record.New(record.Kind[Record]{
		Encode: func(r Record) ([]byte, error) { return json.Marshal(r) },
		Decode: func(text []byte) (r Record, err error) { return r, json.Unmarshal(text, &r) },
		Life:   life,
		Token:  func(r Record) string { return r.Token },
		Sealed: Record.sealed,
	}, record.Deps{Entries: deps.Entries, Evidence: func() record.Evidence { return deps.Evidence }, Now: deps.Now, Logger: deps.Logger})
	return &Service{deps: deps, records: records, readings: readings{all: map[string]*reading{}}}, err
}

// sealed adds what the gateway has signed: the start, or with a status the completion.
func (r Record) sealed(compact string) Record {
	r.Token = compact
	claims, err := ect.ParseRecorded(compact)
	if err != nil { // it was signed just now
		return r
	}
	if r.Status != "" {
		r.End = claims.ID
		return r
	}
	r.Start, r.At = claims.ID, time.Unix(claims.IssuedAt, 0).UTC()
	return r
}

func keyOf(wid string, owner ect.Identity) state.EntryKey {
	return state.EntryKey{Kind: KindWorkflow, Group: wid, ID: KindWorkflow, Owner: string(owner)}
}

// Plan is what a caller says of a workflow that it begins.
type Plan struct {
	Description string // at most MaxDescription bytes
	Steps       int    // that it expects; 0: not said, or as many as the descriptor has
	Descriptor  string // name of the descriptor that it follows; empty: none (R27)
	Version     int    // of the descriptor; 0: the newest
}

// Begin signs an atd:workflow_start for a caller, and returns the workflow and the token. Its errors are
// *[policy.Forbidden] for a caller without an identity, *[problem.QueryError], *[problem.NotFoundError] for a
// descriptor that is not stored, and those of [record.Machine.Decide].
func (s *Service) Begin(ctx context.Context, caller identity.Caller, holder string, plan Plan) (wid, compact string, err error) {
	switch {
	case caller.Anonymous || caller.ID == "":
		return "", "", &policy.Forbidden{Reason: "a workflow is of a caller with an identity: authenticate"}
	case len(plan.Description) > MaxDescription || !utf8.ValidString(plan.Description) || strings.ContainsFunc(plan.Description, control):
		return "", "", &problem.QueryError{Reason: "description is a text of at most 256 bytes, without control characters"}
	case plan.Steps < 0 || plan.Steps > maxSteps:
		return "", "", &problem.QueryError{Reason: "node_count is a number from 1 to 10000"}
	}
	ext := ect.Ext{}
	bound, err := s.follow(ctx, &plan, ext)
	if err != nil {
		return "", "", err
	}
	wid = string(ect.NewID())
	ext.SetString(ect.ExtWorkflowID, wid)
	ext.SetText(ect.ExtATDDescription, plan.Description)
	ext.SetString(ect.ExtCaller, string(caller.ID))
	if plan.Steps > 0 {
		ext.SetInt(ect.ExtNodeCount, int64(plan.Steps))
	}
	statement := &attest.Statement{
		Act: ect.ActWorkflowStart, Lineage: attest.Lineage{Workflow: wid}, Audience: []string{string(caller.ID)}, Ext: ext, Holder: holder,
	}
	r, _, err := s.records.Decide(ctx, keyOf(wid, caller.ID), func(record.Found[Record]) (Record, *attest.Statement, error) {
		return Record{Term: 1, By: caller.ID, Plan: bound}, statement, nil
	})
	return wid, r.Token, err
}

// maxSteps bounds atd.node_count: the tokens of a workflow whose states are known.
const maxSteps = 10_000

func control(c rune) bool { return c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 }

// Take begins a workflow with the caller's own atd:workflow_start, and returns the workflow. Its errors are
// those of [attest.Statements.Bring] and [Service.Observe]; a descriptor that is not stored is a *[problem.NotFoundError].
func (s *Service) Take(ctx context.Context, caller identity.Caller, holder, compact string) (wid string, err error) {
	claims, _, err := ect.ParseUnverified(compact)
	switch {
	case err != nil:
		return "", err
	case claims.Act != ect.ActWorkflowStart:
		return "", &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: claims.ID, Claim: "exec_act"}
	case len(claims.Parents) > 0:
		return "", &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: claims.ID, Claim: "par"}
	}
	if _, err := s.named(ctx, claims.ID, claims.Ext); err != nil { // before it is on record
		return "", err
	}
	v, err := s.deps.Evidence.Bring(ctx, compact, caller.ID, holder)
	if err != nil {
		return "", err
	}
	if v.Level() < ect.L2 {
		return "", &ect.InvalidError{Reason: ect.ReasonLevelTooLow, ID: v.ID()}
	}
	return v.Workflow(), s.Observe(ctx, caller.ID, []ect.Verified{v})
}

// Observe takes the boundaries of a workflow from tokens that came with a message and are on record: an
// atd:workflow_start that its issuer sent, and an atd:workflow_complete of who began it. Its errors are
// *[ect.InvalidError] for one that does not say its workflow (R27), *[problem.NotFoundError] for one that names a
// descriptor that is not stored, and those of the store.
func (s *Service) Observe(ctx context.Context, caller ect.Identity, tokens []ect.Verified) error {
	for _, v := range tokens {
		act := v.Act()
		if act != ect.ActWorkflowStart && act != ect.ActWorkflowComplete || v.Issuer() != caller || v.Level() < ect.L2 {
			continue
		}
		if wid, _ := v.Extension(ect.ExtWorkflowID); wid != v.Workflow() || wid == "" {
			return &ect.InvalidError{Reason: ect.ReasonInvalidClaim, ID: v.ID(), Claim: ect.ExtWorkflowID}
		}
		step := s.starts(ctx, v)
		if act == ect.ActWorkflowComplete {
			step = completes(v)
		}
		s.absent.remove(v.Workflow())
		if _, _, err := s.records.Decide(ctx, keyOf(v.Workflow(), caller), step); err != nil {
			return recording(err)
		}
	}
	return nil
}

// starts makes the record of a caller's own start, which is the root of its workflow. What is on record stays.
func (s *Service) starts(ctx context.Context, v ect.Verified) record.Step[Record] {
	return func(before record.Found[Record]) (Record, *attest.Statement, error) {
		if before.Revision != 0 || len(v.Parents()) > 0 {
			return before.Value, nil, record.ErrUnchanged
		}
		bound, err := s.named(ctx, v.ID(), v.Claims().Ext)
		return Record{Term: 1, Start: v.ID(), By: v.Issuer(), At: time.Unix(v.IssuedAt(), 0).UTC(), Plan: bound}, nil, err
	}
}

// completes adds the completion of who began the workflow, whose parent is the start. The first one counts.
func completes(v ect.Verified) record.Step[Record] {
	return func(before record.Found[Record]) (Record, *attest.Statement, error) {
		next := before.Value
		parents := v.Parents()
		status, _ := v.Extension(ect.ExtTerminalStatus)
		if next.End != "" || next.By != v.Issuer() || len(parents) != 1 || parents[0] != next.Start || !workflow.Status(status).Valid() {
			return next, nil, record.ErrUnchanged
		}
		next.Term, next.End, next.Status = next.Term+1, v.ID(), workflow.Status(status)
		return next, nil, nil
	}
}

// Started reports whether a workflow has a start on record. An empty workflow has none. That it has none is
// remembered for a second, so that conversations without workflows cost a shared store little.
func (s *Service) Started(ctx context.Context, wid string) (Record, bool, error) {
	now := s.deps.Now()
	if wid == "" || s.absent.has(wid, now) {
		return Record{}, false, nil
	}
	found, err := s.records.Read(ctx, keyOf(wid, ""))
	if err == nil && found.Revision == 0 {
		s.absent.add(wid, now.Add(absentFor))
	}
	return found.Value, found.Revision != 0, err
}

// Ready refuses a task of an issuer whose parents are not done, in a workflow that has a start: a
// *[problem.WaitingError] (ATD, Topological Order; R26). Its other errors are those of the stores.
func (s *Service) Ready(ctx context.Context, wid string, parents []ect.ID, issuer ect.Identity) error {
	if len(parents) == 0 {
		return nil
	}
	r, started, err := s.Started(ctx, wid)
	if err != nil {
		return attest.Recording(err)
	}
	if !started || len(parents) == 1 && parents[0] == r.Start {
		return nil
	}
	run, _, err := s.read(ctx, wid, issuer, true)
	if err != nil {
		return err
	}
	blocked, ok := errors.AsType[*workflow.NotReadyError](run.Ready(parents, issuer))
	if !ok {
		return nil
	}
	return &problem.WaitingError{Reason: blocked.Error()}
}

// Report says how far a workflow is, to its members; others find no such workflow. It need not have a start.
// Its errors are *[problem.NotFoundError], *[workflow.TooLargeError], *[problem.WaitingError] for a caller whose last
// readings cost much, and *[problem.RecordingError].
func (s *Service) Report(ctx context.Context, wid string, who ect.Identity) (workflow.Report, error) {
	if err := s.member(ctx, wid, who); err != nil {
		return workflow.Report{}, err
	}
	began := s.deps.Now()
	run, tokens, err := s.read(ctx, wid, who, false)
	if err != nil {
		return workflow.Report{}, err
	}
	report := run.Report(tokens, s.deps.Now())
	if bound := s.plans.bound(wid); bound != nil {
		report.Descriptor, report.Version = bound.Name, bound.Version
	}
	s.rest(who, len(tokens), began)
	return report, nil
}

func (s *Service) member(ctx context.Context, wid string, who ect.Identity) error {
	member, err := s.deps.Belongs(ctx, wid, who)
	switch {
	case err != nil:
		return &problem.RecordingError{Err: err}
	case !member:
		return &problem.NotFoundError{What: "workflow"}
	}
	return nil
}

// Complete signs the atd:workflow_complete of a workflow for who began it, and returns its status and the
// token. The status is what the tokens say. While steps run, only who began the workflow knows that they come
// to nothing more: declared says how it ended then, failed or partial; empty: a *[problem.WaitingError]. A
// workflow that is complete is returned as it is. Its other errors are *[problem.NotFoundError],
// *[problem.QueryError], *[policy.Forbidden], and those of [record.Machine.Decide].
func (s *Service) Complete(ctx context.Context, caller identity.Caller, holder, wid string, declared workflow.Status) (workflow.Status, string, error) {
	if err := s.member(ctx, wid, caller.ID); err != nil {
		return "", "", err
	}
	if declared != "" && declared != workflow.StatusFailed && declared != workflow.StatusPartial {
		return "", "", &problem.QueryError{Reason: "status is failed or partial, for a workflow whose steps still run; without it the steps decide"}
	}
	run, _, err := s.read(ctx, wid, caller.ID, false)
	if err != nil {
		return "", "", err
	}
	status, ended := run.Terminal()
	if !ended {
		status = declared
	}
	r, _, err := s.records.Decide(ctx, keyOf(wid, caller.ID), func(before record.Found[Record]) (Record, *attest.Statement, error) {
		next := before.Value
		switch {
		case before.Revision == 0:
			return next, nil, &problem.NotFoundError{What: "start of this workflow"}
		case next.By != caller.ID:
			return next, nil, &policy.Forbidden{Reason: "a workflow is completed by who began it"}
		case next.End != "":
			return next, nil, record.ErrUnchanged
		case status == "":
			return next, nil, &problem.WaitingError{Reason: "steps of the workflow still run: wait for them, or say that it has failed or is partial"}
		}
		next.Term, next.Status = next.Term+1, status
		ext := ect.Ext{}
		ext.SetString(ect.ExtWorkflowID, wid)
		ext.SetString(ect.ExtTerminalStatus, string(status))
		ext.SetInt(ect.ExtElapsed, max(int64(s.deps.Now().Sub(next.At)/time.Second), 0))
		ext.SetString(ect.ExtCaller, string(caller.ID))
		return next, &attest.Statement{
			Act: ect.ActWorkflowComplete, Lineage: attest.Lineage{Workflow: wid, Parents: []ect.ID{next.Start}},
			Audience: []string{string(caller.ID)}, Ext: ext, Holder: holder,
		}, nil
	})
	return r.Status, r.Token, err
}
