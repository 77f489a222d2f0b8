package bolt

import (
	"os"

	"go.etcd.io/bbolt"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/evidence"
)

// Handle is the file that bbolt writes to.
func (s *Store) Handle() *os.File { return s.owner.file.handle }

// DB is the database below.
func (s *Store) DB() *bbolt.DB { return s.owner.file.db }

// What tests of time need to know.
const (
	RetryEvery = retryEvery
	LockWait   = lockWait
	PageSize   = pageSize
)

// Seal writes a value as the file has it.
func Seal(key string, content []byte) []byte { return seal([]byte(key), content) }

// ErrBroken is the cause when bbolt gave up.
var ErrBroken = errBroken

// Each passes on what a file holds of a kind.
func Each(tx *bbolt.Tx, kind state.Kind, each func(content []byte)) error {
	name := []byte(kind.String())
	if kind == state.KindToken {
		name = evidenceBucket(evidence.Records)
	}
	return tx.Bucket(name).ForEach(func(key, sealed []byte) error {
		content, err := unseal(key, sealed)
		each(content)
		return err
	})
}
