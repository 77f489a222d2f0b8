package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/admission"
	"github.com/aepb/aepb-gateway/gateway/approval"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/checkpoint"
	"github.com/aepb/aepb-gateway/gateway/consensus"
	"github.com/aepb/aepb-gateway/gateway/conversation"
	"github.com/aepb/aepb-gateway/gateway/descriptor"
	"github.com/aepb/aepb-gateway/gateway/destination"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/idempotency"
	"github.com/aepb/aepb-gateway/gateway/lifecycle"
	"github.com/aepb/aepb-gateway/gateway/outbound"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/rollback"
	"github.com/aepb/aepb-gateway/gateway/routing"
	"github.com/aepb/aepb-gateway/gateway/sample"
	"github.com/aepb/aepb-gateway/gateway/schedule"
	"github.com/aepb/aepb-gateway/gateway/task"
	"github.com/aepb/aepb-gateway/gateway/task/execution"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/telemetry"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/webhook"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/gateway/workflow"
	"github.com/aepb/aepb-gateway/policy"
	agreed "github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/policy/hitl"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/membership"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DefaultTimeout is how long an agent may take to answer: as long as the SDK client for Python waits,
// the most patient of the official ones.
const DefaultTimeout = 5 * time.Minute

// DefaultAnswerWait is how long an agent's question waits if the settings do not say it.
const DefaultAnswerWait = 10 * time.Minute

// Settings is what an operator decides about the pipeline.
type Settings struct {
	Constraints policy.Constraints    // translation policy (AEPB, Translation Policy)
	Document    policy.Document       // narrows it for every message
	Gateways    []ect.Identity        // peers that may carry other agents' ECTs (R2)
	RequireECT  bool                  // no unattested message at native endpoints either (R3)
	ECTInBody   map[ect.Identity]bool // peers whose tokens are in the body too, where their protocol has a place (R5)
	Timeout     time.Duration         // zero: DefaultTimeout
	// TaskUnchanged is how long an agent may go on answering that a task is at work,
	// without any change, before it is not asked any more. Zero: no limit.
	TaskUnchanged time.Duration
	AnswerWait    time.Duration     // how long an agent that holds its stream or its task open waits for an answer; zero: [DefaultAnswerWait]
	Version       string            // of this gateway: aepb.agent_version
	Approvals     hitl.Rules        // which calls humans approve (R23)
	CheckpointTTL time.Duration     // how long a checkpoint is kept; zero: 24 hours
	Groups        []agreed.Group    // of agents that decide together
	Operators     []policy.Operator // all of them: a descriptor with a gate that none of them can open is refused
	Schedule      schedule.Rules    // which calls wait for their agents, and in which order

	rules admission.Rules // what of that package admission judges by
}

// Deps is what a Gateway is built from. Every field is required but Breakers, Lifecycle, Workers and AllWorkers.
type Deps struct {
	Registry  *translators.Registry
	Directory *directory.Directory
	Network   *outbound.Network
	Sender    outbound.Sender    // the chain that ends in Network
	Breakers  *breakers.Set      // are told what replies say; nil: there are none
	Lifecycle *lifecycle.Service // how agents and this gateway stand; nil: all are active
	Tokens
	Stores
	Limiter *limit.Limiter
	Metrics *telemetry.Metrics
	Logger  *slog.Logger
	Now     func() time.Time
	NewID   func() string // a fresh UUID
	// Operator is the operator of an identity, if there is one: who has the role of an approver decides what waits
	// for a human (R23). Nil: there are no operators.
	Operator func(ect.Identity) (policy.Operator, bool)
	// Escalate tells operators that a human is needed, and does not wait for that. Nil: the log alone says it.
	Escalate func(context.Context, breakers.Event)
	Shares
}

// Shares are what one caller may hold.
type Shares struct {
	// Budget opens a share of a caller's bytes in flight; nil: what executions hold is not booked.
	Budget     func(caller identity.Caller, address string) transport.Share
	Workers    int // tasks of one caller that may go on in the background; zero: a sixteenth of all
	AllWorkers int // tasks of all callers that may; zero: 10000
}

// Tokens is what signs, writes, verifies and records execution context tokens.
type Tokens struct {
	Signer   *ect.Signer
	Dialects *ect.Dialects // how each peer writes tokens
	Verifier *ect.Verifier
	Recorder *ect.Recorder
	Evidence ect.Store
}

