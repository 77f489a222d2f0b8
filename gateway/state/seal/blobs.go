package seal

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/gateway/state"
)

// BlobStore is a driver of blobs whose values can be sealed anew, as [state.MemoryBlobs] explains it.
type BlobStore interface {
	state.Blobs
	Replace(ctx context.Context, key state.BlobKey, was, value []byte, until time.Time) error
}

// Blobs is a driver of blobs whose values are sealed for their group, ID and end. A blob that cannot
// be opened is a [*state.UnavailableError] around [ErrUnknownKey] or [ErrBroken]; lists, which open
// nothing, have it.
type Blobs struct {
	driver BlobStore
	box    *Box
}

var (
	_ state.Blobs = (*Blobs)(nil)
	_ BlobStore   = (*state.MemoryBlobs)(nil)
)

// A driver has space for a value of 1 MiB that is sealed.
var _ [state.MaxSealedOverhead - Overhead]struct{}

// NewBlobs seals what goes to a driver.
func NewBlobs(driver BlobStore, box *Box) *Blobs { return &Blobs{driver, box} }

// maxOvertaken bounds how often one Put looks again because others wrote the same blob meanwhile.
const maxOvertaken = 16

var errOvertaken = errors.New("seal: others wrote the blob each time that it was put: put it again")

// Put writes once. Equal values are sealed to other bytes each time, so where the driver has a blob
// of this name its value is opened and compared. One that is the same is put again as it is
// stored, which has the driver confirm it; for a later end it is sealed anew.
func (b *Blobs) Put(ctx context.Context, key state.BlobKey, value []byte, until time.Time) error {
	for range maxOvertaken {
		err := b.driver.Put(ctx, key, b.box.seal(blobName(key, until), value), until)
		if !taken(err) {
			return err
		}
		if err := b.putAgain(ctx, key, value, until); !errors.Is(err, errOvertaken) {
			return err
		}
	}
	return &state.UnavailableError{Err: errOvertaken}
}

// putAgain is Put where the driver has a blob of this name. [errOvertaken]: it left or changed meanwhile.
func (b *Blobs) putAgain(ctx context.Context, key state.BlobKey, value []byte, until time.Time) error {
	stored, end, found, err := b.driver.Get(ctx, key)
	switch {
	case err != nil:
		return err
	case !found:
		return errOvertaken
	}
	before, err := b.opened(ctx, key, stored, end)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(before, value):
		return &state.BlobTakenError{Key: state.BlobKey{Group: key.Group, ID: key.ID}}
	case until.After(end):
		err = b.driver.Replace(ctx, key, stored, b.box.seal(blobName(key, until), value), until)
	default:
		err = b.driver.Put(ctx, key, stored, end)
	}
	if taken(err) {
		return errOvertaken
	}
	return err
}

func taken(err error) bool { return errors.As(err, new(*state.BlobTakenError)) }

// Get finds a blob.
func (b *Blobs) Get(ctx context.Context, key state.BlobKey) ([]byte, time.Time, bool, error) {
	stored, until, found, err := b.driver.Get(ctx, key)
	if err != nil || !found {
		return nil, time.Time{}, false, err
	}
	value, err := b.opened(ctx, key, stored, until)
	if err != nil {
		return nil, time.Time{}, false, err
	}
	return value, until, true, nil
}

func (b *Blobs) opened(ctx context.Context, key state.BlobKey, stored []byte, until time.Time) ([]byte, error) {
	value, err := b.box.open(ctx, blobName(key, until), stored)
	if err != nil {
		return nil, &state.UnavailableError{Err: err}
	}
	return value, nil
}

// Delete removes a blob.
func (b *Blobs) Delete(ctx context.Context, key state.BlobKey) error {
	return b.driver.Delete(ctx, key)
}

// List lists a group with the sizes of the values in the clear.
func (b *Blobs) List(ctx context.Context, group, after string, limit int) ([]state.BlobInfo, error) {
	found, err := b.driver.List(ctx, group, after, limit)
	for i := range found {
		found[i].Size = max(0, found[i].Size-Overhead)
	}
	return found, err
}

// Usage says how full the driver is.
func (b *Blobs) Usage() state.Usage { return b.driver.Usage() }

// blobName is what a value is sealed for: a blob that is moved to another name, or whose end is
// changed, does not open.
func blobName(key state.BlobKey, until time.Time) []byte {
	return nameParts("blob", key.Group, key.ID, strconv.FormatInt(until.UnixNano(), 10))
}
