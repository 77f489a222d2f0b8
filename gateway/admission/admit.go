package admission

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/rollback"
)

// Metrics counts what policy and the verifier refuse.
type Metrics interface {
	Denied(policy.Constraint)
	Verified(level ect.Level, result string)
	FalseError()
}

// Tasks knows the work of callers.
type Tasks interface {
	// Knows reports whether a caller's task at an agent is on record.
	Knows(ctx context.Context, owner, agent, task string) (bool, error)
}

// Gate says why new work is not taken. nil: it is.
type Gate interface {
	// Draining is about this gateway: *[problem.DrainingError], or *[problem.RetiredError] where it takes nothing at all.
	Draining() error
	// CircuitOpen is about a destination whose circuit breaker is open: *[problem.CircuitOpenError].
	CircuitOpen(caller ect.Identity, to destination.Destination) error
	// Ready is about a task of a workflow that has a start on record, whose parents are not done: a
	// *[problem.WaitingError] (R26).
	Ready(ctx context.Context, workflow string, parents []ect.ID, issuer ect.Identity) error
	// Level is about a message of a workflow that humans hold, if it begins work: *[problem.LevelError] (R23).
	Level(ctx context.Context, workflow, operation string, begins bool) error
	// Observe is told what a caller brought, which is on record: it may begin or complete a workflow.
	Observe(ctx context.Context, caller ect.Identity, tokens []ect.Verified) error
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Registry     *translators.Registry
	Directory    *directory.Directory
	Destinations *destination.Resolver
	Network      *outbound.Network
	Attest       *attest.Service
	Verifier     *ect.Verifier
	Recorder     *ect.Recorder
	Dialects     *ect.Dialects
	Evidence     ect.Store
	Members      *membership.Register
	Answers      idempotency.Store
	Tasks        Tasks
	Metrics      Metrics
	Decides      func(ect.Identity) bool // whether an identity has the role of an approver
	Gate         Gate
	Self         ect.Identity
}

// Service admits messages. It is safe for concurrent use.
type Service struct{ Deps }

// New makes a service.
func New(deps Deps) (*Service, error) {
	if slices.Contains([]bool{
		deps.Registry == nil, deps.Directory == nil, deps.Destinations == nil, deps.Network == nil, deps.Attest == nil, deps.Verifier == nil,
		deps.Recorder == nil, deps.Dialects == nil, deps.Evidence == nil, deps.Members == nil, deps.Answers == nil, deps.Tasks == nil,
		deps.Metrics == nil, deps.Decides == nil, deps.Gate == nil, deps.Self == "",
	}, true) {
		return nil, errors.New("admission: incomplete Deps: every field is required")
	}
	return &Service{deps}, nil
}

// Rules are what the operator decides about admission.
type Rules struct {
	Constraints policy.Constraints
	Gateways    []ect.Identity        // peers that may carry the evidence of others (R2)
	RequireECT  bool                  // no message without evidence at native endpoints either (R3)
	ECTInBody   map[ect.Identity]bool // peers whose tokens are in the body too, where their protocol has a place (R5)
}

// IsGateway reports whether an identity may carry the evidence of others (R2).
func (r Rules) IsGateway(id ect.Identity) bool { return policy.Listed(r.Gateways, id) }

// Embeds reports whether a peer has its tokens in the body of messages of this form, too.
func (r Rules) Embeds(peer ect.Identity, codec translators.Translator, form string) bool {
	if peer == "" || !r.ECTInBody[peer] {
		return false
	}
	bearer, ok := codec.(translators.EvidencePlacer)
	return ok && len(bearer.Bears(translators.Wire{Form: form})) > 0
}

// Admitted is a message that is let in; with an error, how far it came. It does not change.
type Admitted struct {
	Call       transport.Call // without the tokens in its body
	Source     translators.Translator
	Features   *translators.Features // of Source
	Holder     string                // in whose share its records count, a key of policy/limit
	Input      string                // hash of the message as it came; empty: it did not come to policy
	Evidence   Evidence
	To         destination.Destination
	Permit     policy.Permit
	Message    *canonical.Message // what it says
	WireID     json.RawMessage    // the caller's own id for its request
	Recorded   bool               // what came with it is on record
	Used       []ect.Verified     // the sources that it used up: the answer is kept for their repetition
	ByRole     bool               // only the role of an approver lets its caller in
	Membership bool               // its caller belonged to the workflow before

	LeavesEvidence    bool // a failure of it is signed, since it came to policy
	OneOfManyRefusals bool // it is counted: samples of such refusals are signed, and not each of them
}

// Foreign reports whether evidence of a failure is to be kept out of the workflow that the message
// names: nothing of the message is on record, and its caller did not belong to the workflow (R14).
func (a Admitted) Foreign() bool {
	_, ids := a.Evidence.Origins()
	return (!a.Permit.Valid() || !a.Recorded) && len(ids) > 0 && !a.Membership
}

// Owner names the owner of a caller's work: callers without an identity differ by address.
func Owner(caller identity.Caller, address string) string {
	if caller.Anonymous {
		return string(caller.ID) + "@" + address
	}
	return string(caller.ID)
}

// admitting is a message on its way to be admitted.
type admitting struct {
	*Service
	Admitted

	rules   Rules
	filed   []membership.Filed // tokens that are recorded when the message is permitted
	message *canonical.Message
	unread  error
	read    bool // message and unread are known
}

// Result is what comes of a message: it is admitted, or it repeats one that was answered.
type Result struct {
	Admitted

	Repeated bool
	Answer   transport.Answer // of the first time
}