// Stores is where the state of requests, conversations and tasks is stored.
type Stores struct {
	Answers       idempotency.Store
	Conversations conversation.Store
	Entries       store.Entries
	Blobs         checkpoint.Blobs
	Lasts         func(context.Context) error              // returns when all evidence that was recorded before lasts; nil: it lasts at once
	Place         string                                   // the URL at which rollbacks to what Blobs has are requested: https, and the path of ATD
	Clock         func(context.Context) (time.Time, error) // of the store; nil: the clock of this process
	StatePlain    bool                                     // entries are stored as they are, where others may read them: webhooks with credentials are refused
}

// Gateway is the pipeline. It is safe for concurrent use.
type Gateway struct {
	Deps
	*admission.Limits
	*routing.Discovery

	settings       atomic.Pointer[Settings]
	instance       string // names this process among the replicas
	tasks          *task.Service
	workers        *worker.Group
	cancels        worker.Cancels // requests of sessions that are under way here, by session and id
	cancelWatchers *worker.Group  // watch whether other replicas cancel a request that is under way here
	controlReaders *worker.Group  // read the control messages of tasks that go on here
	hooks          *webhook.Hooks
	attest         *attest.Service
	requests       worker.Requests
	admission      *admission.Service
	parts          Parts
	executions     *execution.Service
}

var _ transport.Handler = (*Gateway)(nil)

// New builds the pipeline.
func New(settings Settings, deps Deps) (*Gateway, error) {
	for _, missing := range []bool{
		deps.Registry == nil, deps.Directory == nil, deps.Network == nil, deps.Sender == nil, deps.Signer == nil, deps.Dialects == nil,
		deps.Verifier == nil, deps.Recorder == nil, deps.Evidence == nil, deps.Answers == nil,
		deps.Conversations == nil, deps.Entries == nil, deps.Blobs == nil, deps.Limiter == nil, deps.Metrics == nil, deps.Logger == nil,
		deps.Now == nil, deps.NewID == nil,
	} {
		if missing {
			return nil, errors.New("gateway: incomplete Deps")
		}
	}
	refusals, err := sample.New(sample.Config{}, sample.Deps{Now: deps.Now})
	if err != nil {
		return nil, err
	}
	members, err := membership.New(membership.Deps{Store: deps.Evidence, Self: deps.Signer.Issuer(), AgentAt: deps.Directory.AgentAt})
	if err != nil {
		return nil, err
	}
	g := &Gateway{Deps: deps, instance: deps.NewID()}
	if g.attest, err = attest.New(attest.Deps{
		Signer: deps.Signer, Dialects: deps.Dialects, Verifier: deps.Verifier, Recorder: deps.Recorder, Evidence: deps.Evidence, Members: members,
		Refusals: refusals, Metrics: deps.Metrics, Logger: deps.Logger, NewID: deps.NewID, Version: func() string { return g.settings.Load().Version },
	}); err != nil {
		return nil, err
	}
	g.Limits = admission.NewLimits(deps.Limiter, deps.Metrics.RateLimited, g.attest)
	destinations, err := destination.New(destination.Deps{
		Registry: deps.Registry, Directory: deps.Directory, Now: deps.Now, Denied: deps.Metrics.Denied,
	})
	if err != nil {
		return nil, err
	}
	g.Discovery = routing.NewDiscovery(deps.Directory, deps.Registry, destinations)
	if err := g.startWorkers(deps.AllWorkers, deps.Workers); err != nil {
		return nil, err
	}
	posts := webhook.Deps{
		Entries: deps.Entries, Network: deps.Network, Sender: deps.Sender, Workers: g.workers, Now: deps.Now, Logger: deps.Logger,
	}
	if g.parts.Callbacks, err = webhook.NewCallbacks(posts); err != nil {
		return nil, err
	}
	g.hooks = webhook.NewHooks(posts, g.sealPosts)
	g.executions = execution.New(execution.Deps{
		Tasks: g.tasks.Store, Webhooks: g.hooks, Workers: g.workers, Lifecycle: g.Lifecycle, Now: g.Now, NewID: g.NewID, Logger: g.Logger, Replica: g.instance,
	})
	g.tasks.Deps = task.Deps{
		Executions: g.executions, Webhooks: g.hooks, Workers: g.workers, Now: g.Now, NewID: g.NewID, Logger: g.Logger, Replica: g.instance,
		Unwanted: func(ctx context.Context, id string) { g.parts.Approvals.Unwanted(ctx, id) },
	}
	if err := errors.Join(openWorkflows(g, members), g.openApprovals()); err != nil {
		return nil, err
	}
	g.tasks.Failover = task.NewFailover(task.FailoverDeps{
		Tasks: g.tasks.Store, Entries: deps.Entries, Webhooks: g.hooks, Workers: g.workers, Follow: g.followInPlace, Replica: g.instance, Now: deps.Now, Logger: deps.Logger,
	})
	if g.admission, err = admission.New(admission.Deps{
		Registry: deps.Registry, Directory: deps.Directory, Destinations: destinations, Network: deps.Network, Attest: g.attest,
		Verifier: deps.Verifier, Recorder: deps.Recorder, Dialects: deps.Dialects, Evidence: deps.Evidence, Members: members,
		Answers: deps.Answers, Tasks: g.tasks, Metrics: deps.Metrics, Decides: g.Decides, Gate: gate{g}, Self: g.Self(),
	}); err != nil {
		return nil, err
	}
	g.tasks.Read = g.admission.Read
	g.parts.Decisions = approval.Tokens{Attest: g.attest, Members: members}
	g.parts.Evidence, g.parts.Members, g.parts.Router = g.attest.Statements(), members, destinations
	if err := errors.Join(g.openRollbacks(), g.openConsensus(), openPlaces(g)); err != nil {
		return nil, err
	}
	g.Apply(settings)
	return g, nil
}

