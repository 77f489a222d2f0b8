package approval

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/hitl"
)

// The kinds of entries. Stored data names them, so they never change.
const (
	KindApproval = "approval" // an approval
	KindWaiting  = "waiting"  // an approval that is not over, and when to look at it
	KindCall     = "gated"    // the latest approval of one exact call
	KindText     = "shown"    // what approvers are shown of a call
)

// Kinds lists them: they decide something once, so the store has a reserve for them.
func Kinds() []string { return []string{KindApproval, KindWaiting, KindCall, KindText} }

const (
	life        = 31 * 24 * time.Hour // that an approval is kept after its last change (R23)
	settleAfter = 10 * time.Second    // after which another replica goes on with what one began
	interval    = 5 * time.Second     // between two looks at what waits
	maxRaces    = 8                   // how often an approval is looked for anew because others were first

	// OfOneCaller bounds the approvals of one caller that are not over.
	OfOneCaller = 100
	// OfAll bounds the approvals of all callers that are not over.
	OfAll = 10_000
)

// Entries keeps what replicas share.
type Entries interface {
	record.Entries
	Delete(ctx context.Context, key state.EntryKey) error
}

// Tasks are those of callers that wait for an approval.
type Tasks interface {
	// Release consumes a granted approval and sends its call; what comes of that the task says. Its error is an
	// *[problem.UnsentError] where that will never be possible.
	Release(ctx context.Context, a hitl.Approval) error
	// End ends the task of an approval that is over, with the reason. A task that does not wait for it stays as it is,
	// unless this replica has consumed the approval and could not send the call.
	End(ctx context.Context, a hitl.Approval, why string) error
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Entries  Entries
	Evidence attest.Statements
	Tasks    Tasks
	Notices  Notices
	Alive    func(ctx context.Context, replica string) bool        // whether a replica of the gateway has a heartbeat
	Go       func(holder string, work func(context.Context)) error // works in the background
	Now      func() time.Time
	NewID    func() string
	Logger   *slog.Logger
	Replica  string
}

// Service keeps approvals. It is safe for concurrent use.
type Service struct {
	deps    Deps
	records *record.Machine[hitl.Approval]
	agenda  *agenda
}

// New makes a service that does nothing by itself until Watch.
func New(deps Deps) (*Service, error) {
	if deps.Tasks == nil || deps.Notices.Count == nil || deps.Notices.Announce == nil || deps.Notices.Registered == nil || deps.Notices.Find == nil || deps.Alive == nil || deps.Go == nil || deps.NewID == nil || deps.Replica == "" {
		return nil, errors.New("approval: incomplete Deps: every field is required")
	}
	records, err := record.New(record.Kind[hitl.Approval]{
		Encode: func(a hitl.Approval) ([]byte, error) { return json.Marshal(a) },
		Decode: decode,
		Life:   life,
		Token:  func(a hitl.Approval) string { return a.Token },
		Sealed: sealed,
	}, record.Deps{Entries: deps.Entries, Evidence: func() record.Evidence { return deps.Evidence }, Now: deps.Now, Logger: deps.Logger})
	return &Service{deps, records, newAgenda(deps)}, err
}

func decode(text []byte) (a hitl.Approval, err error) {
	if err = json.Unmarshal(text, &a); err == nil && a.Form != hitl.Form {
		err = errForm
	}
	return a, err
}

var errForm = errors.New("approval: it was written by another version of the gateway")

// sealed adds what the gateway signed of the last change.
func sealed(a hitl.Approval, compact string) hitl.Approval {
	a.Token = compact
	claims, err := ect.ParseRecorded(compact)
	if n := len(a.Decisions); err == nil && n > 0 && a.Decisions[n-1].Token == "" && a.Decisions[n-1].At.Equal(a.Changed) {
		decisions := append([]hitl.Decision(nil), a.Decisions...)
		decisions[n-1].Token = claims.ID
		a.Decisions = decisions
	}
	return a
}

func keyOf(id, owner string) state.EntryKey {
	return state.EntryKey{Kind: KindApproval, ID: id, Owner: owner}
}

// textKey names the text of an approval by its hash: an attempt to write the approval that failed may have left another
// text.
func textKey(a hitl.Approval) state.EntryKey {
	return state.EntryKey{Kind: KindText, ID: a.ID + " " + a.Shown, Owner: a.Call.Owner()}
}

func notFound() error { return &problem.NotFoundError{What: "approval"} }

// read is an approval as the store has it. Its errors are those of the store, and *[problem.NotFoundError].
func (s *Service) read(ctx context.Context, id string) (hitl.Approval, error) {
	if len(id) > maxID || id == "" {
		return hitl.Approval{}, notFound()
	}
	found, err := s.records.Read(ctx, keyOf(id, ""))
	switch {
	case err != nil:
		return found.Value, attest.Recording(err)
	case found.Revision == 0:
		return found.Value, notFound()
	}
	return found.Value, nil
}

