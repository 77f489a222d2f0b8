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

	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/state"
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

// ConfiguredError: an agent of the configuration file is changed there alone.
type ConfiguredError struct{ Name string }

func (e *ConfiguredError) Error() string {
	return "agent " + e.Name + " is in the configuration file: change it there, or add one of another name"
}

// RaceError: the record of an agent is not as it was seen.
type RaceError struct{ Name string }

func (e *RaceError) Error() string {
	return "the record of agent " + e.Name + " was changed meanwhile or cannot be read: list the agents, then add it again, or remove it first"
}

// Entries keeps the records.
type Entries interface {
	Get(ctx context.Context, key state.EntryKey) (state.Entry, bool, error)
	Swap(ctx context.Context, key state.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error)
	Delete(ctx context.Context, key state.EntryKey) error
	List(ctx context.Context, kind, group, after string, limit int) ([]state.Entry, error)
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
	mu         sync.Mutex
	configured map[string]bool
	seen       map[string]uint64 // by name: the revision of each record that was judged
}

// New lists nothing yet.
func New(deps Deps) (*Agents, error) {
	if deps.Directory == nil || deps.Now == nil || deps.Logger == nil {
		return nil, errors.New("listing: incomplete Deps: expected a directory, a clock and a logger")
	}
	return &Agents{deps: deps, seen: map[string]uint64{}}, nil
}

// Configure lists the agents of a configuration in place of those of the one before.
func (a *Agents) Configure(agents []directory.Agent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.configured
	a.configured = map[string]bool{}
	for _, agent := range agents {
		a.configured[agent.Name] = true
		delete(a.seen, agent.Name)
	}
	for name := range old {
		if !a.configured[name] {
			a.deps.Directory.Remove(name)
			delete(a.seen, name) // a record of that name counts from now on
		}
	}
	for _, agent := range agents {
		if err := a.deps.Directory.Put(agent); err != nil {
			return err
		}
	}
	return nil
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
		return &ConfiguredError{doc.Name}
	}
	if err := a.look(ctx); err != nil {
		return err
	}
	old, replaces := a.seen[doc.Name]
	if !replaces && len(a.seen) >= Most {
		return &directory.InvalidAgentError{Name: doc.Name, Reason: "as many agents were added as can be: remove one, or write agents into the configuration file"}
	}
	var revision uint64
	if a.deps.Entries != nil {
		value, err := json.Marshal(DocumentOf(agent))
		if err != nil || len(value) > maxRecord {
			return &directory.InvalidAgentError{Name: doc.Name, Reason: "its document is too large: at most 16 KiB are kept"}
		}
		var ok bool
		if revision, ok, err = a.deps.Entries.Swap(ctx, keyOf(doc.Name), old, value, a.deps.Now().Add(life)); err != nil {
			return err
		} else if !ok {
			return &RaceError{doc.Name}
		}
	}
	a.seen[doc.Name] = revision
	if err := a.deps.Directory.Put(agent); err != nil { // it is full
		return errors.Join(err, a.forget(ctx, doc.Name))
	}
	return nil
}

// Remove takes an agent out that was added; false: there is no such agent. A record that
// cannot be read is removed as well.
func (a *Agents) Remove(ctx context.Context, name string) (found bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.configured[name] {
		return false, &ConfiguredError{name}
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
	delete(a.seen, name)
	if a.deps.Entries == nil {
		return nil
	}
	return a.deps.Entries.Delete(ctx, keyOf(name))
}

// Look lists what the state has now.
func (a *Agents) Look(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.look(ctx)
}

func (a *Agents) look(ctx context.Context) error {
	if a.deps.Entries == nil {
		return nil
	}
	records, err := a.deps.Entries.List(ctx, KindAgent, KindAgent, "", Most)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, record := range records {
		name := record.Key.ID
		found[name] = true
		if at, ok := a.seen[name]; ok && at == record.Revision {
			continue
		}
		a.seen[name] = record.Revision
		err := error(&ConfiguredError{name})
		if !a.configured[name] {
			if err = a.use(name, record.Value); err != nil {
				a.deps.Directory.Remove(name)
			}
		}
		if err != nil {
			a.deps.Logger.WarnContext(ctx, "the record of an agent is left out", slog.String("agent", name), slog.Any("error", err))
		}
	}
	for name := range a.seen {
		if !found[name] {
			delete(a.seen, name)
			if !a.configured[name] {
				a.deps.Directory.Remove(name)
			}
		}
	}
	return nil
}

// use lists the agent of a record.
func (a *Agents) use(name string, record []byte) error {
	var doc admindoc.Agent
	if err := json.Unmarshal(record, &doc, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if doc.Name != name {
		return &directory.InvalidAgentError{Name: doc.Name, Reason: "its record has another name"}
	}
	agent := AgentOf(doc, a.deps.Open)
	if err := a.check(agent); err != nil {
		return err
	}
	return a.deps.Directory.Put(agent)
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