// openWorkflows makes what stores the plans of workflows, and what begins workflows and reads them.
func openWorkflows(g *Gateway, members *membership.Register) (err error) {
	g.parts.Descriptors, err = descriptor.New(descriptor.Deps{
		Entries: g.Entries, Names: g.Directory.NamesOf, Operators: func() []policy.Operator { return g.settings.Load().Operators }, Now: g.Now, Logger: g.Logger,
	})
	if err != nil {
		return err
	}
	g.parts.Workflows, err = workflow.New(workflow.Deps{
		Entries: g.Entries, Evidence: g.attest.Statements(), Store: g.Evidence, Belongs: members.Belongs, Escalate: g.escalated, Now: g.Now, Logger: g.Logger,
		Failed: g.stepFailed, Plans: plans{g},
		Follow: func(ctx context.Context, f workflow.Failure, st attest.Statement) (string, error) {
			return g.parts.Rollbacks.Follow(ctx, f, st)
		},
	})
	return err
}

// openRollbacks makes what keeps checkpoints, and what rolls back to them.
func (g *Gateway) openRollbacks() (err error) {
	g.parts.Checkpoints, err = checkpoint.New(checkpoint.Deps{
		Blobs: g.Blobs, Evidence: g.attest.Statements(), Belongs: g.parts.Members.Belongs, Place: g.Place, Lasts: g.Lasts, Read: g.readState,
		Count: g.Metrics.Undo().Made, Now: g.Now, Logger: g.Logger,
	})
	if err != nil {
		return err
	}
	g.parts.Rollbacks, err = rollback.New(rollback.Deps{
		Exchange: g.Exchange, Admission: g.admission, Attest: g.attest, Directory: g.Directory, Network: g.Network, Entries: g.Entries,
		Checkpoints: g.parts.Checkpoints, Agents: undoing{g}, Workflows: g.parts.Workflows, Find: g.Evidence.Get,
		Patience: g.longestCall,
		Notices:  rollback.Notices{Escalate: g.escalated, Count: g.Metrics.Undo().RolledBack, Humans: humans{g}},
		Replicas: rollback.Replicas{
			Self: g.instance, Alive: g.tasks.IsAlive, Go: func(holder string, work func(context.Context)) error { return g.workers.GoFor(holder, 0, work) },
		},
		Now: g.Now, Logger: g.Logger, Self: g.Self(),
	})
	return err
}

// openConsensus makes the coordinator of rounds in which agents decide together.
func (g *Gateway) openConsensus() (err error) {
	clock := g.Clock
	if clock == nil {
		clock = func(context.Context) (time.Time, error) { return g.Now(), nil }
	}
	parties := consensus.Parties{Directory: g.Directory, Approvals: g.parts.Approvals, Errand: g.sendAgreed}
	g.parts.Consensus, err = consensus.New(consensus.Deps{
		Entries: g.Entries, Evidence: g.attest.Statements(), Signer: func() *ect.Signer { return g.Signer }, Verifier: g.Verifier, Belongs: g.parts.Members.Belongs,
		Agents: parties, Humans: parties, Metrics: g.Metrics.Consensus(), Clock: clock, Now: g.Now, Logger: g.Logger, Replica: g.instance,
		Go: func(holder string, work func(context.Context)) error { return g.workers.GoFor(holder, 0, work) },
	})
	return err
}

