// Package listing lists the agents of the configuration and those that operators add
// while the gateway runs. The latter are kept in the state, where there is one that
// lasts: every replica looks there, at its start and every two seconds. What it finds
// is judged like what an operator sends; what is bad is logged and left out.
//
// Alternatives considered: a file of the replica (the others would not know), and news
// of each change (they get lost; a look finds what is there).
package listing

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/seal"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// KindAgent is the kind of the entries, and their group.
const KindAgent = "agent"

// Most is how many agents can be added. More belong in the configuration.
const Most = 1000

const (
	maxRecord = 16 << 10 // of one agent, in bytes
	lookEvery = 2 * time.Second
	life      = 10 * 365 * 24 * time.Hour // until it is removed, as far as anyone can tell
)

// Where an agent is from, and so how long it stays.
const (
	FromConfiguration = "configuration"
	FromState         = "state"   // all replicas know it, until it is removed
	FromProcess       = "process" // this process alone knows it, until its end
)

// Entries keeps the records.
type Entries interface {
	record.Entries

	Delete(ctx context.Context, key state.EntryKey) error
}

// Deps is what Agents needs.
type Deps struct {
	Directory *directory.Directory
	Entries   Entries // nil: what is added ends with the process
	Open      bool    // a development gateway: agents without callers are open to everybody (R2)
	Now       func() time.Time
	Logger    *slog.Logger
}

// Agents is safe for concurrent use.
type Agents struct {
	deps       Deps
	records    *record.Machine[admindoc.Agent] // nil: what is added ends with the process
	mu         sync.Mutex
	configured map[string]bool
	added      map[string]bool // names that have a record
}

// New lists nothing yet.
func New(deps Deps) (*Agents, error) {
	if deps.Directory == nil || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("listing: incomplete Deps: expected a directory, a clock and a logger")
	}
	a := &Agents{deps: deps, added: map[string]bool{}}
	if deps.Entries == nil {
		return a, nil
	}
	var err error
	a.records, err = record.New(record.Kind[admindoc.Agent]{
		Encode: encode, Decode: admindoc.Decode, Life: life, Announce: a.announce, Gone: a.gone,
	}, record.Deps{Entries: deps.Entries, Now: deps.Now, Logger: deps.Logger})
	return a, err
}

func encode(doc admindoc.Agent) ([]byte, error) {
	value, err := admindoc.Encode(doc)
	if err != nil || len(value) > maxRecord {
		return nil, &directory.InvalidAgentError{Name: doc.Name, Reason: "its document is too large: at most 16 KiB are kept"}
	}
	return value, nil
}

// Configure lists the agents of a configuration in place of those of the one before.
func (a *Agents) Configure(agents []directory.Agent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.configured
	a.configured = map[string]bool{}
	for _, agent := range agents {
		a.configured[agent.Name] = true
		a.recount(agent.Name)
	}
	for name := range old {
		if !a.configured[name] {
			a.deps.Directory.Remove(name)
			a.recount(name) // a record of that name counts from now on
		}
	}
	for _, agent := range agents {
		if err := a.deps.Directory.Put(agent); err != nil {
			return err
		}
	}
	return nil
}

// recount has the record of a name judged again.
func (a *Agents) recount(name string) {
	if a.records != nil {
		a.records.Forget(keyOf(name))
	}
}

// From says where an agent is from.
func (a *Agents) From(name string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.configured[name]:
		return FromConfiguration
	case a.deps.Entries != nil:
		return FromState
	}
	return FromProcess
}

func keyOf(name string) state.EntryKey {
	return state.EntryKey{Kind: KindAgent, Group: KindAgent, ID: name, Owner: KindAgent + " " + name}
}

