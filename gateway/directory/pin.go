package directory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Pin is the description of an agent that counts (R9), by its SHA-256 over the
// cleaned form, and a newer one that an operator has not accepted.
type Pin struct {
	Hash        string
	Description canonical.Description
	Pending     *Pin // nil: none waits. It has no Pending of its own
}

// Pins keeps pins. A key names an agent, a binding, a version, and what clients that
// can be asked see of it. Both may be
// called by many at once; an error leaves the pin as it was.
type Pins interface {
	Pinned(ctx context.Context, key string) (Pin, bool, error)
	KeepPin(ctx context.Context, key string, pin Pin) error
}

// memoryPins is Pins that end with the process.
type memoryPins struct {
	mu   sync.Mutex
	pins map[string]Pin
}

func (m *memoryPins) Pinned(_ context.Context, key string) (Pin, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	pin, ok := m.pins[key]
	return pin, ok, nil
}

func (m *memoryPins) KeepPin(_ context.Context, key string, pin Pin) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, replaces := m.pins[key]; !replaces && len(m.pins) >= 4*MaxAgents {
		m.pins = map[string]Pin{} // only names that came and went make so many
	}
	m.pins[key] = pin
	return nil
}

// ChangedError: what a tool or skill says of itself has changed, and an
// operator has not accepted that (R9).
type ChangedError struct{ Capability string }

func (e *ChangedError) Error() string {
	return "the description of " + e.Capability + " has changed and waits for an operator to accept it"
}

// PinError: the pins cannot be read or kept now.
type PinError struct{ Err error }

func (e *PinError) Error() string { return "pinned descriptions are out of reach: " + e.Err.Error() }
func (e *PinError) Unwrap() error { return e.Err }

// compare pins a cleaned description. It returns the one to serve, and what may
// not be called until an operator has accepted the other. An agent with Pin is
// not served while that cannot be told: its error is a *PinError.
func (d *Directory) compare(ctx context.Context, name string, agent Agent, e Endpoint, now canonical.Description) (*canonical.Description, map[string]bool, error) {
	if !agent.Listed() {
		return &now, nil, nil
	}
	served, pending, err := d.compared(ctx, name, agent, e, now)
	if err == nil {
		return served, pending, nil
	}
	d.deps.Logger.ErrorContext(ctx, "an agent's description cannot be compared", slog.String("agent", agent.Name), logError(err))
	if agent.Pin {
		return nil, nil, &PinError{Err: err}
	}
	return &now, nil, nil
}

func (d *Directory) compared(ctx context.Context, name string, agent Agent, e Endpoint, now canonical.Description) (*canonical.Description, map[string]bool, error) {
	hash := hashOf(now)
	pin, known, err := d.deps.Pins.Pinned(ctx, name)
	switch {
	case err != nil:
		return nil, nil, err
	case known && pin.Hash == hash && pin.Pending == nil:
		return &now, nil, nil
	case known && pin.Hash == hash: // it went back to what it was
		pin.Pending = nil
	case !agent.Pin:
		pin = Pin{Hash: hash, Description: now}
	case !known:
		if pin, err = d.firstPin(ctx, agent, e, Pin{Hash: hash, Description: now}); err != nil {
			return nil, nil, err
		}
	case pin.Pending != nil && pin.Pending.Hash == hash:
		return &pin.Description, heldBy(pin), nil
	default:
		pin.Pending = &Pin{Hash: hash, Description: now}
	}
	if known || pin.Pending != nil {
		d.deps.Changed(agent.Name)
		d.deps.Logger.WarnContext(ctx, "an agent's description has changed", slog.String("agent", agent.Name),
			slog.String("binding", string(e.Binding)), slog.String("sha256", hash), slog.Bool("held", pin.Pending != nil))
	}
	return &pin.Description, heldBy(pin), d.deps.Pins.KeepPin(ctx, name, pin)
}

// firstPin is how a view is pinned that was not seen before. What an operator has seen
// in another view of the agent counts here too: what is more, or different, waits.
func (d *Directory) firstPin(ctx context.Context, agent Agent, e Endpoint, now Pin) (Pin, error) {
	e.Version = "" // what was seen in another version counts too
	for _, name := range d.keys(agent.Name, e) {
		other, known, err := d.deps.Pins.Pinned(ctx, name)
		if err != nil {
			return Pin{}, err
		}
		if !known {
			continue
		}
		first := Pin{Hash: other.Hash, Description: other.Description, Pending: &now}
		if !slices.ContainsFunc(first.Changes(), func(c Change) bool { return c.Kind != "removed" && !c.ofRevision() }) {
			return now, nil
		}
		return first, nil
	}
	return now, nil
}

// ofRevision: each revision of a protocol has members of its own around a description (what
// it supports, how long it can be shown). They are no news from one revision to another.
func (c Change) ofRevision() bool {
	return c.Kind == "changed" && c.Capability == "" && slices.Equal(c.Members, []string{otherMembers})
}

