package bolt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// TestReader_KeysOutOfOrder: where a damaged page has a key that is less than the one that
// was looked for, reading ends with an error. A start went in a circle there.
func TestReader_KeysOutOfOrder(t *testing.T) {
	t.Parallel()
	const digit = 0x1111111111111111
	path, value := filepath.Join(t.TempDir(), "state"), bytes.Repeat([]byte("v"), pageSize/3)
	written := func(n uint64) []byte { return evidence.Key{A: n * digit}.AppendBinary(nil) }
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{PageSize: pageSize})
	if err != nil {
		t.Fatal(err)
	}
	table := evidence.Terms
	err = errors.Join(db.Update(func(tx *bbolt.Tx) error {
		bucket, err := tx.CreateBucket(evidenceBucket(table))
		for n := uint64(1); n < 15 && err == nil; n++ {
			err = bucket.Put(written(n), value)
		}
		return err
	}), db.Close())
	content, unread := os.ReadFile(path)
	damaged := content
	for n := uint64(5); n < 15; n++ { // in leaf pages alone a key has its value behind it
		damaged = bytes.ReplaceAll(damaged, append(written(n), "vvv"...), append(evidence.Key{B: n}.AppendBinary(nil), "vvv"...))
	}
	if err = errors.Join(err, unread, os.WriteFile(path, damaged, 0o600)); err != nil || bytes.Equal(content, damaged) {
		t.Fatal("the file is not damaged", err)
	}
	if db, err = bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	_ = db.View(func(tx *bbolt.Tx) error {
		r, read := &reader{tx: tx}, 0
		for key, _, found := r.Next(table, evidence.Key{}); found && read < 100; key, _, found = r.Next(table, evidence.Key{A: key.A + 1}) {
			read++
		}
		if read == 0 || read >= 15 || !errors.Is(r.damaged, errOrder) {
			t.Errorf("%d keys are read, and the reader says %v", read, r.damaged)
		}
		return nil
	})
}