// maxID bounds the id of an approval, in bytes.
const maxID = 64

// Usage says how many approvals wait, and since when the oldest does; the zero time: none does.
func (s *Service) Usage() (count int, oldest time.Time) { return s.agenda.usage() }

// Show is an approval with the text that approvers are shown. Its errors are those of the store, and
// *[problem.NotFoundError].
func (s *Service) Show(ctx context.Context, id string) (View, error) {
	a, err := s.read(ctx, id)
	if err != nil {
		return View{}, err
	}
	view := View{Approval: a}
	if view.Callbacks, err = s.deps.Notices.Registered(ctx, a.Origin.Workflow); err != nil {
		return View{}, err
	}
	entry, found, err := s.deps.Entries.Get(ctx, textKey(a))
	if err != nil {
		return View{}, attest.Recording(err)
	}
	if found && ect.Hash(entry.Value) == a.Shown {
		view.Text = string(entry.Value)
	}
	return view, nil
}

// List is a page of the approvals. It looks at a hundred of them at most, so a page may be short although there
// are more: then it has a Next. Those that wait are found among those that are not over. Its errors are those of the
// store.
func (s *Service) List(ctx context.Context, q Query) (Page, error) {
	if q.Limit <= 0 || q.Limit > MaxPage {
		q.Limit = MaxPage
	}
	kind := KindApproval
	if q.State == hitl.Pending || q.State == hitl.Granted {
		kind = KindWaiting
	}
	entries, err := s.deps.Entries.List(ctx, kind, "", q.After, MaxPage)
	if err != nil {
		return Page{}, attest.Recording(err)
	}
	var page Page
	for _, entry := range entries {
		a, err := s.listed(ctx, entry)
		if err != nil {
			return Page{}, err
		}
		if a.ID != "" && (q.State == "" || a.State == q.State) {
			page.Approvals = append(page.Approvals, a)
		}
		if page.Next = entry.Key.ID; len(page.Approvals) == q.Limit {
			return page, nil
		}
	}
	if len(entries) < MaxPage {
		page.Next = ""
	}
	return page, nil
}

// listed is the approval of an entry that was listed; without an id: it is unreadable, or not written yet.
func (s *Service) listed(ctx context.Context, entry state.Entry) (hitl.Approval, error) {
	if entry.Key.Kind == KindApproval {
		if a, err := decode(entry.Value); err == nil {
			return a, nil
		}
		return hitl.Approval{}, nil
	}
	a, err := s.read(ctx, entry.Key.ID)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return hitl.Approval{}, nil
	}
	return a, err
}

// step makes an event one of the record, with what the gateway signs of it.
func step(e hitl.Event) record.Step[hitl.Approval] {
	return func(before record.Found[hitl.Approval]) (hitl.Approval, *attest.Statement, error) {
		if before.Revision == 0 {
			return before.Value, nil, notFound()
		}
		next, err := before.Value.Next(e)
		switch {
		case err != nil:
			return before.Value, nil, err
		case next.Term == before.Value.Term:
			return before.Value, nil, record.ErrUnchanged
		}
		return next, statement(next, e), nil
	}
}

// on applies an event to an approval. Its errors are those of [hitl.Approval.Next], of the store and of the
// evidence, *[problem.NotFoundError] and *[problem.ConflictError].
func (s *Service) on(ctx context.Context, id string, e hitl.Event) (hitl.Approval, error) {
	before, err := s.read(ctx, id)
	if err != nil {
		return before, err
	}
	a, changed, err := s.records.Decide(ctx, keyOf(id, before.Call.Owner()), step(e))
	if changed {
		s.deps.Notices.changed(ctx, a)
	}
	return a, recording(err)
}

// recording is an error of the store as one of recording; those of a decision stay as they are.
func recording(err error) error {
	if err == nil {
		return nil
	}
	_, state := errors.AsType[*hitl.StateError](err)
	_, refused := errors.AsType[*hitl.RefusedError](err)
	_, missing := errors.AsType[*problem.NotFoundError](err)
	_, conflict := errors.AsType[*problem.ConflictError](err)
	if state || refused || missing || conflict {
		return err
	}
	return attest.Recording(err)
}