// hashOf is over the JSON of the cleaned description, whose members have one order.
func hashOf(d canonical.Description) string {
	data, err := json.Marshal(d)
	if err != nil {
		return "" // raw members are JSON already; what is not equals nothing pinned
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Change is one difference between two descriptions.
type Change struct {
	Capability string // empty: the agent's own description
	Kind       string // added, removed or changed
	Members    []string
	Was, Is    string // of the description, shortened
}

// Changes compares what was accepted with what waits.
func (p Pin) Changes() []Change {
	if p.Pending == nil {
		return nil
	}
	var out []Change
	was, is := p.Description, p.Pending.Description
	a, b := was, is
	a.Capabilities, b.Capabilities = nil, nil
	if hashOf(a) != hashOf(b) {
		out = append(out, Change{Kind: "changed", Was: short(was.Description), Is: short(is.Description), Members: differing(
			"name", was.Name, is.Name, "title", was.Title, is.Title, "version", was.Version, is.Version,
			"description", was.Description, is.Description, "instructions", was.Instructions, is.Instructions)})
	}
	then, there := byID(was.Capabilities), byID(is.Capabilities)
	for _, old := range was.Capabilities {
		if c := there[old.ID]; c == nil {
			out = append(out, Change{Capability: old.ID, Kind: "removed", Was: short(old.Description)})
		} else if hashOfCapability(old) != hashOfCapability(*c) {
			out = append(out, Change{Capability: old.ID, Kind: "changed", Was: short(old.Description), Is: short(c.Description), Members: differing(
				"title", old.Title, c.Title, "description", old.Description, c.Description,
				"tags", strings.Join(old.Tags, " "), strings.Join(c.Tags, " "),
				"input", string(old.InputSchema), string(c.InputSchema), "output", string(old.OutputSchema), string(c.OutputSchema))})
		}
	}
	for _, c := range is.Capabilities {
		if then[c.ID] == nil {
			out = append(out, Change{Capability: c.ID, Kind: "added", Is: short(c.Description)})
		}
	}
	return out
}

// byID finds capabilities: there may be thousands.
func byID(list []canonical.Capability) map[string]*canonical.Capability {
	out := make(map[string]*canonical.Capability, len(list))
	for i := range list {
		out[list[i].ID] = &list[i]
	}
	return out
}

func hashOfCapability(c canonical.Capability) string {
	return hashOf(canonical.Description{Capabilities: []canonical.Capability{c}})
}

// otherMembers are those that no name of ours tells apart.
const otherMembers = "other members"

// differing names the members, given as name, old, new, that differ.
func differing(triples ...string) []string {
	var out []string
	for i := 0; i+2 < len(triples); i += 3 {
		if triples[i+1] != triples[i+2] {
			out = append(out, triples[i])
		}
	}
	if out == nil {
		out = []string{otherMembers}
	}
	return out
}

func short(text string) string {
	const most = 160
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}

// heldBy are the capabilities that may not be called: what changed, and what is new.
func heldBy(p Pin) map[string]bool {
	var pending map[string]bool
	for _, change := range p.Changes() {
		if pending == nil {
			pending = map[string]bool{}
		}
		pending[change.Capability] = true
	}
	return pending
}

// Admits says whether a capability of an agent may be called: a *ChangedError
// if its description waits for an operator in any view of the agent. A change of the
// agent's own description holds no call back: it names none.
func (d *Directory) Admits(agent Agent, e Endpoint, capability string) error {
	if !agent.Pin || capability == "" {
		return nil
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	for _, name := range d.keys(agent.Name, e) {
		if d.known[name].pending[capability] {
			return &ChangedError{Capability: capability}
		}
	}
	return nil
}

// Pinned is the pin of an agent's endpoint, as clients that cannot be asked see it;
// false: it was never described to such.
func (d *Directory) Pinned(ctx context.Context, agent Agent, e Endpoint) (Pin, bool, error) {
	return d.deps.Pins.Pinned(ctx, key(agent.Name, e))
}

// Views are the pins of an agent's endpoint, one for each different description that
// it has shown to different clients.
func (d *Directory) Views(ctx context.Context, agent Agent, e Endpoint) ([]Pin, error) {
	var views []Pin
	for _, name := range d.keys(agent.Name, e) {
		pin, known, err := d.deps.Pins.Pinned(ctx, name)
		if err != nil {
			return nil, err
		}
		if known && !slices.ContainsFunc(views, func(other Pin) bool { return other.says(pin) }) {
			views = append(views, pin)
		}
	}
	return views, nil
}

// says reports whether two pins are the same, with what waits.
func (p Pin) says(other Pin) bool {
	waits := func(pin Pin) string {
		if pin.Pending == nil {
			return ""
		}
		return pin.Pending.Hash
	}
	return p.Hash == other.Hash && waits(p) == waits(other)
}

// Accept makes what waits of an agent the description that counts. With a hash
// only that one: an operator accepts what was read. It says whether anything was.
func (d *Directory) Accept(ctx context.Context, agent Agent, hash string) (bool, error) {
	var names []string
	d.mu.RLock()
	for name := range d.known {
		if strings.HasPrefix(name, agent.Name+" ") {
			names = append(names, name)
		}
	}
	d.mu.RUnlock()
	for _, e := range agent.Endpoints {
		names = append(names, d.keys(agent.Name, e)...)
	}
	accepted := false
	for _, name := range names {
		pin, known, err := d.deps.Pins.Pinned(ctx, name)
		if err != nil {
			return accepted, err
		}
		if !known || pin.Pending == nil || (hash != "" && pin.Pending.Hash != hash) {
			continue
		}
		if err := d.deps.Pins.KeepPin(ctx, name, *pin.Pending); err != nil {
			return accepted, err
		}
		accepted = true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, name := range names {
		delete(d.known, name)
	}
	return accepted, nil
}
