package descriptor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/attest"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/record"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/lifecycle/descriptor"
	"github.com/aepb/aepb-gateway/policy"
)

// The kinds of entries: the versions of each name, and their texts.
const (
	KindPlan = "plan"
	kindText = "plan_text"
)

// Bounds of what is stored.
const (
	MaxVersions = 100 // of one name
	MaxNames    = 256
	life        = 10 * 365 * 24 * time.Hour // of a version
)

// Version is one version of a descriptor.
type Version struct {
	Name   string    `json:"wf_id"`
	Number int       `json:"version"` // from 1
	Hash   string    `json:"sha256"`  // of the text, base64url
	By     string    `json:"by"`      // the operator who stored it
	At     time.Time `json:"at"`
}

// Deps is what a Service is built from. Every field is required.
type Deps struct {
	Entries record.Entries
	// Names are what tokens call an agent of the directory, which is found by name or identity; false: it is not there.
	Names func(ctx context.Context, agent string) (names []string, known bool)
	// Operators are those of the configuration.
	Operators func() []policy.Operator
	Now       func() time.Time
	Logger    *slog.Logger
}

// Service stores and finds descriptors. It is safe for concurrent use.
type Service struct {
	deps  Deps
	plans *record.Machine[[]Version]
}

// New makes a service.
func New(deps Deps) (*Service, error) {
	if deps.Names == nil || deps.Operators == nil {
		return nil, errors.New("descriptor: incomplete Deps: every field is required")
	}
	plans, err := record.New(record.Kind[[]Version]{
		Encode: func(v []Version) ([]byte, error) { return json.Marshal(v) },
		Decode: decode,
		Life:   life,
	}, record.Deps{Entries: deps.Entries, Now: deps.Now, Logger: deps.Logger})
	return &Service{deps, plans}, err
}

func decode(text []byte) (versions []Version, err error) {
	if err = json.Unmarshal(text, &versions); err == nil && len(versions) == 0 {
		err = errors.New("a name without versions")
	}
	return versions, err
}

func keyOf(name string) state.EntryKey {
	return state.EntryKey{Kind: KindPlan, Group: KindPlan, ID: name, Owner: KindPlan}
}

func textKey(name, hash string) state.EntryKey {
	return state.EntryKey{Kind: kindText, Group: name, ID: hash, Owner: KindPlan + " " + name}
}

// Checked is a descriptor that this gateway can carry out.
type Checked struct {
	descriptor.Descriptor

	Agents map[string][]string // what tokens call each agent that it names
}

// Check judges a descriptor at this gateway: its agents are in the directory, and for each of its gates an operator
// has the role. Its error is a *[problem.QueryError].
func (s *Service) Check(ctx context.Context, text []byte) (Checked, error) {
	d, err := descriptor.Parse(text)
	if err != nil {
		return Checked{}, &problem.QueryError{Reason: err.Error()}
	}
	out := Checked{d, s.Names(ctx, d)}
	var roles []string
	for _, o := range s.deps.Operators() {
		roles = append(roles, o.RoleNames()...)
	}
	for _, n := range d.Order() {
		if n.Agent != "" && out.Agents[n.Agent] == nil {
			return out, &problem.QueryError{Reason: fmt.Sprintf("workflow descriptor, node %q: agent %q is not in the directory: add it, or correct the name", n.ID, n.Agent)}
		}
		if n.Gated && !slices.Contains(roles, n.Role) {
			return out, &problem.QueryError{Reason: fmt.Sprintf("workflow descriptor, node %q: gates without role: no operator is %s, expected one in admin.operators who can approve", n.ID, n.Role)}
		}
	}
	return out, nil
}

// Names are what tokens call each agent that a descriptor names and that is in the directory.
func (s *Service) Names(ctx context.Context, d descriptor.Descriptor) map[string][]string {
	out := map[string][]string{}
	for _, n := range d.Order() {
		if names, known := s.deps.Names(ctx, n.Agent); known {
			out[n.Agent] = append([]string{}, names...)
		}
	}
	return out
}

