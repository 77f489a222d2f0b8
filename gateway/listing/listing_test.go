package listing_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/directory/admindoc"
	"github.com/aepb/aepb-gateway/gateway/listing"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

type quiet struct{}

func (quiet) Describe(context.Context, transport.Endpoint) (*canonical.Description, transport.Endpoint, error) {
	return nil, transport.Endpoint{}, errors.New("it is not asked")
}
func (quiet) Allow(string)    {}
func (quiet) Disallow(string) {}

type replica struct {
	*listing.Agents

	directory *directory.Directory
	logs      *strings.Builder
}

func newReplica(t *testing.T, entries listing.Entries) replica {
	t.Helper()
	r := replica{logs: &strings.Builder{}}
	var err error
	r.directory, err = directory.New(directory.Deps{
		Describers: map[canonical.Binding]transport.Describer{"a2a-v1": quiet{}, "mcp-v1": quiet{}}, Egress: quiet{},
		Now: time.Now, Logger: slog.New(slog.DiscardHandler),
	})
	if err == nil {
		r.Agents, err = listing.New(listing.Deps{Directory: r.directory, Entries: entries, Now: time.Now, Logger: slog.New(slog.NewTextHandler(r.logs, nil))})
	}
	must(t, err)
	return r
}

func newEntries(t *testing.T) *state.Entries {
	t.Helper()
	s, err := state.New(state.Config{}, state.Deps{Now: time.Now, Epoch: time.Now()})
	must(t, err)
	return s.Entries()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func agent(name, host string) admindoc.Agent {
	return admindoc.Agent{Name: name, Endpoints: []admindoc.Endpoint{{Binding: "a2a-v1", URL: "https://" + host + "/a2a"}}}
}

func (r replica) host(name string) string {
	found, ok := r.directory.Find(name)
	if !ok {
		return ""
	}
	return strings.TrimSuffix(strings.TrimPrefix(found.Endpoints[0].URL, "https://"), "/a2a")
}

// Each replica sees within seconds what another added, replaced and removed.
func TestAgents_ReplicasFollow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newEntries(t)
		one, two := newReplica(t, entries), newReplica(t, entries)
		ctx, end := context.WithCancel(t.Context())
		defer end()
		go func() { _ = two.Run(ctx) }()
		follows := func(want string) {
			time.Sleep(3 * time.Second)
			if got := two.host("extra"); got != want {
				t.Errorf("the other replica has it at %q, want %q", got, want)
			}
		}
		must(t, one.Put(ctx, agent("extra", "first")))
		follows("first")
		must(t, one.Put(ctx, agent("extra", "second")))
		follows("second")
		if found, err := one.Remove(ctx, "extra"); err != nil || !found {
			t.Error(found, err)
		}
		follows("")
	})
}

// An agent of the configuration counts, whatever the state has under its name; what the
// state has counts again when the configuration has it no more.
func TestAgents_ConfigurationIsAbove(t *testing.T) {
	t.Parallel()
	r := newReplica(t, newEntries(t))
	must(t, r.Put(t.Context(), agent("extra", "added")))
	must(t, r.Configure([]directory.Agent{listing.AgentOf(agent("extra", "configured"), false)}))
	must(t, r.Look(t.Context()))
	if r.host("extra") != "configured" || r.From("extra") != listing.FromConfiguration || !strings.Contains(r.logs.String(), "left out") {
		t.Errorf("at %q from %q; log: %s", r.host("extra"), r.From("extra"), r.logs)
	}
	err := r.Put(t.Context(), agent("extra", "added"))
	if _, ok := errors.AsType[*directory.ConfiguredError](err); !ok {
		t.Error(err)
	}
	_, err = r.Remove(t.Context(), "extra")
	if _, ok := errors.AsType[*directory.ConfiguredError](err); !ok {
		t.Error(err)
	}
	must(t, r.Configure(nil))
	must(t, r.Look(t.Context()))
	if r.host("extra") != "added" {
		t.Errorf("at %q", r.host("extra"))
	}
}