// openPlaces makes what has calls wait until their agents have places.
func openPlaces(g *Gateway) (err error) {
	if g.parts.Places, err = schedule.New(schedule.Deps{Now: time.Now, Metrics: g.Metrics.Agents().Waits}); err == nil {
		g.Metrics.Agents().Waits.Uses(g.parts.Places.Waiting)
	}
	return err
}

// longestCall is how long a call of any agent may take, and a minute.
func (g *Gateway) longestCall() time.Duration {
	longest := g.settings.Load().Timeout
	for _, agent := range g.Directory.List() {
		longest = max(longest, agent.Timeout)
	}
	return longest + time.Minute
}

// openApprovals makes what humans decide about: approvals, and levels of workflows.
func (g *Gateway) openApprovals() (err error) {
	g.parts.Approvals, err = approval.New(approval.Deps{
		Entries: g.Entries, Evidence: g.attest.Statements(), Tasks: approval.NewTasks(g.tasks, g.released, g.instance), Alive: g.tasks.IsAlive,
		Go:  func(holder string, work func(context.Context)) error { return g.workers.GoFor(holder, 0, work) },
		Now: g.Now, NewID: g.NewID, Logger: g.Logger, Replica: g.instance,
		Notices: approval.Notices{
			Count: g.Metrics.Approvals().Changed, Escalate: g.Escalate, Announce: g.parts.Callbacks.AnnounceIn, Registered: g.parts.Callbacks.URIs, Find: g.Evidence.Get, Logger: g.Logger, Replica: g.instance,
		},
	})
	if err != nil {
		return err
	}
	g.Metrics.Approvals().Uses(func() (int, time.Duration) {
		waiting, oldest := g.parts.Approvals.Usage()
		if waiting == 0 {
			return 0, 0
		}
		return waiting, g.Now().Sub(oldest)
	})
	g.parts.Levels, err = approval.NewLevels(record.Deps{
		Entries: g.Entries, Evidence: func() record.Evidence { return g.attest.Statements() }, Now: g.Now, Logger: g.Logger,
	}, func(ctx context.Context, wid string) (ect.ID, bool, error) {
		began, found, err := g.parts.Workflows.Started(ctx, wid)
		return began.Start, found, err
	})
	return err
}

// stepFailed is told of an error of a workflow.
func (g *Gateway) stepFailed(ctx context.Context, f workflow.Failure, compact string) {
	g.parts.Levels.Failed(ctx, g.settings.Load().Approvals, f, compact)
}

// gate is what admission asks before it takes new work.
type gate struct{ *Gateway }

// Draining implements admission.Gate.
func (g gate) Draining() error { return g.Lifecycle.Refusal(g.requests.Draining()) }

// CircuitOpen implements admission.Gate.
func (g gate) CircuitOpen(caller ect.Identity, to destination.Destination) error {
	target := breakers.Target{Kind: outbound.Message, Endpoint: transport.Endpoint{Agent: to.Agent.Name, Caller: caller}}
	if to.Via != nil {
		target = breakers.Target{Kind: outbound.Peer, Endpoint: transport.Endpoint{ID: to.Via.Peer.ID, Caller: caller}}
	}
	return g.Breakers.Refusal(target)
}

// Ready implements admission.Gate.
func (g gate) Ready(ctx context.Context, wid string, parents []ect.ID, issuer ect.Identity) error {
	return g.parts.Workflows.Ready(ctx, wid, parents, issuer)
}

// Level implements admission.Gate.
func (g gate) Level(ctx context.Context, wid, operation string, begins bool) error {
	return g.parts.Levels.Refusal(ctx, wid, operation, begins)
}

// Observe implements admission.Gate.
func (g gate) Observe(ctx context.Context, caller ect.Identity, tokens []ect.Verified) error {
	return g.parts.Workflows.Observe(ctx, caller, tokens)
}

// startWorkers makes the background workers, of which one caller may have so many.
func (g *Gateway) startWorkers(total, perCaller int) error {
	for _, made := range []**worker.Group{&g.workers, &g.controlReaders, &g.cancelWatchers} {
		var err error
		if *made, err = worker.NewGroup(total, perCaller); err != nil {
			return err
		}
		(*made).OnRefusal(func() { g.Metrics.RateLimited(limit.ScopeShare) })
	}
	g.Metrics.Uses(func() map[string]telemetry.Use {
		return map[string]telemetry.Use{"background": telemetry.UseOf(worker.BytesOfWork, g.workers.Usage())}
	})
	tasks := store.New(store.Deps{
		Entries: g.Entries, Replies: g.Answers, Replica: g.instance, Now: g.Now, Logger: g.Logger,
		StatusTime: g.statusTime, Workers: g.workers, Queues: g.controlReaders,
	})
	g.tasks = &task.Service{Store: tasks, Reader: task.Reader{Registry: g.Registry}}
	return nil
}

