package gateway

import (
	"encoding/json"
	"slices"

	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/stream"
)

// Bounds of an [eventLog]. What is larger than maxLoggedEvent is left out, and what
// does not fit any more takes the place of the oldest.
const (
	maxLogged      = 64
	maxLoggedBytes = 32 << 10
	maxLoggedEvent = 8 << 10
)

// eventLog is the newest events of work, as its record keeps them for streams that are
// told from there: all streams of a task have the same events in the same order (A2A
// 1.0 section 3.5.2). A task alone does not tell them: progress is no part of it, and
// of two messages of its status it has the second. What settles the work is not here;
// the task says that.
type eventLog struct {
	Count  int           `json:",omitempty"` // of all events so far
	Events []loggedEvent `json:",omitempty"` // the newest of them, oldest first
}

// loggedEvent is an event and its number: the first has 1.
type loggedEvent struct {
	Number int
	Event  json.RawMessage
}

// with is the log with more events. It shares no memory that either writes to.
func (l eventLog) with(events []canonical.Event) eventLog {
	kept := slices.Clone(l.Events)
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
			kept = append(kept, loggedEvent{l.Count, raw})
		}
	}
	from, size := len(kept), 0
	for ; from > 0 && len(kept)-from < maxLogged; from-- {
		if size += len(kept[from-1].Event); size > maxLoggedBytes {
			break
		}
	}
	l.Events = slices.Clone(kept[from:])
	return l
}

// since is the events after one with this number; missed: that is not all of them.
func (l eventLog) since(number int) (events []canonical.Event, missed bool) {
	for _, logged := range l.Events {
		var e canonical.Event
		if logged.Number > number && json.Unmarshal(logged.Event, &e) == nil {
			events = append(events, e)
		}
	}
	return events, l.Count-number > len(events)
}

// pressing: of the events that were logged after the one with this number, so many may
// soon be replaced that they have to be put on record now.
func (l eventLog) pressing(number int) bool {
	count, size := 0, 0
	for _, logged := range l.Events {
		if logged.Number > number {
			count, size = count+1, size+len(logged.Event)
		}
	}
	return count >= maxLogged/2 || size >= maxLoggedBytes/2
}