// An agent that was added has no undo; one of the configuration has what the last configuration says.
func TestAgents_UndoIsOfTheConfiguration(t *testing.T) {
	t.Parallel()
	r := newReplica(t, newEntries(t))
	must(t, r.Put(t.Context(), agent("extra", "added")))
	for _, want := range []string{"search", "list"} {
		configured := listing.AgentOf(agent("extra", "configured"), false)
		configured.Undo.ReadOnly = []string{want}
		must(t, r.Configure([]directory.Agent{configured}))
		must(t, r.Look(t.Context()))
		if got, _ := r.directory.Find("extra"); !got.Undo.IsReadOnly(want) || len(got.Undo.ReadOnly) != 1 {
			t.Errorf("read-only are %v, expected %s", got.Undo.ReadOnly, want)
		}
	}
	must(t, r.Configure(nil))
	must(t, r.Look(t.Context()))
	if got, ok := r.directory.Find("extra"); !ok || got.Undo.ReadOnly != nil {
		t.Errorf("the added agent has %+v", got.Undo)
	}
}

// A record that does not hold what an operator could add is logged once and left out.
func TestAgents_BadRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	entries := newEntries(t)
	r := newReplica(t, entries)
	must(t, r.Put(t.Context(), agent("good", "good")))
	for name, record := range map[string]string{
		"text": "x", "newer": `{"name":"newer","endpoints":[],"unheard":1}`, "other": `{"name":"good","endpoints":[{"binding":"a2a-v1","url":"https://evil"}]}`,
		"plain": `{"name":"plain","endpoints":[{"binding":"a2a-v1","url":"http://evil"}]}`,
	} {
		_, _, err := entries.Swap(t.Context(), state.EntryKey{Kind: "agent", Group: "agent", ID: name}, 0, []byte(record), time.Now().Add(time.Hour))
		must(t, err)
	}
	must(t, r.Look(t.Context()))
	must(t, r.Look(t.Context()))
	if list := r.directory.List(); len(list) != 1 || r.host("good") != "good" {
		t.Errorf("listed: %v", list)
	}
	if got := strings.Count(r.logs.String(), "left out"); got != 4 {
		t.Errorf("%d lines: %s", got, r.logs)
	}
}

// The number of added agents is bounded, and so is the size of each.
func TestAgents_AreBounded(t *testing.T) {
	t.Parallel()
	for name, entries := range map[string]listing.Entries{"state": newEntries(t), "process": nil} {
		r := newReplica(t, entries)
		for i := range listing.Most {
			must(t, r.Put(t.Context(), agent(fmt.Sprint("a", i), "host")))
		}
		must(t, r.Put(t.Context(), agent("a1", "again")))
		err := r.Put(t.Context(), agent("more", "host"))
		if _, ok := errors.AsType[*directory.InvalidAgentError](err); !ok || r.host("more") != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := agent("large", "host")
	for i := range 60 {
		large.Callers = append(large.Callers, fmt.Sprintf("spiffe://example.org/%d/%s", i, strings.Repeat("a", 500)))
	}
	r := newReplica(t, newEntries(t))
	if err := r.Put(t.Context(), large); err == nil || r.host("large") != "" {
		t.Error("a large document was taken")
	}
}

// TestAgents_ProgramsAreConfigured: an operator of serve cannot have this machine run a
// program, by adding an agent or by a record in the state.
func TestAgents_ProgramsAreConfigured(t *testing.T) {
	t.Parallel()
	runs := admindoc.Agent{Name: "files", Endpoints: []admindoc.Endpoint{{Binding: "mcp-v1", URL: "stdio:?arg=sh&arg=-c&arg=id"}}}
	entries := newEntries(t)
	r := newReplica(t, entries)
	if err := r.Put(t.Context(), runs); err == nil || !strings.Contains(err.Error(), "configuration file alone") {
		t.Errorf("it is added: %v", err)
	}
	record, err := json.Marshal(runs)
	must(t, err)
	_, _, err = entries.Swap(t.Context(), state.EntryKey{Kind: "agent", Group: "agent", ID: "files", Owner: "agent files"}, 0, record, time.Now().Add(time.Hour))
	must(t, err)
	must(t, r.Look(t.Context()))
	if r.host("files") != "" || !strings.Contains(r.logs.String(), "configuration file alone") {
		t.Errorf("the record is used: %s", r.logs)
	}
	must(t, r.Configure([]directory.Agent{listing.AgentOf(runs, false)}))
	if r.host("files") == "" {
		t.Error("the configuration cannot name a program")
	}
	open, err := listing.New(listing.Deps{Directory: r.directory, Open: true, Now: time.Now, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	runs.Name = "other"
	must(t, open.Put(t.Context(), runs)) // on a development gateway
}
