package state

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/state/internal/encoding"
)

// State is written as its end, then its fields (internal/encoding).

// keyedSize is the bytes of what appendKeyed writes.
const keyedSize = encoding.InstantSize + len(digest{})

// appendKeyed begins uses, answers and turns: an answer follows as it is.
func appendKeyed(b []byte, until time.Time, key digest) []byte {
	return append(encoding.AppendInstant(b, until), key[:]...)
}

// holderSize is the bytes of a use's holder, which earlier versions did not write.
const holderSize = 8

func appendReplay(b []byte, key digest, u usage) []byte {
	b = append(appendKeyed(b, time.Unix(0, u.until), key), u.use[:]...)
	return binary.BigEndian.AppendUint64(b, u.holder)
}

func appendTurn(b []byte, until time.Time, key digest, workflow string, id ect.ID) []byte {
	return encoding.AppendText(encoding.AppendText(appendKeyed(b, until, key), workflow), id)
}

func appendEntry(b []byte, e *entry) []byte {
	b = encoding.AppendInstant(b, e.until)
	kind := e.key.Kind
	if e.key.Owner != "" {
		kind += "\x00" + e.key.Owner // no kind has a zero byte, and files without owners stay readable
	}
	b = encoding.AppendText(b, kind)
	b = encoding.AppendText(b, e.key.Group)
	b = encoding.AppendText(b, e.key.ID)
	return append(b, e.value...)
}

// keyed is a use, an answer or a turn as it was written.
type keyed struct {
	until time.Time
	key   digest
	whole []byte
}

func readKeyed(r *encoding.Reader) keyed {
	whole := []byte(r.Data)
	return keyed{until: r.Instant(), key: digestIn(r), whole: whole}
}

func readReplay(r *encoding.Reader) (e keyed, use digest, holder uint64) {
	e, use = readKeyed(r), digestIn(r)
	if r.Data != "" {
		var number [holderSize]byte
		copy(number[:], r.Take(holderSize))
		holder = binary.BigEndian.Uint64(number[:])
	}
	return e, use, holder
}

func readAnswer(r *encoding.Reader) keyed {
	e := readKeyed(r)
	r.Take(uint64(len(r.Data)))
	return e
}

func readTurn(r *encoding.Reader) keyed {
	e := readKeyed(r)
	r.Text() // the workflow
	r.Text() // the id
	return e
}

func readEntry(r *encoding.Reader, serial uint64) *entry {
	e := &entry{
		until: r.Instant(), key: EntryKey{Kind: r.Text(), Group: r.Text(), ID: r.Text()}.own(), serial: serial,
	}
	e.key.Kind, e.key.Owner, _ = strings.Cut(e.key.Kind, "\x00")
	e.value = []byte(r.Take(uint64(len(r.Data))))
	e.size = e.key.Size(e.value)
	return e
}

func digestIn(r *encoding.Reader) (d digest) {
	copy(d[:], r.Take(uint64(len(d))))
	return d
}