// Admit takes a message with a Pass through the steps 4 to 7. Its errors are those that
// package problem lists for these steps; with one, the result says how far the message came.
func (s *Service) Admit(ctx context.Context, call transport.Call, rules Rules) (Result, error) {
	m := &admitting{Service: s, rules: rules, Admitted: Admitted{Call: call}}
	m.Holder, _ = limit.KeyOf(call.Caller, call.Address)
	if !call.Pass.Valid() {
		return Result{Admitted: m.Admitted}, limit.ErrNoPass
	}
	err := firstRefusal(ctx,
		m.findProtocols, // step 4: a protocol or a version that is not spoken here
		m.takeTokens,    // tokens in the body that cannot be read, or are not those of the header
		m.verify,        // step 4a: tokens that are not valid, or not the caller's to use
		m.reach,         // step 4b: it refuses nothing; permit decides who learns what it found
		m.permit,        // step 5: what policy does not allow; an unknown agent
		m.refuseNewWork, // new work at a gateway that drains
		m.leaveAlone,    // new work for an agent whose circuit breaker is open
		func(ctx context.Context) error { return judgeWorkflow(ctx, m) }, // new work of a workflow that humans hold
		func(ctx context.Context) error { return judgeErrors(ctx, m) },   // an error that is not its issuer's business
		m.judgeTasks, // a task that breaks a rule of its workflow's graph, or whose parents are not done
	)
	if err != nil {
		return Result{Admitted: m.Admitted}, err
	}
	answer, repeated, err := m.claim(ctx) // step 5a: tokens that were used for another message
	if !repeated && err == nil {
		err = firstRefusal(ctx, m.decode, m.passGate) // step 7: the form; step 6: an agent that drains
	}
	return Result{m.Admitted, repeated, answer}, err
}

// firstRefusal takes steps in their order until one of them refuses the message.
func firstRefusal(ctx context.Context, steps ...func(context.Context) error) error {
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Resume permits work that was let in when it began, on behalf of a caller who is not there.
// Its errors are those of step 5.
func (s *Service) Resume(ctx context.Context, call transport.Call, message *canonical.Message, rules Rules) (Admitted, error) {
	rules.RequireECT, rules.Constraints.MinLevel = false, 0 // what it brought was judged then
	m := &admitting{Service: s, rules: rules, Admitted: Admitted{Call: call, Message: message}}
	m.Holder, _ = limit.KeyOf(call.Caller, call.Address)
	if err := m.findProtocols(ctx); err != nil {
		return m.Admitted, err
	}
	m.To.Agent.Rules.RequireECT = false
	err := m.permit(ctx)
	return m.Admitted, err
}

// Errand permits a message of the gateway's own to an agent, in the agent's protocol. Its lists of callers are
// about others, and no evidence is demanded; the rest of policy holds. Its errors are those of step 5.
func (s *Service) Errand(ctx context.Context, call transport.Call, message *canonical.Message, rules Rules) (Admitted, error) {
	call.Caller = identity.Caller{Peer: ect.Peer{ID: s.Self}}
	rules.RequireECT, rules.Constraints.MinLevel = false, 0
	m := &admitting{Service: s, rules: rules, Admitted: Admitted{Call: call, Message: message}}
	m.Holder = limit.Identity(string(s.Self))
	if err := m.findProtocols(ctx); err != nil {
		return m.Admitted, err
	}
	m.To.Agent.Rules = policy.Rules{Open: true}
	err := m.permit(ctx)
	return m.Admitted, err
}

// findProtocols finds both codecs, and the destination as far as it is known. permit refuses an
// unknown agent: a caller that policy refuses must not learn which agents exist.
func (m *admitting) findProtocols(context.Context) error {
	source, ok := m.Registry.Translator(m.Call.Wire.Binding)
	if !ok {
		return &problem.NoPathError{From: string(m.Call.Wire.Binding), To: string(m.Call.To)}
	}
	m.Source, m.Features = source, m.Registry.Features(m.Call.Wire.Binding)
	if m.Call.Wire.Form == rollback.Name {
		m.Source = rollback.Over(source)
		m.Features = translators.FeaturesOf(m.Source)
	}
	if m.Call.Wire.Hasher == nil {
		m.Call.Wire.Hasher = translators.HasherOf(m.Source)
	}
	var err error
	m.To, err = m.Destinations.Find(m.query())
	return err
}

// takeTokens takes a caller's tokens out of its message. Tokens in the header must be the same.
func (m *admitting) takeTokens(context.Context) error {
	if !m.rules.Embeds(m.Call.Caller.ID, m.Source, m.Call.Wire.Form) {
		return nil
	}
	wire, tokens, err := attest.TakeTokens(m.Source, m.Call.Wire, m.Call.Evidence)
	if err == nil && len(tokens) > 0 {
		m.Call.Wire, m.Call.Evidence, m.Call.Message = wire, tokens, nil
	}
	return err
}

// reach is step 4b: the agent behind documents, successors and other gateways.
func (m *admitting) reach(ctx context.Context) error {
	m.To = m.Destinations.Reach(ctx, m.query(), m.To)
	return nil
}

// query is for whom the message asks.
func (m *admitting) query() destination.Query {
	return destination.Query{
		Caller: m.Call.Caller, Native: m.Call.EntryPoint.Native(), From: m.Source.Info().Binding, Agent: m.Call.Agent, To: m.Call.To,
		Version: m.Call.ToVersion, Attested: len(m.Evidence.Sources) > 0, Path: m.Evidence.Path,
	}
}