// statement is what the gateway signs of a change: a decision that its approver did not sign, and an end of the
// time. Nil: the change has other evidence.
func statement(a hitl.Approval, e hitl.Event) *attest.Statement {
	act := ect.ActApprovalDenied
	switch e.Kind {
	case hitl.Grant, hitl.Proceed:
		act = ect.ActApprovalGranted
	case hitl.Deny, hitl.Expire:
	default:
		return nil
	}
	if e.Token != "" {
		return nil
	}
	ext := ect.Ext{}
	ext.SetString(ect.ExtApproval, a.ID)
	ext.SetString(ect.ExtApprovalState, string(a.State))
	ext.SetString(ect.ExtApprovalRules, a.Demand.Hash)
	ext.SetString(ect.ExtApprovalShown, a.Shown)
	ext.SetString(ect.ExtCallDigest, a.Call.Digest)
	ext.SetString(ect.ExtCaller, string(a.Call.Caller))
	if e.Approver.ID != "" {
		ext.SetString(ect.ExtApprover, string(e.Approver.ID))
	} else if e.Approver.Name != "" {
		ext.SetString(ect.ExtApprover, e.Approver.Name)
	}
	if e.Reason != "" {
		ext.SetString(ect.ExtReason, e.Reason)
	}
	st := &attest.Statement{
		Act: act, Lineage: attest.Lineage{Workflow: a.Origin.Workflow, Parents: []ect.ID{a.Origin.Gated}}, Input: a.Origin.Input, Ext: ext,
	}
	if a.Call.Address == "" {
		st.Audience = []string{string(a.Call.Caller)}
	}
	return st
}

// Decide takes the decision of an approver. The same decision once more changes nothing. Its errors are those
// of [hitl.Approval.Next], of the store and of the evidence, *[problem.NotFoundError], *[problem.QueryError] and *[problem.ConflictError].
func (s *Service) Decide(ctx context.Context, id string, d Decision) (hitl.Approval, error) {
	if len(d.Reason) > MaxReason || !utf8.ValidString(d.Reason) || strings.ContainsFunc(d.Reason, unicode.IsControl) {
		return hitl.Approval{}, &problem.QueryError{Reason: "the reason of a decision is a text of at most 512 bytes without control characters"}
	}
	if err := s.agenda.lookAgain(ctx, id, s.deps.Now().Add(settleAfter)); err != nil {
		return hitl.Approval{}, err
	}
	e := hitl.Event{
		Kind: hitl.Deny, At: s.deps.Now().UTC(), Approver: d.Approver, Roles: d.Roles, Reason: d.Reason, Shown: d.Shown, Token: d.Token,
	}
	if d.Grant {
		e.Kind = hitl.Grant
	}
	a, err := s.on(ctx, id, e)
	if err != nil {
		return a, err
	}
	s.follow(ctx, a)
	return a, nil
}

// DecideBy takes a signed decision about an approval, whose token was judged; false: it is about none. The token is
// bound to the gated message by its inp_hash, so it is about the text that is shown of that, unless it says that its
// approver was shown another one. Its errors are those of Decide.
func (s *Service) DecideBy(ctx context.Context, id string, token ect.Verified, who policy.Operator) (bool, error) {
	a, err := s.read(ctx, id)
	if _, missing := errors.AsType[*problem.NotFoundError](err); missing {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !slices.Equal(token.Parents(), []ect.ID{a.Origin.Gated}) || token.Workflow() != a.Origin.Workflow {
		return false, &hitl.RefusedError{Reason: "the decision is about another call"}
	}
	d := Decision{
		Grant: token.Act() == ect.ActApprovalGranted, Approver: hitl.Approver{ID: token.Issuer(), Name: who.Name}, Roles: who.RoleNames(),
		Shown: a.Shown, Token: token.ID(),
	}
	if shown, ok := token.Extension(ect.ExtApprovalShown); ok {
		d.Shown = shown
	}
	d.Reason, _ = token.Extension(ect.ExtReason)
	_, err = s.Decide(ctx, a.ID, d)
	return true, err
}

// Cancel ends an approval whose caller does not want it any more, or that cannot be released. One that is over
// stays as it is. Its errors are those of the store and *[problem.ConflictError].
func (s *Service) Cancel(ctx context.Context, id, why string) error {
	a, err := s.on(ctx, id, hitl.Event{Kind: hitl.Cancel, At: s.deps.Now().UTC(), Reason: why})
	_, over := errors.AsType[*hitl.StateError](err)
	_, missing := errors.AsType[*problem.NotFoundError](err)
	if over || missing {
		err = nil
	}
	if err == nil && a.State.Over() {
		s.agenda.drop(ctx, id)
	}
	return err
}

// Unwanted cancels the approval of a task that its caller has canceled.
func (s *Service) Unwanted(ctx context.Context, id string) {
	if err := s.Cancel(ctx, id, "its caller has canceled the call"); err != nil {
		s.deps.Logger.WarnContext(ctx, "an approval of a canceled call is still listed", slog.String("approval", id), slog.Any("error", err))
	}
}

// follow does what follows from a change, in the background: another replica does it a little later if this one
// cannot.
func (s *Service) follow(ctx context.Context, a hitl.Approval) {
	err := s.deps.Go(string(a.Call.Caller), func(ctx context.Context) {
		if err := s.settle(ctx, a); err != nil && ctx.Err() == nil {
			s.deps.Logger.WarnContext(ctx, "what follows from an approval is tried again", slog.String("approval", a.ID), slog.Any("error", err))
		}
	})
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "what follows from an approval is done later", slog.String("approval", a.ID), slog.Any("error", err))
	}
}
