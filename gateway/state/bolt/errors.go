package bolt

import (
	"errors"
	"fmt"
)

// Reason says why a file cannot be opened.
type Reason string

// The reasons of an [OpenError].
const (
	ReasonLocked       Reason = "locked"       // another process has it open
	ReasonInaccessible Reason = "inaccessible" // cannot be created, read or written
	ReasonCorrupt      Reason = "corrupt"      // not as it was written; delete it, and the replay window begins anew
	ReasonFormat       Reason = "format"       // not ours, or written by another version
)

// OpenError: the file of the state cannot be used. It is for the operator, at
// the start; no caller ever meets it.
type OpenError struct {
	Path   string
	Reason Reason
	Err    error
}

func (e *OpenError) Error() string {
	if e.Reason == ReasonLocked {
		return fmt.Sprintf("state: another gateway uses %s: stop it, or give another folder with --dir, or another file in state.path", e.Path)
	}
	return fmt.Sprintf("state: %s is %s: %v", e.Path, e.Reason, e.Err)
}

// Unwrap gives the cause.
func (e *OpenError) Unwrap() error { return e.Err }

// ErrClosed is the cause of refusals after Close.
var ErrClosed = errors.New("state: closed")

var (
	errQueueFull = errors.New("state: the disk is slower than what it is given")
	errBroken    = errors.New("state: the file cannot be worked with any more")
	errCorrupt   = errors.New("state: the file is not as it was written")
	errNotOurs   = errors.New("state: the file holds something else")
	errChecksum  = fmt.Errorf("%w: a checksum is wrong", errCorrupt)
	errOrder     = fmt.Errorf("%w: the keys of a page are not in order", errCorrupt)
)

// corrupt says what is wrong, with a page or a bucket, never with content.
func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errCorrupt, fmt.Sprintf(format, args...))
}
