package bolt_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/bolt"
	"github.com/aepb/aepb-gateway/gateway/state/internal/index"
)

// TestEvidence_OutlivesMemory: one caller makes far more records than wait for the disk. All
// are there, the first too, also after a restart, and its workflow lists it.
func TestEvidence_OutlivesMemory(t *testing.T) {
	t.Parallel()
	const records = 20_000
	config := bolt.Config{Path: filePath(t), QueueBytes: 1 << 20}
	token := func(n int) ect.Record {
		r := record(n)
		r.Compact, r.Workflow, r.Holder = strings.Repeat("h", 2000)+"."+strings.Repeat("p", 500)+fmt.Sprint(n)+".s", fmt.Sprint("w", n/3), "caller"
		return r
	}
	s := open(t, config)
	for n := range records {
		if err := s.Put(t.Context(), token(n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if u := s.UsageOf(state.KindToken); u.Entries != records || u.Evicted != 0 {
			t.Fatalf("usage %+v", u)
		}
		for n := 0; n < records; n += 37 {
			if found, err := ecttest.Find(t.Context(), s, token(n).ID); err != nil || len(found) != 1 || found[0].Compact != token(n).Compact {
				t.Fatalf("record %d: %d, %v", n, len(found), err)
			}
		}
		if listed, err := ecttest.All(t.Context(), s, "w0"); err != nil || len(listed) != 3 || listed[0].ID != token(0).ID {
			t.Fatalf("the first workflow lists %d records, %v", len(listed), err)
		}
		closed(t, s)
		s = open(t, config)
	}
	if size := fileSize(t, config.Path); size > records*2000 {
		t.Errorf("%d bytes for %d records: their header is there more than once", size, records)
	}
}

// TestEvidence_BeginningOutlivesRestart: who began a workflow is known in the next life of the
// file too, when its records left before their end.
func TestEvidence_BeginningOutlivesRestart(t *testing.T) {
	t.Parallel()
	config := bolt.Config{Path: filePath(t), Bounds: state.Config{MaxTokens: 10}}
	s := open(t, config)
	root := record(1)
	root.Workflow, root.Parents = "begun", nil
	for n := range 30 {
		r := record(n)
		if n == 0 {
			r = root
		}
		if err := s.Put(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	closed(t, s)
	s = open(t, config)
	if listed, err := ecttest.All(t.Context(), s, "begun"); err != nil || len(listed) != 0 {
		t.Fatalf("the workflow still lists %d records, %v", len(listed), err)
	}
	stranger := root
	stranger.ID, stranger.Issuer, stranger.Compact = "other", "spiffe://a.test/mallory", "h.p.other"
	var foreign *ect.ForeignRootError
	if err := s.Put(t.Context(), stranger); !errors.As(err, &foreign) {
		t.Errorf("another begins it again: %v", err)
	}
}

// TestEvidence_Ends: what has ended leaves the disk, with its indexes, headers and workflows.
func TestEvidence_Ends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		for n := range 500 {
			r := record(n)
			r.Compact, r.Members = fmt.Sprintf("header-%d.payload.%d", n%7, n), []ect.Identity{"spiffe://a.test/member"}
			r.ID, r.Issuer = ect.ID(fmt.Sprint(n/40)), ect.Identity(fmt.Sprint("spiffe://a.test/", n%40)) // many with one id
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		closed(t, s)
		if n := rawKeys(t, path); n != 1 { // the totals
			t.Errorf("%d keys stay on the disk", n)
		}
	})
}

// TestEvidence_TablesAreMadeAgain: after an end without warning the records that were written
// after the tables are found by id, by workflow and in the order in which they came, and who
// began a workflow is known.
func TestEvidence_TablesAreMadeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const records = 200
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		for n := range records {
			r := record(n)
			r.Compact, r.Workflow = fmt.Sprintf("header-%d.payload.%d", n%7, n), fmt.Sprint("w", n/20)
			if n%20 == 0 {
				r.Parents = nil
			}
			if n%3 == 0 {
				r.Until = time.Now().Add(time.Second)
			}
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if n == records/2 {
				time.Sleep(11 * time.Second) // the tables of the first half are written
			}
		}
		flush(t, s)
		if n := rawKeys(t, powerCut(t, path)); n > 3*records {
			t.Fatalf("%d keys are written: the tables with each record", n)
		}
		time.Sleep(2 * time.Second)
		left := open(t, bolt.Config{Path: powerCut(t, path)})
		flush(t, s)
		flush(t, left)
		if a, b := s.UsageOf(state.KindToken).Entries, left.UsageOf(state.KindToken).Entries; b > a {
			t.Errorf("%d records, of %d", b, a)
		}
		for n := range 10 {
			wid := fmt.Sprint("w", n)
			want, err := ecttest.All(t.Context(), s, wid)
			got, err2 := ecttest.All(t.Context(), left, wid)
			if diff := cmp.Diff(want, got); diff != "" || err != nil || err2 != nil || len(got) == 0 {
				t.Fatal(wid, diff, err, err2)
			}
			for _, r := range got {
				if found, err := ecttest.Find(t.Context(), left, r.ID); err != nil || len(found) != 1 {
					t.Errorf("record %s: found %d, %v", r.ID, len(found), err)
				}
			}
			standing, err := left.Standing(t.Context(), wid, record(0).Issuer)
			if err != nil || !standing.Root {
				t.Errorf("%s: who began it is not known: %+v, %v", wid, standing, err)
			}
		}
		closed(t, left)
	})
}

