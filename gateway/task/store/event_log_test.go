package store

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/translators/canonical"
)

func progressEvent(message string) canonical.Event {
	return canonical.Event{Progress: &canonical.Progress{Value: json.RawMessage("1"), Message: message}}
}

// logOf is a log of events, added one by one.
func logOf(events ...canonical.Event) EventLog {
	var l EventLog
	for _, e := range events {
		l = l.With([]canonical.Event{e})
	}
	return l
}

func TestEventLog_SinceANumber(t *testing.T) {
	t.Parallel()
	working := canonical.Event{Status: &canonical.Status{State: canonical.StateWorking, Message: &canonical.Content{Role: canonical.RoleAgent}}}
	l := logOf(
		progressEvent("one"),
		canonical.Event{Log: &canonical.Log{}}, // is told nowhere
		working,
		canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}}, // the task says it
		progressEvent("two"),
	)
	events, missed := l.Since(1)
	if diff := cmp.Diff([]canonical.Event{working, progressEvent("two")}, events); diff != "" || missed || l.Count != 3 {
		t.Errorf("of %d events missed %v, -want +got:\n%s", l.Count, missed, diff)
	}
	if events, missed = l.Since(3); len(events) > 0 || missed {
		t.Errorf("after the last come %v, missed %v", events, missed)
	}
}

func TestEventLog_IsBounded(t *testing.T) {
	t.Parallel()
	many := make([]canonical.Event, 0, 3*maxLogged)
	for i := range 3 * maxLogged {
		many = append(many, progressEvent(strconv.Itoa(i)))
	}
	long := make([]canonical.Event, 0, maxLogged)
	for range maxLogged {
		long = append(long, progressEvent(strings.Repeat("x", maxLoggedEvent/2)))
	}
	for name, events := range map[string][]canonical.Event{"events": many, "bytes": long} {
		t.Run(name, func(t *testing.T) {
			l, size := logOf(events...), 0
			for _, logged := range l.Events {
				size += len(logged.Event)
			}
			if len(l.Events) == 0 || len(l.Events) > maxLogged || size > maxLoggedBytes {
				t.Errorf("%d events of %d bytes are kept", len(l.Events), size)
			}
			logged, missed := l.Since(0)
			if diff := cmp.Diff(events[len(events)-len(logged):], logged); diff != "" || !missed || l.Count != len(events) {
				t.Errorf("of %d events missed %v, -want +got:\n%s", l.Count, missed, diff)
			}
			if !l.MustSave(0) || l.MustSave(l.Count) {
				t.Errorf("MustSave: %v with nothing on record, %v with all", l.MustSave(0), l.MustSave(l.Count))
			}
		})
	}
}

func TestEventLog_LargeEvents(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("x", maxLoggedEvent)
	artifact := canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{
		ID: "a", Parts: []canonical.Part{{Kind: canonical.KindText, Text: large}},
	}}}
	if events, missed := logOf(artifact).Since(0); len(events) > 0 || missed {
		t.Errorf("of a large artifact, which the task has, %d events are kept, missed %v", len(events), missed)
	}
	if events, missed := logOf(progressEvent("one"), progressEvent(large), progressEvent("two")).Since(0); len(events) != 2 || !missed {
		t.Errorf("beside a large message %d events are kept, missed %v", len(events), missed)
	}
}

// TestEventLog_SharesNothing: a record is written while its run goes on.
func TestEventLog_SharesNothing(t *testing.T) {
	t.Parallel()
	before := logOf(progressEvent("one"), progressEvent("two"))
	want, _ := before.Since(0)
	first, second := before.With([]canonical.Event{progressEvent("a")}), before.With([]canonical.Event{progressEvent("b")})
	if got, _ := before.Since(0); !cmp.Equal(want, got) {
		t.Errorf("the log changed: %s", cmp.Diff(want, got))
	}
	a, _ := first.Since(2)
	b, _ := second.Since(2)
	if len(a) != 1 || len(b) != 1 || a[0].Progress.Message != "a" || b[0].Progress.Message != "b" {
		t.Errorf("two that went on from it have %v and %v", a, b)
	}
}