// statusTime is now, for tasks of protocols that say when a status came.
func (g *Gateway) statusTime(source canonical.Binding) time.Time {
	if historian := g.Registry.Features(source).Historian; historian != nil && historian.TellsHistory("") {
		return execution.Milliseconds(g.Now())
	}
	return time.Time{}
}

// Drain lets the gateway take no new work (R16): a message that would begin some gets
// a [problem.DrainingError], and everything that goes on with work goes through. It
// returns when all requests and all work in the background have ended, or ctx has.
func (g *Gateway) Drain(ctx context.Context) {
	g.requests.Drain(ctx)
	for g.workers.Drain(ctx) && !g.requests.Idle() && ctx.Err() == nil {
		g.requests.Drain(ctx)
	}
}

// Close ends the work that goes on in the background, and waits for that. What
// it was about says so on record.
func (g *Gateway) Close() error {
	g.workers.Close()
	g.controlReaders.Close()
	g.cancelWatchers.Close()
	g.tasks.Flush(context.Background())
	return nil
}

// Flush records the refusals that were counted and not recorded yet. Nothing is refused
// after it.
func (g *Gateway) Flush(ctx context.Context) error { return g.attest.Flush(ctx) }

// Apply puts new settings in force. A message that is on its way keeps those
// that it set out with.
func (g *Gateway) Apply(settings Settings) {
	if settings.Timeout <= 0 {
		settings.Timeout = DefaultTimeout
	}
	settings.Constraints = settings.Document.Narrow(settings.Constraints, g.Self())
	settings.rules = admission.Rules{
		Constraints: settings.Constraints, Gateways: settings.Gateways, RequireECT: settings.RequireECT, ECTInBody: settings.ECTInBody,
	}
	g.Breakers.Configure(settings.Constraints.Circuit)
	g.parts.Consensus.Configure(settings.Groups)
	g.parts.Places.Configure(settings.Schedule)
	g.settings.Store(&settings)
}

// Parts are what surfaces ask beside the pipeline.
type Parts struct {
	Evidence  attest.Statements     // of what is no message
	Members   *membership.Register  // who belongs to a workflow
	Router    *destination.Resolver // which pairs are served here
	Callbacks *webhook.Callbacks    // who is told what humans decide
	Rollbacks *rollback.Service     // rollback requests, and what becomes of them
	// Checkpoints are kept here for rollbacks.
	Checkpoints *checkpoint.Service
	Consensus   *consensus.Service  // rounds in which agents decide together
	Places      *schedule.Scheduler // which calls wait for their agents
	Workflows   *workflow.Service   // how far they are
	Descriptors *descriptor.Service // plans of workflows (R27)
	Approvals   *approval.Service   // what humans decide about
	Levels      *approval.Levels    // which workflows they hold
	Decisions   approval.Tokens     // of approvers
}

// Parts are those of this gateway.
func (g *Gateway) Parts() Parts { return g.parts }

// TakeOver begins to follow tasks whose replica was lost, and to look after approvals. It is called once; Close
// ends it.
func (g *Gateway) TakeOver() error {
	if err := g.tasks.Begin(); err != nil {
		return err
	}
	if err := g.workers.Serve(g.parts.Levels.Watch); err != nil {
		return err
	}
	if err := g.workers.Serve(g.parts.Rollbacks.Watch); err != nil {
		return err
	}
	if err := g.workers.Serve(g.parts.Consensus.Run); err != nil {
		return err
	}
	return g.workers.Serve(g.parts.Approvals.Watch)
}

// Decides reports whether an identity may decide what waits for a human (R23).
func (g *Gateway) Decides(id ect.Identity) bool { return g.operator(id).May(policy.RoleApprover) }

// operator is the operator of an identity; without a role: there is none.
func (g *Gateway) operator(id ect.Identity) policy.Operator {
	if g.Operator == nil {
		return policy.Operator{}
	}
	if who, ok := g.Operator(id); ok {
		return who
	}
	return policy.Operator{}
}

// Self is the gateway's own identity.
func (g *Gateway) Self() ect.Identity { return g.Signer.Issuer() }
