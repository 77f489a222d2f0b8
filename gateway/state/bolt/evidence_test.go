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
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
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
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

func member(n int) ect.Identity { return ect.Identity(fmt.Sprint("member-", n)) }

func wantMember(t *testing.T, s *bolt.Store, wid string, who ect.Identity, want bool) {
	t.Helper()
	if got, err := s.Standing(t.Context(), wid, who); err != nil || got.Member != want {
		t.Errorf("%s in %s: got %+v, %v, want member %v", who, wid, got, err, want)
	}
}