// TestEvidence_MembersOfWorkflows: few and many members of a workflow are known after a
// restart, and nothing is left of them when its records have ended.
func TestEvidence_MembersOfWorkflows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workflows = 20
		path := filePath(t)
		s := open(t, bolt.Config{Path: path})
		for n := range workflows * workflows {
			if n/workflows > n%workflows { // workflow n has n members
				continue
			}
			r := record(n)
			r.Workflow, r.Members = fmt.Sprint("w", n%workflows), []ect.Identity{"member-0", member(n / workflows)}
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			for n := range workflows * workflows {
				wantMember(t, s, fmt.Sprint("w", n%workflows), member(n/workflows), n/workflows <= n%workflows)
			}
			closed(t, s)
			s = open(t, bolt.Config{Path: path})
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		closed(t, s)
		if n := rawKeys(t, path); n != 1 { // the totals
			t.Errorf("%d keys stay on the disk", n)
		}
	})
}

// TestEvidence_MembersOfEarlierFormat: in format 6 each member is in the table of members.
func TestEvidence_MembersOfEarlierFormat(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	s := open(t, bolt.Config{Path: path})
	r := record(1)
	r.Members = []ect.Identity{member(1)}
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	moveMember(t, path)
	s = open(t, bolt.Config{Path: path})
	wantMember(t, s, r.Workflow, member(1), true)
	r = record(2)
	r.Members = []ect.Identity{member(1), member(2)}
	if err := s.Put(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	closed(t, s)
	s = open(t, bolt.Config{Path: path})
	for n, want := range []bool{false, true, true} {
		wantMember(t, s, r.Workflow, member(n), want)
	}
	closed(t, s)
}

// moveMember moves the only member of the only workflow to where format 6 has it.
func moveMember(t *testing.T, path string) {
	t.Helper()
	const before, keySize = 80, 24 // of the value of a workflow
	rewrite(t, path, func(tx *bbolt.Tx) error {
		workflows := tx.Bucket([]byte("evidence c"))
		var at, value []byte
		err := workflows.ForEach(func(key, sealed []byte) error {
			if len(sealed) == 4+before+16 {
				at, value = bytes.Clone(key), bytes.Clone(sealed[4:])
			}
			return nil
		})
		if err != nil || at == nil {
			return errors.Join(err, errors.New("no workflow with one member"))
		}
		copy(value[40:56], value[before:])
		name := append(bytes.Clone(value[before:]), make([]byte, keySize-16)...)
		return errors.Join(
			workflows.Put(at, bolt.Seal(string(at), value[:before])),
			tx.Bucket([]byte("evidence d")).Put(name, make([]byte, 16)),
			tx.Bucket([]byte("meta")).Put([]byte("format"), bolt.Seal("format", []byte{6})),
		)
	})
}

func member(n int) ect.Identity { return ect.Identity(fmt.Sprint("member-", n)) }

func wantMember(t *testing.T, s *bolt.Store, wid string, who ect.Identity, want bool) {
	t.Helper()
	if got, err := s.Standing(t.Context(), wid, who); err != nil || got.Member != want {
		t.Errorf("%s in %s: got %+v, %v, want member %v", who, wid, got, err, want)
	}
}

// TestEvidence_IDsOfEarlierFormat: before format 7 the keys of ids that begin with the time were not in the order of their
// times. What was written then is found, also beside what comes later.
func TestEvidence_IDsOfEarlierFormat(t *testing.T) {
	t.Parallel()
	path := filePath(t)
	timed := func(n int, at time.Time) ect.Record {
		id := func(last int) string {
			ms := fmt.Sprintf("%012x", at.UnixMilli())
			return fmt.Sprintf("%s-%s-7000-8000-%012d", ms[:8], ms[8:], last)
		}
		r := record(n)
		r.ID, r.Workflow, r.Members = ect.ID(id(n)), id(1000+n/2), []ect.Identity{member(1)}
		return r
	}
	early, late := time.Now(), time.Now().Add(2*time.Hour)
	records := []ect.Record{timed(0, early), timed(1, early), timed(2, late), timed(3, late)}
	s := open(t, bolt.Config{Path: path})
	want := func(count int) {
		t.Helper()
		if u := s.UsageOf(state.KindToken); u.Entries != count {
			t.Errorf("there are %d records, want %d", u.Entries, count)
		}
		for _, r := range records[:count] {
			if found, err := ecttest.Find(t.Context(), s, r.ID); err != nil || len(found) != 1 || found[0].Compact != r.Compact {
				t.Errorf("%s: %d records, %v", r.ID, len(found), err)
			}
			if listed, err := ecttest.All(t.Context(), s, r.Workflow); err != nil || len(listed) != 2 {
				t.Errorf("%s: %d records, %v", r.Workflow, len(listed), err)
			}
			wantMember(t, s, r.Workflow, member(1), true)
		}
	}
	put := func(some []ect.Record) {
		t.Helper()
		for _, r := range some {
			if err := s.Put(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(records[:2])
	want(2)
	closed(t, s)
	disorder(t, path, string(records[0].ID), string(records[1].ID), records[0].Workflow)
	for range 2 {
		s = open(t, bolt.Config{Path: path})
		want(2)
		put(records[:2]) // again
		want(2)
		closed(t, s)
	}
	s = open(t, bolt.Config{Path: path})
	put(records[2:])
	want(4)
	closed(t, s)
	s = open(t, bolt.Config{Path: path})
	want(4)
	closed(t, s)
	disorder(t, path, string(records[2].ID), string(records[3].ID), records[2].Workflow) // else it fails
}

// disorder gives ids the keys that format 6 has for them.
func disorder(t *testing.T, path string, ids ...string) {
	t.Helper()
	const size = 24 // of a key: two numbers of the id, and one that says what it stands with
	rewrite(t, path, func(tx *bbolt.Tx) (err error) {
		for _, name := range []string{"evidence b", "evidence c"} {
			b := tx.Bucket([]byte(name))
			for _, id := range ids {
				plain := index.KeyOf(id)
				for key, value := range all(b) {
					if key[8:16] != string(plain[8:]) {
						continue
					}
					if key[:8] == string(plain[:8]) {
						err = errors.Join(err, fmt.Errorf("%s: %s has no key in the order of times", name, id))
					}
					moved := string(plain[:]) + key[16:]
					if name == "evidence c" && key[16:] == string(make([]byte, 8)) { // of the workflow itself
						value = string(bolt.Seal(moved, []byte(value[4:])))
					}
					err = errors.Join(err, b.Delete([]byte(key)), b.Put([]byte(moved), []byte(value)))
				}
			}
		}
		totals, key := tx.Bucket([]byte("evidence h")), make([]byte, size)
		earlier := bytes.Clone(totals.Get(key)[:56])
		return errors.Join(err, totals.Put(key, earlier), tx.Bucket([]byte("meta")).Put([]byte("format"), bolt.Seal("format", []byte{6})))
	})
}

// all is a bucket.
func all(b *bbolt.Bucket) map[string]string {
	found := map[string]string{}
	_ = b.ForEach(func(key, value []byte) error {
		found[string(key)] = string(value)
		return nil
	})
	return found
}

// rewrite changes a file that is closed.
func rewrite(t *testing.T, path string, update func(tx *bbolt.Tx) error) {
	t.Helper()
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(db.Update(update), db.Close()); err != nil {
		t.Fatal(err)
	}
}
