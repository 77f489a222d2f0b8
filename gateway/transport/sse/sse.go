package sse

import (
	"bufio"
	"bytes"
	"io"
	"strconv"
	"time"
)

// Limits bounds a stream. A field of zero or less takes its default.
type Limits struct {
	Event  int // bytes of one event's lines; default 16 MiB
	Events int // events, those without data not counted; default 4096
	Total  int // bytes of the whole stream; default twice Event
}

func (l Limits) withDefaults() Limits {
	const event, events = 16 << 20, 4096
	if l.Event <= 0 {
		l.Event = event
	}
	if l.Events <= 0 {
		l.Events = events
	}
	if l.Total <= 0 {
		l.Total = 2 * l.Event
	}
	return l
}

// LimitError says which bound a stream missed.
type LimitError struct {
	What  string // "event", "events" or "stream"
	Limit int
}

func (e *LimitError) Error() string {
	return "event stream: " + e.What + " beyond " + strconv.Itoa(e.Limit)
}

// Event is one event. Data is never empty: an event whose data is empty, which
// servers send to prime a stream, says nothing and is passed over.
type Event struct {
	Type string // empty: "message"
	ID   string // of this event; the last id of earlier ones is not repeated
	Data []byte // its lines joined by a newline
}

// Reader reads events. It is not safe for concurrent use.
type Reader struct {
	in     *bufio.Reader
	limits Limits
	total  int
	count  int
	first  bool  // the next line is the first one: a BOM may stand before it
	sawCR  bool  // the last line ended in CR: a LF that follows belongs to it
	err    error // what ended the stream
	booker Booker
	booked int // bytes of the event that is read, or was read last

	last  string        // id of the last event, of one without data too
	retry time.Duration // what the server wants one to wait before coming back; zero: it did not say
}

// Resume is where the stream can be taken up again: the id of the last event,
// those without data included, and how long to wait before. An empty id: the
// server gave none.
func (r *Reader) Resume() (id string, wait time.Duration) { return r.last, r.retry }

// Booker is a body that wants to know how large an event is before more of it is read; whole: it has no
// more. An error ends the stream.
type Booker interface {
	BookEvent(n int64, whole bool) error
}

// unbooked is how many bytes of an event are not booked, of one that has more.
const unbooked = 64 << 10

// NewReader reads from r until its end. Events of a [Booker] are booked.
func NewReader(r io.Reader, limits Limits) *Reader {
	booker, _ := r.(Booker)
	n := &Reader{in: bufio.NewReader(r), limits: limits.withDefaults(), first: true, booker: booker}
	n.err = n.book(0, true)
	return n
}

func (r *Reader) book(n int, whole bool) error {
	if r.booked = n; r.booker == nil {
		return nil
	}
	return r.booker.BookEvent(int64(n), whole)
}

// Next gives the next event. io.EOF: the stream ended; an event that no blank
// line completed is discarded, as the standard demands. Other errors are
// *LimitError or the reader's own, and repeat.
func (r *Reader) Next() (Event, error) {
	var e Event
	var data []byte
	size := 0
	if r.booked > 0 && r.err == nil {
		r.err = r.book(0, true)
	}
	for r.err == nil {
		line, err := r.line(size)
		if err != nil {
			r.err = err
			break
		}
		size += len(line)
		if len(line) > 0 {
			name, value, ok := field(line)
			if ok && string(name) == "retry" {
				r.wait(value)
			}
			if ok && e.take(name, value) {
				data = append(append(data, value...), '\n')
			}
			continue
		}
		if e.ID != "" {
			r.last = e.ID
		}
		if len(data) > 1 {
			return r.dispatch(e, data)
		}
		e, data, size = Event{}, nil, 0
	}
	return Event{}, r.err
}

func (r *Reader) dispatch(e Event, data []byte) (Event, error) {
	if r.count++; r.count > r.limits.Events {
		r.err = &LimitError{What: "events", Limit: r.limits.Events}
		return Event{}, r.err
	}
	e.Data = data[:len(data)-1]
	if r.booked > 0 {
		r.err = r.book(len(data), true)
	}
	return e, nil
}

// wait takes a whole number of milliseconds, up to an hour.
func (r *Reader) wait(value []byte) {
	const longest = 3_600_000
	if ms, err := strconv.Atoi(string(value)); err == nil && ms >= 0 && ms <= longest {
		r.retry = time.Duration(ms) * time.Millisecond
	}
}

// field splits a line at its first colon; a comment is none.
func field(line []byte) (name, value []byte, ok bool) {
	name, value, _ = bytes.Cut(line, []byte(":"))
	value, _ = bytes.CutPrefix(value, []byte(" "))
	return name, value, len(name) > 0
}

// take keeps a field that is not data; isData: it is.
func (e *Event) take(name, value []byte) (isData bool) {
	switch string(name) {
	case "data":
		return true
	case "event":
		e.Type = string(value)
	case "id":
		if !bytes.ContainsRune(value, 0) {
			e.ID = string(value)
		}
	}
	return false
}

// line reads up to CR, LF or CRLF, without it, in an event of which size bytes were read.
func (r *Reader) line(size int) ([]byte, error) {
	var line []byte
	for {
		c, err := r.in.ReadByte()
		if err != nil {
			return nil, err // at the end, what stands there is no complete line
		}
		if r.total++; r.total > r.limits.Total {
			return nil, &LimitError{What: "stream", Limit: r.limits.Total}
		}
		afterCR := r.sawCR
		r.sawCR = c == '\r'
		switch {
		case c == '\n' && afterCR && len(line) == 0:
			continue
		case c == '\n' || c == '\r':
			return r.withoutBOM(line), nil
		}
		switch line = append(line, c); {
		case size+len(line) > r.limits.Event:
			return nil, &LimitError{What: "event", Limit: r.limits.Event}
		case size+len(line) > max(unbooked, r.booked) && r.booker != nil:
			if err := r.book(min(2*(size+len(line)), r.limits.Event), false); err != nil {
				return nil, err
			}
		}
	}
}

func (r *Reader) withoutBOM(line []byte) []byte {
	if r.first {
		line = bytes.TrimPrefix(line, []byte("\xEF\xBB\xBF"))
		r.first = false
	}
	return line
}