// Put stores a text as a new version under its wf_id. A text that is that of the newest version is that version. Its
// errors are *[problem.QueryError], *[problem.ConflictError], and *[problem.RecordingError].
func (s *Service) Put(ctx context.Context, text []byte, operator string) (Version, error) {
	d, err := s.Check(ctx, text)
	if err != nil {
		return Version{}, err
	}
	next := Version{Name: d.Name(), Hash: ect.Hash(text), By: operator, At: s.deps.Now().UTC().Truncate(time.Second)}
	step := func(before record.Found[[]Version]) ([]Version, *attest.Statement, error) {
		versions := before.Value
		switch {
		case len(versions) > 0 && versions[len(versions)-1].Hash == next.Hash:
			return versions, nil, record.ErrUnchanged
		case len(versions) >= MaxVersions:
			return versions, nil, &problem.ConflictError{Reason: "a workflow has at most " + strconv.Itoa(MaxVersions) + " versions: store this one under another wf_id"}
		}
		next.Number = len(versions) + 1
		return append(slices.Clip(versions), next), nil, nil
	}
	found, err := s.plans.Read(ctx, keyOf(next.Name))
	if err != nil {
		return Version{}, attest.Recording(err)
	}
	if _, _, err := step(found); err != nil && !errors.Is(err, record.ErrUnchanged) {
		return Version{}, err
	}
	if found.Revision == 0 {
		if err := s.space(ctx); err != nil {
			return Version{}, err
		}
	}
	if err := s.write(ctx, next, text); err != nil {
		return Version{}, err
	}
	versions, _, err := s.plans.Decide(ctx, keyOf(next.Name), step)
	if err != nil {
		return Version{}, recording(err)
	}
	return versions[len(versions)-1], nil
}

// recording is an error of a decision: of the store, or what the step refused.
func recording(err error) error {
	if _, refused := errors.AsType[*problem.ConflictError](err); refused {
		return err
	}
	return attest.Recording(err)
}

// space refuses a name beyond the bound. Two replicas that store new names at once may pass it by one.
func (s *Service) space(ctx context.Context) error {
	all, err := s.List(ctx)
	if err == nil && len(all) >= MaxNames {
		err = &problem.ConflictError{Reason: "there are " + strconv.Itoa(MaxNames) + " workflows, as many as can be: store this one as a version of one of them"}
	}
	return err
}

// write has the store keep a text. It returns when that lasts.
func (s *Service) write(ctx context.Context, v Version, text []byte) error {
	key := textKey(v.Name, v.Hash)
	for {
		_, first, err := s.deps.Entries.Swap(ctx, key, 0, text, v.At.Add(life))
		done := first
		var there state.Entry
		if err == nil && !first {
			there, done, err = s.deps.Entries.Get(ctx, key)
		}
		if err == nil && !first && done {
			done, err = s.deps.Entries.Confirm(ctx, key, there.Revision)
		}
		if err != nil {
			return attest.Recording(err)
		}
		if done {
			return nil
		}
	}
}

// Get finds a version, and its text; 0 is the newest. Its errors are *[problem.NotFoundError] and
// *[problem.RecordingError].
func (s *Service) Get(ctx context.Context, name string, number int) (Version, []byte, error) {
	found, err := s.plans.Read(ctx, keyOf(name))
	if err != nil {
		return Version{}, nil, attest.Recording(err)
	}
	versions := found.Value
	if number == 0 {
		number = len(versions)
	}
	if number < 1 || number > len(versions) {
		return Version{}, nil, &problem.NotFoundError{What: "workflow descriptor", Hint: "operators list them with aepbctl workflow list, and store one with aepbctl workflow put"}
	}
	v := versions[number-1]
	entry, there, err := s.deps.Entries.Get(ctx, textKey(name, v.Hash))
	if err == nil && (!there || ect.Hash(entry.Value) != v.Hash) {
		err = fmt.Errorf("descriptor: the text of version %d of %q is missing or changed: store it again", number, name)
	}
	if err != nil {
		return Version{}, nil, attest.Recording(err)
	}
	return v, entry.Value, nil
}

// List is the newest version of each name, sorted by name. Its error is a *[problem.RecordingError].
func (s *Service) List(ctx context.Context) ([]Version, error) {
	const page = 100
	out := []Version{}
	for after := ""; ; {
		entries, err := s.deps.Entries.List(ctx, KindPlan, KindPlan, after, page)
		if err != nil {
			return nil, attest.Recording(err)
		}
		for _, entry := range entries {
			after = entry.Key.ID
			versions, err := decode(entry.Value)
			if err != nil {
				s.deps.Logger.WarnContext(ctx, "the versions of a workflow descriptor cannot be read", slog.String("wf_id", after), slog.Any("error", err))
				continue
			}
			out = append(out, versions[len(versions)-1])
		}
		if len(entries) < page {
			return out, nil
		}
	}
}
