package mcpbridge_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/mcpbridge"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/task/store"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// entries are those of a memory, which can fail.
type entries struct {
	store.Entries

	mu             sync.Mutex
	fail, failSwap error
	swaps          int
}

// away makes all calls fail, or Swap alone; nil: none fails.
func (e *entries) away(all, swap error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fail, e.failSwap = all, swap
}

// writes counts the calls of Swap so far.
func (e *entries) writes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.swaps
}

func (e *entries) failing() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fail
}

func (e *entries) Get(ctx context.Context, key store.EntryKey) (store.Entry, bool, error) {
	if err := e.failing(); err != nil {
		return store.Entry{}, false, err
	}
	return e.Entries.Get(ctx, key)
}

func (e *entries) Swap(ctx context.Context, key store.EntryKey, old uint64, value []byte, until time.Time) (uint64, bool, error) {
	e.mu.Lock()
	e.swaps++
	err := errors.Join(e.fail, e.failSwap)
	e.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	return e.Entries.Swap(ctx, key, old, value, until)
}

func (e *entries) List(ctx context.Context, kind, group, after string, limit int) ([]store.Entry, error) {
	if err := e.failing(); err != nil {
		return nil, err
	}
	return e.Entries.List(ctx, kind, group, after, limit)
}

// newStore makes a store of tasks over entries in memory, which closes with the test.
func newStore(t *testing.T) (*store.Store, *entries) {
	t.Helper()
	memory, err := state.New(state.Config{}, state.Deps{Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	workers, err := worker.NewGroup(0, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(workers.Close)
	all := &entries{Entries: memory.Entries()}
	return store.New(store.Deps{
		Entries: all, Replies: memory, Replica: "here", Now: time.Now, Logger: slog.New(slog.DiscardHandler),
		StatusTime: func(canonical.Binding) time.Time { return time.Time{} }, Workers: workers, Queues: workers,
	}), all
}

// texts are parts of one text each.
func texts(list ...string) (parts []canonical.Part) {
	for _, text := range list {
		parts = append(parts, canonical.Part{Kind: canonical.KindText, Text: text, Media: "text/plain"})
	}
	return parts
}

// TestArtifactURI_RoundTrip: what is written is read again, whatever names hold.
func TestArtifactURI_RoundTrip(t *testing.T) {
	t.Parallel()
	names := []string{"a", "a b", "a/b", "ä", "%2F", "a?b#c", "..", "", "\x00", "a2a://x", "parts"}
	for _, agent := range names {
		for _, task := range names {
			for _, artifact := range names {
				for _, part := range []int{mcpbridge.Whole, 0, 7} {
					want := mcpbridge.Address{Agent: agent, Task: task, Artifact: artifact, Part: part}
					uri := mcpbridge.ArtifactURI(agent, task, artifact, part)
					if got, ok := mcpbridge.Parse(uri); !ok || got != want {
						t.Errorf("%s is read as %+v, %t, expected %+v", uri, got, ok, want)
					}
				}
			}
		}
	}
}

// TestParse_OneSpelling: what ArtifactURI does not write names nothing.
func TestParse_OneSpelling(t *testing.T) {
	t.Parallel()
	long := "a2a://a/tasks/" + strings.Repeat("t", 2048-len("a2a://a/tasks//artifacts/x")) + "/artifacts/x"
	if _, ok := mcpbridge.Parse(long); !ok || len(long) != 2048 {
		t.Errorf("a URI of %d bytes is not read", len(long))
	}
	for name, uri := range map[string]string{
		"empty":                        "",
		"another scheme":               "file://a/tasks/t/artifacts/x",
		"a scheme in upper case":       "A2A://a/tasks/t/artifacts/x",
		"no artifact":                  "a2a://a/tasks/t/artifacts",
		"one level more":               "a2a://a/tasks/t/artifacts/x/parts",
		"two levels more":              "a2a://a/tasks/t/artifacts/x/parts/0/1",
		"another word":                 "a2a://a/task/t/artifacts/x",
		"another second word":          "a2a://a/tasks/t/artifact/x",
		"another third word":           "a2a://a/tasks/t/artifacts/x/part/0",
		"a negative part":              "a2a://a/tasks/t/artifacts/x/parts/-1",
		"a part with a zero":           "a2a://a/tasks/t/artifacts/x/parts/00",
		"a part with a sign":           "a2a://a/tasks/t/artifacts/x/parts/+1",
		"no number":                    "a2a://a/tasks/t/artifacts/x/parts/one",
		"a number too large":           "a2a://a/tasks/t/artifacts/x/parts/99999999999999999999",
		"escaped where it need not be": "a2a://%61/tasks/t/artifacts/x",
		"escaped in lower case":        "a2a://a/tasks/%2f/artifacts/x",
		"not escaped":                  "a2a://a/tasks/a b/artifacts/x",
		"a broken escape":              "a2a://a/tasks/t/artifacts/%zz",
		"a query":                      "a2a://a/tasks/t/artifacts/x?y",
		"too long":                     long + "x",
	} {
		if got, ok := mcpbridge.Parse(uri); ok {
			t.Errorf("%s: read as %+v, expected that it is refused", name, got)
		}
	}
}

// FuzzArtifactURI_Parse: a URI is refused, or is the only spelling of what it names.
func FuzzArtifactURI_Parse(f *testing.F) {
	for _, seed := range []string{
		"a2a://a/tasks/t/artifacts/x", "a2a://a%20b/tasks/%2F/artifacts/x/parts/3", "a2a:////tasks//artifacts/", "a2a://a/tasks/t/artifacts/x/parts/-1", "a2a://%",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, uri string) {
		a, ok := mcpbridge.Parse(uri)
		if !ok {
			return
		}
		if again := mcpbridge.ArtifactURI(a.Agent, a.Task, a.Artifact, a.Part); again != uri || a.Part < mcpbridge.Whole {
			t.Errorf("%q is read as %+v, which is written %q", uri, a, again)
		}
	})
}

// TestPatterns_NameArtifacts: a pattern that is filled in is the URI of an artifact.
func TestPatterns_NameArtifacts(t *testing.T) {
	t.Parallel()
	fill := strings.NewReplacer("{task}", "t", "{artifact}", "x", "{part}", "2")
	var got []string
	for _, pattern := range mcpbridge.Patterns("my agent") {
		got = append(got, pattern.Name+" "+fill.Replace(pattern.URI))
		if pattern.Description == "" {
			t.Errorf("%s has no description", pattern.URI)
		}
	}
	want := []string{"artifact " + mcpbridge.ArtifactURI("my agent", "t", "x", mcpbridge.Whole), "part " + mcpbridge.ArtifactURI("my agent", "t", "x", 2)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestList_OfOneCaller: a caller's artifacts at an agent are listed with their URIs, and no
// one else's.
func TestList_OfOneCaller(t *testing.T) {
	t.Parallel()
	tasks, _ := newStore(t)
	artifacts := mcpbridge.Artifacts{Tasks: tasks}
	mine := store.TaskKey("alice", "painter", "t 1")
	tasks.SaveArtifacts(t.Context(), mine, store.Snapshot{Artifacts: []canonical.Artifact{
		{ID: "x", Name: "the picture", Description: "in oil", Parts: texts("a")},
		{ID: "y", Parts: texts("b", "c")},
	}})
	tasks.SaveArtifacts(t.Context(), store.TaskKey("bob", "painter", "t2"), store.Snapshot{Artifacts: []canonical.Artifact{{ID: "z", Parts: texts("d")}}})
	want := []translators.Resource{
		{URI: "a2a://painter/tasks/t%201/artifacts/x", Name: "the picture", Description: "in oil", Media: "text/plain"},
		{URI: "a2a://painter/tasks/t%201/artifacts/y", Name: "y"},
	}
	got, next, err := artifacts.List(t.Context(), mine.Group, "painter", "")
	if diff := cmp.Diff(want, got); diff != "" || next != "" || err != nil {
		t.Errorf("then %q, %v, -want +got\n%s", next, err, diff)
	}
	if got, _, err := artifacts.List(t.Context(), store.TaskKey("carol", "painter", "").Group, "painter", ""); len(got) > 0 || err != nil {
		t.Errorf("a caller without tasks sees %+v, %v", got, err)
	}
}

// TestList_Cursors: a cursor that List returned gives the next page, and others are refused
// before the store is asked.
func TestList_Cursors(t *testing.T) {
	t.Parallel()
	tasks, memory := newStore(t)
	artifacts := mcpbridge.Artifacts{Tasks: tasks}
	group := store.TaskKey("alice", "painter", "").Group
	for n := range 40 {
		tasks.SaveArtifacts(t.Context(), store.TaskKey("alice", "painter", strconv.Itoa(n)), store.Snapshot{Artifacts: []canonical.Artifact{{ID: "x", Parts: texts("a")}}})
	}
	var seen []string
	for cursor, pages := "", 1; ; pages++ {
		list, next, err := artifacts.List(t.Context(), group, "painter", cursor)
		if err != nil || pages > 3 {
			t.Fatalf("page %d: %v", pages, err)
		}
		for _, one := range list {
			seen = append(seen, one.URI)
		}
		if cursor = next; next == "" {
			break
		}
	}
	slices.Sort(seen)
	if n := len(slices.Compact(seen)); n != 40 {
		t.Errorf("%d are listed, expected 40", n)
	}
	memory.away(&state.UnavailableError{}, nil)
	for name, cursor := range map[string]string{"upper case": "Here.01", "a zero byte": "a\x00", "a path": "../x", "too long": strings.Repeat("a", store.MaxTaskID+1)} {
		list, next, err := artifacts.List(t.Context(), group, "painter", cursor)
		if refused, ok := errors.AsType[*canonical.Error](err); !ok || refused.Code != canonical.CodeBadParams || len(list) > 0 || next != "" {
			t.Errorf("%s: %d, %q, %v, expected that the cursor is refused", name, len(list), next, err)
		}
	}
	if _, _, err := artifacts.List(t.Context(), group, "painter", ""); !is[*problem.RecordingError](err) {
		t.Errorf("while the store is away: %v", err)
	}
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestRead_WholeAndParts: an artifact is read with all its parts or one of them, and what
// MCP has no place for in a part is a loss.
func TestRead_WholeAndParts(t *testing.T) {
	t.Parallel()
	tasks, _ := newStore(t)
	artifacts := mcpbridge.Artifacts{Tasks: tasks}
	keyOf := func(task string) store.EntryKey { return store.TaskKey("alice", "painter", task) }
	parts := texts("a", "b", "c", "d", "e")
	parts[1].Name, parts[2].Title, parts[3].Description = "n", "t", "d"
	parts[0].Extensions = parts[0].Extensions.With("mcp-v1", []byte(`{}`))
	tasks.SaveArtifacts(t.Context(), keyOf("t"), store.Snapshot{Workflow: "w", Last: "jti", Artifacts: []canonical.Artifact{
		{ID: "other", Parts: texts("z")}, {ID: "x", Parts: parts}, {ID: "empty"},
	}})
	for uri, want := range map[string]struct{ contents, losses []string }{
		mcpbridge.ArtifactURI("painter", "t", "x", mcpbridge.Whole):     {[]string{"0 a", "1 b", "2 c", "3 d", "4 e"}, []string{"/body/contents/0", "/body/contents/1", "/body/contents/2", "/body/contents/3"}},
		mcpbridge.ArtifactURI("painter", "t", "x", 0):                   {[]string{"0 a"}, []string{"/body/contents/0"}},
		mcpbridge.ArtifactURI("painter", "t", "x", 4):                   {[]string{"4 e"}, nil},
		mcpbridge.ArtifactURI("painter", "t", "other", mcpbridge.Whole): {[]string{"0 z"}, nil},
		mcpbridge.ArtifactURI("painter", "t", "empty", mcpbridge.Whole): {},
	} {
		read, err := artifacts.Read(t.Context(), "painter", uri, keyOf)
		var contents, losses []string
		for _, c := range read.Contents {
			at, _ := mcpbridge.Parse(c.URI)
			contents = append(contents, strconv.Itoa(at.Part)+" "+c.Part.Text)
		}
		for _, l := range read.Losses {
			losses = append(losses, l.Path)
			if l.Code != canonical.LossMetadata || l.Fate != canonical.Dropped {
				t.Errorf("%s: the loss is %+v", uri, l)
			}
		}
		if diff := cmp.Diff(want.contents, contents) + cmp.Diff(want.losses, losses); diff != "" || err != nil || read.Workflow != "w" || read.Last != "jti" {
			t.Errorf("%s: %v, of %q, %q, -want +got\n%s", uri, err, read.Workflow, read.Last, diff)
		}
	}
}

// TestRead_LossOfOnePart: the path of a loss is that of the content in the answer, which
// has one part alone.
func TestRead_LossOfOnePart(t *testing.T) {
	t.Parallel()
	tasks, _ := newStore(t)
	keyOf := func(task string) store.EntryKey { return store.TaskKey("alice", "painter", task) }
	parts := texts("a", "b")
	parts[1].Name = "n"
	tasks.SaveArtifacts(t.Context(), keyOf("t"), store.Snapshot{Artifacts: []canonical.Artifact{{ID: "x", Parts: parts}}})
	read, err := mcpbridge.Artifacts{Tasks: tasks}.Read(t.Context(), "painter", mcpbridge.ArtifactURI("painter", "t", "x", 1), keyOf)
	if err != nil || len(read.Contents) != 1 || len(read.Losses) != 1 || read.Losses[0].Path != "/body/contents/0" {
		t.Errorf("read is %+v, %v, expected a loss at /body/contents/0", read, err)
	}
}

// TestRead_WhatIsNotThere: what is another's, or of another agent, is not told from what
// does not exist (R2).
func TestRead_WhatIsNotThere(t *testing.T) {
	t.Parallel()
	tasks, _ := newStore(t)
	artifacts := mcpbridge.Artifacts{Tasks: tasks}
	of := func(owner string) func(string) store.EntryKey {
		return func(task string) store.EntryKey { return store.TaskKey(owner, "painter", task) }
	}
	tasks.SaveArtifacts(t.Context(), of("alice")("t"), store.Snapshot{Artifacts: []canonical.Artifact{{ID: "x", Parts: texts("a")}}})
	for name, c := range map[string]struct {
		owner, agent, uri string
		found             bool
	}{
		"its caller":         {"alice", "painter", "a2a://painter/tasks/t/artifacts/x", true},
		"another caller":     {"bob", "painter", "a2a://painter/tasks/t/artifacts/x", false},
		"of another agent":   {"alice", "painter", "a2a://other/tasks/t/artifacts/x", false},
		"at another agent":   {"alice", "other", "a2a://painter/tasks/t/artifacts/x", false},
		"another task":       {"alice", "painter", "a2a://painter/tasks/t2/artifacts/x", false},
		"another artifact":   {"alice", "painter", "a2a://painter/tasks/t/artifacts/y", false},
		"a part too far":     {"alice", "painter", "a2a://painter/tasks/t/artifacts/x/parts/1", false},
		"another spelling":   {"alice", "painter", "a2a://painter/tasks/%74/artifacts/x", false},
		"of another scheme":  {"alice", "painter", "file:///etc/passwd", false},
		"the largest number": {"alice", "painter", "a2a://painter/tasks/t/artifacts/x/parts/9223372036854775807", false},
	} {
		read, err := artifacts.Read(t.Context(), c.agent, c.uri, of(c.owner))
		refused, is := errors.AsType[*canonical.Error](err)
		if c.found && (err != nil || len(read.Contents) != 1) || !c.found && (!is || refused.Code != canonical.CodeResourceNotFound || len(read.Contents) > 0) {
			t.Errorf("%s: %+v, %v, found: %t", name, read, err, c.found)
		}
	}
}
