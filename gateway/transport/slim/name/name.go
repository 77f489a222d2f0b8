package name

import (
	"crypto/rand"
	"encoding/binary"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"
)

// MaxWord bounds one word of a name, bytes. The protocol has no bound; ours
// keeps names usable as keys and labels.
const MaxWord = 255

// reserved is how many of the highest ids mean something else than an instance.
const reserved = 50

// ID is an instance's id, 128 bits.
type ID struct{ High, Low uint64 }

// AnyID is the id that means none: all bits set.
func AnyID() ID { return ID{math.MaxUint64, math.MaxUint64} }

// NewID makes a random id outside the reserved ones. It fails when the system
// has no randomness to give.
func NewID() (ID, error) {
	var data [16]byte
	for {
		if _, err := rand.Read(data[:]); err != nil {
			return ID{}, err
		}
		id := ID{binary.BigEndian.Uint64(data[:8]), binary.BigEndian.Uint64(data[8:])}
		if !id.Reserved() {
			return id, nil
		}
	}
}

// Reserved reports whether no instance may have the id.
func (i ID) Reserved() bool { return i.High == math.MaxUint64 && i.Low > math.MaxUint64-reserved }

// String is the id as a UUID.
func (i ID) String() string {
	var u uuid.UUID
	binary.BigEndian.PutUint64(u[:8], i.High)
	binary.BigEndian.PutUint64(u[8:], i.Low)
	return u.String()
}

// Name is an application's name. Comparable; the zero Name names none.
type Name struct {
	Org, Namespace, Service string
	ID                      ID // AnyID: any instance
}

// Error says why a text or an encoded form is no name. It quotes nothing.
type Error struct{ Reason string }

func (e *Error) Error() string { return "slim name: " + e.Reason }

// New is the name of any instance. Errors: *Error.
func New(org, namespace, service string) (Name, error) {
	n := Name{Org: org, Namespace: namespace, Service: service, ID: AnyID()}
	for _, word := range n.words() {
		if reason := unfit(word); reason != "" {
			return Name{}, &Error{reason}
		}
	}
	return n, nil
}

// Parse reads org/namespace/service or org/namespace/service/id, the id a UUID.
// Errors: *Error.
func Parse(text string) (Name, error) {
	words := strings.Split(text, "/")
	if len(words) != 3 && len(words) != 4 {
		return Name{}, &Error{"it has not three words, with or without an id"}
	}
	n, err := New(words[0], words[1], words[2])
	if err != nil || len(words) == 3 {
		return n, err
	}
	u, err := uuid.Parse(words[3])
	if err != nil || len(words[3]) != 36 {
		return Name{}, &Error{"the id is no UUID"}
	}
	n.ID = ID{binary.BigEndian.Uint64(u[:8]), binary.BigEndian.Uint64(u[8:])}
	if n.ID != AnyID() && n.ID.Reserved() {
		return Name{}, &Error{"the id is a reserved one"}
	}
	return n, nil
}

// unfit says why a word cannot be part of a name; "": it can.
func unfit(word string) string {
	switch {
	case word == "":
		return "a word is empty"
	case len(word) > MaxWord:
		return "a word is too long"
	case !utf8.ValidString(word):
		return "a word is not UTF-8"
	case strings.ContainsFunc(word, func(r rune) bool { return r == '/' || unicode.IsControl(r) || unicode.IsSpace(r) }):
		return "a word has a slash, a space or a control character in it"
	default:
		return ""
	}
}

func (n Name) words() [3]string { return [3]string{n.Org, n.Namespace, n.Service} }

// Any is the name of any instance.
func (n Name) Any() Name { return n.With(AnyID()) }

// With is the name of one instance.
func (n Name) With(id ID) Name {
	n.ID = id
	return n
}

// Base is the name's three words, without an id.
func (n Name) Base() string { return n.Org + "/" + n.Namespace + "/" + n.Service }

// String is the text that Parse reads.
func (n Name) String() string {
	if n.ID == AnyID() {
		return n.Base()
	}
	return n.Base() + "/" + n.ID.String()
}