// Put adds an agent, or replaces the one that was added under its name.
func (a *Agents) Put(ctx context.Context, doc admindoc.Agent) error {
	agent := AgentOf(doc, a.deps.Open)
	if err := a.check(agent); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.configured[doc.Name] {
		return &directory.ConfiguredError{Name: doc.Name}
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	if !a.added[doc.Name] && len(a.added) >= Most {
		return &directory.InvalidAgentError{Name: doc.Name, Reason: "as many agents were added as can be: remove one, or write agents into the configuration file"}
	}
	if a.records == nil {
		a.added[doc.Name] = true
		return a.deps.Directory.Put(agent)
	}
	return a.record(ctx, agent)
}

// record puts an agent on record, and lists it. Its errors are those of [Agents.Put].
func (a *Agents) record(ctx context.Context, agent directory.Agent) error {
	_, changed, err := a.records.Decide(ctx, keyOf(agent.Name), func(before record.Found[admindoc.Agent]) (admindoc.Agent, *attest.Statement, error) {
		if before.Revision != 0 && !before.Known || before.Revision == 0 && a.added[agent.Name] {
			return before.Value, nil, &directory.RaceError{Name: agent.Name}
		}
		return DocumentOf(agent), nil, nil
	})
	if _, unreadable := errors.AsType[*record.UnreadableError](err); unreadable || errors.Is(err, seal.ErrBroken) || errors.Is(err, seal.ErrUnknownKey) {
		return &directory.RaceError{Name: agent.Name}
	}
	if err != nil && changed { // it cannot be listed
		return errors.Join(err, a.forget(ctx, agent.Name))
	}
	return err
}

// Remove takes an agent out that was added; false: there is no such agent. A record that
// cannot be read is removed as well.
func (a *Agents) Remove(ctx context.Context, name string) (found bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.configured[name] {
		return false, &directory.ConfiguredError{Name: name}
	}
	if a.deps.Entries != nil {
		_, there, unread := a.deps.Entries.Get(ctx, keyOf(name))
		found = there || unread != nil
	}
	if err := a.forget(ctx, name); err != nil {
		return false, err
	}
	return a.deps.Directory.Remove(name) || found, nil
}

func (a *Agents) forget(ctx context.Context, name string) error {
	delete(a.added, name)
	if a.records == nil {
		return nil
	}
	a.recount(name)
	return a.deps.Entries.Delete(ctx, keyOf(name))
}

// Look lists what the state has now.
func (a *Agents) Look(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.look(ctx)
}

func (a *Agents) look(ctx context.Context) error {
	if a.records == nil {
		return nil
	}
	return a.records.Look(ctx, KindAgent, KindAgent)
}

// announce lists the agent of a record.
func (a *Agents) announce(_ context.Context, key state.EntryKey, doc admindoc.Agent) error {
	a.added[key.ID] = true
	switch {
	case a.configured[key.ID]:
		return &directory.ConfiguredError{Name: key.ID}
	case doc.Name != key.ID:
		return &directory.InvalidAgentError{Name: doc.Name, Reason: "its record has another name"}
	}
	agent := AgentOf(doc, a.deps.Open)
	err := a.check(agent)
	if err == nil {
		err = a.deps.Directory.Put(agent)
	}
	if err != nil {
		a.deps.Directory.Remove(key.ID)
	}
	return err
}

// gone takes the agent of a record that is no more out of the list.
func (a *Agents) gone(key state.EntryKey) {
	delete(a.added, key.ID)
	if !a.configured[key.ID] {
		a.deps.Directory.Remove(key.ID)
	}
}

// check judges an agent that is not configured. It can be a program on a development gateway only,
// since the operator who adds it decides what this machine runs.
func (a *Agents) check(agent directory.Agent) error {
	if !a.deps.Open && slices.ContainsFunc(agent.Endpoints, directory.Endpoint.IsProgram) {
		return &directory.InvalidAgentError{Name: agent.Name, Reason: "programs are run for agents of the configuration file alone: write it there, under endpoints[].program"}
	}
	return a.deps.Directory.Check(agent)
}

// Run looks again and again until ctx ends.
func (a *Agents) Run(ctx context.Context) error {
	failed := false
	worker.Every(ctx, lookEvery, func() {
		err := a.Look(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			a.deps.Logger.WarnContext(ctx, "the added agents cannot be looked up: those that are known stay listed", slog.Any("error", err))
		}
		failed = err != nil
	})
	return nil
}
