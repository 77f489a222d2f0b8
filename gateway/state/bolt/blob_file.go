package bolt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/aepb/aepb-gateway/gateway/state"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// The buckets of blobs. A start reads the first alone: group and ID to serial, size, end and owner.
// The second has the bytes by serial, so that what is new is appended and a commit writes few bytes
// of other blobs. A file without them is of a gateway that kept no blobs yet.
const (
	blobBucket      = "blobs"
	blobBytesBucket = "blob bytes"
)

func blobNameOf(key state.BlobKey) []byte {
	return encoding.AppendText(encoding.AppendText(nil, key.Group), key.ID)
}

// appendBlob appends what the file says of a blob beside its name.
func appendBlob(b []byte, info state.BlobInfo, serial uint64) []byte {
	b = binary.BigEndian.AppendUint64(b, serial)
	b = binary.AppendUvarint(b, uint64(info.Size)) //nolint:gosec // not negative
	return encoding.AppendText(encoding.AppendInstant(b, info.Until), info.Key.Owner)
}

// readBlobInfo reads a record of the first bucket.
func readBlobInfo(name, sealed []byte) (info state.BlobInfo, serial uint64, err error) {
	content, err := unseal(name, sealed)
	if err != nil {
		return info, 0, err
	}
	names, fields := encoding.Reader{Data: string(name)}, encoding.Reader{Data: string(content)}
	info.Key.Group, info.Key.ID = names.Text(), names.Text()
	if number := fields.Take(8); number != "" {
		serial = binary.BigEndian.Uint64([]byte(number))
	}
	size := fields.Number()
	info.Size, info.Until, info.Key.Owner = int(size), fields.Instant(), fields.Text() //nolint:gosec // checked below
	if !names.Done() || !fields.Done() || size > bbolt.MaxValueSize {
		return info, 0, corrupt("a blob's record of %d bytes", len(sealed))
	}
	return info, serial, nil
}

// loadBlobs passes on which blobs there are.
func (f *file) loadBlobs(each func(info state.BlobInfo, serial uint64)) error {
	return f.view(func(tx *bbolt.Tx) error {
		records, values := tx.Bucket([]byte(blobBucket)), tx.Bucket([]byte(blobBytesBucket))
		if records == nil && values == nil {
			return nil
		}
		if records == nil || values == nil {
			return corrupt("one of the buckets %q and %q is missing", blobBucket, blobBytesBucket)
		}
		return records.ForEach(func(name, sealed []byte) error {
			info, serial, err := readBlobInfo(name, sealed)
			if err != nil {
				return fmt.Errorf("%s: %w", blobBucket, err)
			}
			each(info, serial)
			return nil
		})
	})
}

// readBlob reads the bytes of a blob; nil: there is no such blob. It may be called from any goroutine.
func (f *file) readBlob(serial uint64) (value []byte, err error) {
	err = f.view(func(tx *bbolt.Tx) error {
		key := keyOf(serial)
		sealed := tx.Bucket([]byte(blobBytesBucket)).Get(key[:])
		if sealed == nil {
			return nil
		}
		content, err := unseal(key[:], sealed)
		value = append([]byte{}, content...)
		return err
	})
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		err = ErrClosed
	}
	return value, err
}

// putBlob writes a blob in place of another of its name. Nil: the bytes stay as they are.
func putBlob(tx *bbolt.Tx, info state.BlobInfo, serial uint64, value []byte) error {
	if value != nil {
		if err := deleteBlob(tx, info.Key); err != nil {
			return err
		}
		values, key := tx.Bucket([]byte(blobBytesBucket)), keyOf(serial)
		values.FillPercent = 1 // they are appended
		if err := values.Put(key[:], seal(key[:], value)); err != nil {
			return err
		}
	}
	name := blobNameOf(info.Key)
	return tx.Bucket([]byte(blobBucket)).Put(name, seal(name, appendBlob(nil, info, serial)))
}

// deleteBlob deletes a blob and its bytes; one that is not there is no error.
func deleteBlob(tx *bbolt.Tx, of state.BlobKey) error {
	records, name := tx.Bucket([]byte(blobBucket)), blobNameOf(of)
	sealed := records.Get(name)
	if sealed == nil {
		return nil
	}
	_, serial, err := readBlobInfo(name, bytes.Clone(sealed))
	if err != nil {
		return err
	}
	key := keyOf(serial)
	return errors.Join(tx.Bucket([]byte(blobBytesBucket)).Delete(key[:]), records.Delete(name))
}
