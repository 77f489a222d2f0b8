package session

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

func TestDistance_WrapsAround(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		from, to uint32
		want     int
	}{
		{1, 1, 0}, {1, 2, 1}, {2, 1, -1}, {ids - 1, 0, 1}, {0, ids - 1, -1}, {ids - 100, 100, 200}, {100, ids - 100, -200},
	} {
		if got := distance(row.from, row.to); got != row.want {
			t.Errorf("from %d to %d: %d", row.from, row.to, got)
		}
	}
	if following(ids-1) != 0 || following(0) != 1 {
		t.Error("the ring does not close")
	}
}

func TestRecent_KeepsLatestIDs(t *testing.T) {
	t.Parallel()
	var r recent
	for i := range uint32(3 * recentIDs) {
		if !r.add(i) || r.add(i) {
			t.Fatalf("%d", i)
		}
	}
	if len(r.ids) != recentIDs || !r.add(0) || r.add(3*recentIDs-1) {
		t.Errorf("%d ids", len(r.ids))
	}
}

// TestMachine_IDsWrapAround: the ids begin again, and nobody notices.
func TestMachine_IDsWrapAround(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	a, b := opened(t, now)
	a.last, b.receiver(a.self).next = ids-3, ids-2
	for range 6 {
		if err := a.send(now, frame.Payload{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	exchange(t, now, a, b)
	if len(b.inbox.messages) != 6 || len(a.pending) != 0 || a.last != 3 {
		t.Errorf("%d came, %d are pending, the last is %d", len(b.inbox.messages), len(a.pending), a.last)
	}
}

// TestMachine_GapIsRequestedOnce is asked for, once, and what came early is given out when it is filled.
func TestMachine_GapIsRequestedOnce(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	a, b := opened(t, now)
	for range 4 {
		if err := a.send(now, frame.Payload{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	sent := a.out
	a.out = nil
	for _, i := range []int{0, 3, 3} {
		f, err := frame.Read(sent[i])
		if err != nil {
			t.Fatal(err)
		}
		b.receive(now, f, "")
	}
	var request []uint32
	for _, m := range b.out {
		if session := m.GetPublish().GetSession(); session.GetSessionMessageType() == frame.RtxRequest {
			request = append(request, session.GetMessageId())
		}
	}
	if !slices.Equal(request, []uint32{2, 3}) || len(b.inbox.messages) != 1 {
		t.Errorf("asked for %v, %d to read", request, len(b.inbox.messages))
	}
	exchange(t, now, a, b)
	if len(b.inbox.messages) != 4 || len(a.pending) != 0 {
		t.Errorf("%d to read, %d under way", len(b.inbox.messages), len(a.pending))
	}
}

// opened is two ends of one session.
func opened(t testing.TB, now time.Time) (*machine, *machine) {
	t.Helper()
	one, other := name.Name{Org: "o", Namespace: "n", Service: "a", ID: name.ID{Low: 1}}, name.Name{Org: "o", Namespace: "n", Service: "b", ID: name.ID{Low: 2}}
	a, b := newMachine(one, other, 7, Timing{}.withDefaults(), now), newMachine(other, one, 7, Timing{}.withDefaults(), now)
	a.begin(now)
	b.begin(now)
	return a, b
}

// exchange carries everything both ways until all is said.
func exchange(t *testing.T, now time.Time, a, b *machine) {
	t.Helper()
	for len(a.out)+len(b.out) > 0 {
		for _, way := range []struct{ from, to *machine }{{a, b}, {b, a}} {
			out := way.from.out
			way.from.out = nil
			for _, m := range out {
				f, err := frame.Read(m)
				if err != nil {
					t.Fatal(err)
				}
				way.to.receive(now, f, "")
			}
		}
	}
}

// FuzzMachine_StateIsBounded: whatever a peer with good tokens sends, what is kept stays within
// bounds, and time is never asked for in vain.
func FuzzMachine_StateIsBounded(f *testing.F) {
	f.Add([]byte{1, 1, 0, 1, 3, 0, 2, 1, 0, 4, 2, 0, 9, 1, 0}, false)
	f.Add([]byte{1, 200, 0, 1, 255, 1, 4, 1, 1, 11, 5, 0, 13, 5, 0}, true)
	f.Fuzz(func(t *testing.T, script []byte, group bool) {
		now := time.Unix(0, 0)
		m, peer := opened(t, now)
		m.group = group
		if group {
			m.channel, m.control = peer.self.Any(), peer.self.Any()
		}
		for ; len(script) >= 3; script = script[3:] {
			now = now.Add(time.Duration(script[2]&0xF0) * 10 * time.Millisecond)
			m.receive(now, invented(peer.self, script), "")
			m.tick(now)
			if script[2]&2 != 0 && m.state == open && m.sender.hasSpace() {
				_ = m.send(now, frame.Payload{}, nil)
			}
			m.out = m.out[:0]
			check(t, m, now)
		}
	})
}

// invented is a message made of three bytes.
func invented(from name.Name, bytes []byte) frame.Frame {
	kind := frame.Kind(bytes[0]%20 + 1)
	id := uint32(bytes[1])
	if bytes[2]&4 != 0 {
		id = math.MaxUint32 - id
	}
	f := frame.Frame{From: from, Kind: kind, Session: 7, Message: id, Failed: bytes[2]&8 != 0, Metadata: map[string]string{}}
	if bytes[2]&1 != 0 {
		f.Metadata[flagTo] = flagSet
	}
	if f.Control() {
		f.Command = &dataplane.CommandPayload{}
	}
	return f
}

func check(t *testing.T, m *machine, now time.Time) {
	t.Helper()
	if len(m.inbox.messages) > inboxCount+reach || len(m.pending) > windowCount || len(m.unacknowledged) > keptCount {
		t.Fatalf("%d to read, %d under way, %d kept", len(m.inbox.messages), len(m.pending), len(m.unacknowledged))
	}
	for _, r := range m.receivers {
		if len(r.early) > reach || len(r.wanted) > reach || r.earlyBytes < 0 {
			t.Fatalf("%d early (%d bytes), %d wanted", len(r.early), r.earlyBytes, len(r.wanted))
		}
	}
	if m.state != closed && !m.next().After(now) {
		t.Fatalf("at %v it wants to be called at %v", now, m.next())
	}
}
