package store

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Bounds of an [EventLog]. An event larger than maxLoggedEvent bytes is left out, and an
// event that does not fit any more takes the place of the oldest.
const (
	maxLogged      = 64
	maxLoggedBytes = 32 << 10
	maxLoggedEvent = 8 << 10
)

// EventLog is the newest events of work, as its record keeps them for stored
// subscriptions: all streams of a task have the same events in the same order (A2A 1.0
// section 3.5.2). A task alone does not tell them: progress is no part of it, and of two
// messages of its status it has the second. What settles the work is not here; the task
// says that.
type EventLog struct {
	Count  int           `json:",omitempty"` // of all events so far
	Events []LoggedEvent `json:",omitempty"` // the newest of them, oldest first
}

// LoggedEvent is an event and its number, counted from 1.
type LoggedEvent struct {
	Number int
	Event  json.RawMessage
}

// With is the log with more events. It shares no memory that either writes to.
func (l EventLog) With(events []canonical.Event) EventLog {
	logged := slices.Clone(l.Events)
	for i := range events {
		e := &events[i]
		if e.Progress == nil && e.Artifact == nil && (e.Status == nil || stream.Settled(e.Status.State)) {
			continue
		}
		raw, err := json.Marshal(e)
		small := err == nil && len(raw) <= maxLoggedEvent
		if !small && e.Artifact != nil {
			continue // the task has it
		}
		if l.Count++; small {
			logged = append(logged, LoggedEvent{l.Count, raw})
		}
	}
	from, size := len(logged), 0
	for ; from > 0 && len(logged)-from < maxLogged; from-- {
		if size += len(logged[from-1].Event); size > maxLoggedBytes {
			break
		}
	}
	l.Events = slices.Clone(logged[from:])
	return l
}

// Since is the events after one with this number; missed: that is not all of them.
func (l EventLog) Since(number int) (events []canonical.Event, missed bool) {
	for _, logged := range l.Events {
		var e canonical.Event
		if logged.Number > number && json.Unmarshal(logged.Event, &e) == nil {
			events = append(events, e)
		}
	}
	return events, l.Count-number > len(events)
}

// MustSave reports whether so many events were logged after the one with this number that
// they may soon be replaced: the record has to be saved now.
func (l EventLog) MustSave(number int) bool {
	count, size := 0, 0
	for _, logged := range l.Events {
		if logged.Number > number {
			count, size = count+1, size+len(logged.Event)
		}
	}
	return count >= maxLogged/2 || size >= maxLoggedBytes/2
}
