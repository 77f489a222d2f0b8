package store

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Bounds of the artifacts that callers can read after the reply.
const (
	// MaxArtifacts bounds, in bytes, what is kept of one task.
	MaxArtifacts = 768 << 10

	slots       = 64          // tasks that are listed for one caller and agent, by each replica
	maxGroups   = 1 << 12     // callers and agents whose slots a replica counts
	maxMeta     = 32          // artifacts of one task that are listed
	maxMetaText = 512         // bytes of one text of the list
	indexPage   = 32          // tasks on a page of the list
	indexRest   = time.Second // between two times that what is pending is listed
)

// Snapshot is the artifacts of a task, kept for its caller beside the replies.
type Snapshot struct {
	Form      int
	Slot      string // of the entry that lists it
	Workflow  string
	Last      ect.ID // of the ECT of the reply
	Artifacts []canonical.Artifact
}

// IndexEntry is what the list shows of a task.
type IndexEntry struct {
	Form      int
	Task      string
	At        time.Time
	Artifacts []ArtifactMeta `json:"Captions"`
}

// ArtifactMeta is what the list shows of an artifact.
type ArtifactMeta struct {
	ID                string
	Name, Description string `json:",omitempty"`
	Media             string `json:",omitempty"`
}

// artifactIndex counts the slots in use, so that the oldest is used again: no two
// replicas have a slot in common. Entries wait in pending until they are written.
type artifactIndex struct {
	mu      sync.Mutex
	next    map[string]int
	pending map[EntryKey]pendingEntry
	busy    bool // a worker is about to write

	writing sync.Mutex // held while entries are written
}

type pendingEntry struct {
	entry IndexEntry
	until time.Time
}

// add leaves an entry for the writer, in place of one for the same slot. It reports
// whether there is no writer yet.
func (i *artifactIndex) add(key EntryKey, p pendingEntry) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.pending == nil {
		i.pending = map[EntryKey]pendingEntry{}
	}
	i.pending[key] = p
	idle := !i.busy
	i.busy = true
	return idle
}

// take gives some of a group, or of any (""), to write.
func (i *artifactIndex) take(group string) map[EntryKey]pendingEntry {
	i.mu.Lock()
	defer i.mu.Unlock()
	taken := map[EntryKey]pendingEntry{}
	for key, p := range i.pending {
		if len(taken) == slots {
			break
		}
		if group == "" || key.Group == group {
			taken[key] = p
			delete(i.pending, key)
		}
	}
	if group == "" && len(taken) == 0 {
		i.busy = false
	}
	return taken
}

// slot is the next one of a group.
func (i *artifactIndex) slot(group, replica string) string {
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, counted := i.next[group]; i.next == nil || !counted && len(i.next) >= maxGroups {
		i.next = map[string]int{}
	}
	n := i.next[group]
	i.next[group] = (n + 1) % slots
	return replica + "." + string([]byte{'0' + byte(n/10), '0' + byte(n%10)}) //nolint:gosec // below slots
}

// SaveArtifacts keeps the artifacts of a task's reply for EndedLife, and lists them. What
// is too large, or does not reach the store, costs the caller no more than that it cannot
// ask for it again.
func (s *Store) SaveArtifacts(ctx context.Context, task EntryKey, snapshot Snapshot) {
	snapshot.Form = RecordForm
	if before := s.LoadArtifacts(ctx, task); before == nil {
		snapshot.Slot = s.index.slot(task.Group, s.deps.Replica)
	} else if snapshot.Slot = before.Slot; sameArtifacts(before.Artifacts, snapshot.Artifacts) {
		return
	}
	blob, err := EncodeJSON(snapshot)
	if err != nil || len(blob) > MaxArtifacts {
		s.deps.Logger.InfoContext(ctx, "artifacts not kept", slog.String("task", task.ID), slog.Int("bytes", len(blob)))
		return
	}
	until := s.deps.Now().Add(EndedLife)
	s.deps.Replies.Finish(ctx, artifactsKey(task), blob, until)
	s.addToIndex(ctx, task, &snapshot, until)
}

func sameArtifacts(a, b []canonical.Artifact) bool {
	first, err := EncodeJSON(a)
	second, err2 := EncodeJSON(b)
	return err == nil && err2 == nil && bytes.Equal(first, second)
}

