package store

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

// artifactsOf are artifacts that are not yet kept.
func artifactsOf(names ...string) (list []canonical.Artifact) {
	for _, name := range names {
		list = append(list, canonical.Artifact{ID: name, Name: "the " + name, Parts: []canonical.Part{{Kind: canonical.KindText, Text: name, Media: "text/plain"}}})
	}
	return list
}

// TestArtifacts_ListedAndRead: what a reply brought can be listed and read by its caller,
// at every replica, and is listed once however often it is replied.
func TestArtifacts_ListedAndRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		s := newReplica(t, "here", entries)
		task := TaskKey("alice", "painter", "t1")
		for range 2 {
			s.SaveArtifacts(t.Context(), task, Snapshot{Workflow: "w", Last: "jti", Artifacts: artifactsOf("picture", strings.Repeat("é", maxMetaText))})
		}
		<-time.After(time.Second)
		s.SaveArtifacts(t.Context(), TaskKey("alice", "painter", "t2"), Snapshot{Artifacts: artifactsOf("later")})
		list, next, err := s.ListArtifacts(t.Context(), task.Group, "")
		if err != nil || next != "" || len(list) != 2 || list[0].Task != "t2" {
			t.Fatalf("the list is %+v, then %q: %v", list, next, err)
		}
		if diff := cmp.Diff(ArtifactMeta{ID: "picture", Name: "the picture", Media: "text/plain"}, list[1].Artifacts[0]); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if others, _, err := s.ListArtifacts(t.Context(), TaskKey("bob", "painter", "t1").Group, ""); err != nil || len(others) > 0 {
			t.Errorf("another caller lists %+v: %v", others, err)
		}
		if snapshot := s.LoadArtifacts(t.Context(), task); snapshot == nil || snapshot.Workflow != "w" || len(snapshot.Artifacts) != 2 {
			t.Errorf("read is %+v", snapshot)
		}
		if s.LoadArtifacts(t.Context(), TaskKey("bob", "painter", "t1")) != nil {
			t.Error("another caller reads them")
		}
	})
}

// TestArtifacts_ListedWithoutWorkers: what comes of tasks while nothing goes on in the background any
// more is listed all the same, and not only the first time.
func TestArtifacts_ListedWithoutWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		s, other := newReplica(t, "here", entries), newReplica(t, "there", entries)
		s.deps.Workers.Close()
		for i := range 3 {
			task := TaskKey("alice", "painter", strconv.Itoa(i))
			s.SaveArtifacts(t.Context(), task, Snapshot{Workflow: "w", Last: "jti", Artifacts: artifactsOf("picture")})
			if list, _, err := other.ListArtifacts(t.Context(), task.Group, ""); err != nil || len(list) != i+1 {
				t.Errorf("%d of %d are listed: %v", len(list), i+1, err)
			}
		}
	})
}

// TestArtifacts_SlotsAreUsedAgain: the list of a group is bounded; the oldest leaves it.
func TestArtifacts_SlotsAreUsedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		entries := newMemory(t).Entries()
		s := newReplica(t, "here", entries)
		group := TaskKey("alice", "painter", "").Group
		for n := range slots + 1 {
			s.SaveArtifacts(t.Context(), TaskKey("alice", "painter", strconv.Itoa(n)), Snapshot{Artifacts: artifactsOf("a")})
		}
		listed := map[string]bool{}
		for cursor := ""; ; {
			list, next, err := s.ListArtifacts(t.Context(), group, cursor)
			if err != nil {
				t.Fatal(err)
			}
			for _, entry := range list {
				listed[entry.Task] = true
			}
			if cursor = next; next == "" {
				break
			}
		}
		if len(listed) != slots || listed["0"] || !listed[strconv.Itoa(slots)] {
			t.Errorf("%d tasks are listed, expected %d without the oldest", len(listed), slots)
		}
	})
}

// TestStored_ArtifactsAreReadAndWrittenAlike: replicas of an earlier version share them.
func TestStored_ArtifactsAreReadAndWrittenAlike(t *testing.T) {
	t.Parallel()
	const (
		snapshot = `{"Form":1,"Slot":"here.07","Workflow":"w","Last":"jti","Artifacts":null}` + "\n"
		entry    = `{"Form":1,"Task":"t1","At":"2026-11-25T12:00:00Z","Captions":[{"ID":"a","Name":"n","Media":"text/plain"}]}` + "\n"
	)
	at := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	for want, value := range map[string]any{
		snapshot: Snapshot{Form: 1, Slot: "here.07", Workflow: "w", Last: "jti"},
		entry:    IndexEntry{Form: 1, Task: "t1", At: at, Artifacts: []ArtifactMeta{{ID: "a", Name: "n", Media: "text/plain"}}},
	} {
		if got, err := EncodeJSON(value); err != nil || string(got) != want {
			t.Errorf("written is %s, stored was %s: %v", got, want, err)
		}
	}
	if key := artifactsKey(TaskKey("alice", "painter", "t1")); key.Issuer != "yield\x00alice\x00painter" || key.ID != "t1" {
		t.Errorf("the key is %+v", key)
	}
}