// artifactsKey is where the artifacts of a task are kept among the replies. No issuer of
// tokens has such a name.
func artifactsKey(task EntryKey) ect.ReplayKey {
	return ect.ReplayKey{Issuer: ect.Identity("yield\x00" + task.Group), ID: ect.ID(task.ID)}
}

// LoadArtifacts finds the artifacts of a task; nil: they are not kept, or not this
// caller's.
func (s *Store) LoadArtifacts(ctx context.Context, task EntryKey) *Snapshot {
	blob, ok := s.deps.Replies.Load(ctx, artifactsKey(task))
	if !ok {
		return nil
	}
	snapshot := &Snapshot{}
	if err := json.Unmarshal(blob, snapshot); err != nil || snapshot.Form != RecordForm {
		return nil
	}
	return snapshot
}

// addToIndex lists a task, in place of what had its slot. No caller waits for that, but
// one that asks for the list.
func (s *Store) addToIndex(ctx context.Context, task EntryKey, snapshot *Snapshot, until time.Time) {
	entry := IndexEntry{Form: RecordForm, Task: task.ID, At: s.deps.Now()}
	for _, a := range snapshot.Artifacts[:min(len(snapshot.Artifacts), maxMeta)] {
		meta := ArtifactMeta{ID: a.ID, Name: bounded(a.Name), Description: bounded(a.Description)}
		if len(a.Parts) == 1 {
			meta.Media = bounded(a.Parts[0].Media)
		}
		if a.ID != "" && len(a.ID) <= MaxTaskID {
			entry.Artifacts = append(entry.Artifacts, meta)
		}
	}
	if !s.index.add(EntryKey{Kind: KindArtifacts, Group: task.Group, ID: snapshot.Slot}, pendingEntry{entry, until}) {
		return
	}
	if s.deps.Workers.Go(s.writeIndex) == nil {
		return
	}
	for s.writePending(ctx, "") { // to the end, or there would be no writer any more
		continue
	}
}

// bounded is the beginning of a text, at most maxMetaText bytes, cut between runes.
func bounded(text string) string {
	if len(text) <= maxMetaText {
		return text
	}
	cut := maxMetaText
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut]
}

// writeIndex writes what is pending until nothing is. In between it rests: what comes
// meanwhile goes to the disk together.
func (s *Store) writeIndex(ctx context.Context) {
	rest := time.NewTimer(indexRest)
	defer rest.Stop()
	for s.writePending(context.WithoutCancel(ctx), "") {
		rest.Reset(indexRest)
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
	}
}

// writePending writes what is pending of a group, or of any (""). It reports whether
// there was anything.
func (s *Store) writePending(ctx context.Context, group string) bool {
	s.index.writing.Lock()
	defer s.index.writing.Unlock()
	pending := s.index.take(group)
	var all sync.WaitGroup
	for key, p := range pending {
		all.Go(func() { s.writeEntry(ctx, key, p) })
	}
	all.Wait()
	return len(pending) > 0
}

func (s *Store) writeEntry(ctx context.Context, key EntryKey, p pendingEntry) {
	value, err := EncodeJSON(p.entry)
	if err == nil { // no other replica has this slot
		_, err = s.Update(ctx, key, func(Entry) ([]byte, time.Time, error) { return value, p.until, nil })
	}
	if err != nil {
		s.deps.Logger.WarnContext(ctx, "artifacts not listed", slog.Any("error", err))
	}
}

// ListArtifacts is a page of the tasks of a group whose artifacts can be read, the newest
// of the page first, and the cursor of the next page; empty: this is the last. Its error
// is a *[problem.RecordingError].
func (s *Store) ListArtifacts(ctx context.Context, group, cursor string) (list []IndexEntry, next string, err error) {
	for s.writePending(ctx, group) { // what is not on the list yet
		continue
	}
	entries, err := s.deps.Entries.List(ctx, KindArtifacts, group, cursor, indexPage)
	if err != nil {
		return nil, "", &problem.RecordingError{Err: err}
	}
	if len(entries) == indexPage {
		next = entries[indexPage-1].Key.ID
	}
	list = make([]IndexEntry, 0, len(entries))
	for _, entry := range entries {
		var e IndexEntry
		if json.Unmarshal(entry.Value, &e) == nil && e.Form == RecordForm {
			list = append(list, e)
		}
	}
	slices.SortStableFunc(list, func(a, b IndexEntry) int { return b.At.Compare(a.At) })
	return list, next, nil
}
