package session

import (
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Bounds of what a session keeps of others' messages.
const (
	reach      = 256 // how far ahead of the next one a message may be
	inboxCount = 512
	inboxBytes = 32 << 20
	earlyBytes = 16 << 20
)

// Message is what members of a session send each other.
type Message struct {
	From     name.Name // of received ones
	Subject  string    // of received ones: whom its sender's tokens speak for
	Type     string    // free text; "msg" by habit
	Blob     []byte
	Metadata map[string]string // nodes read it, and nothing protects it
}

// inbox is what the user has not read yet.
type inbox struct {
	messages []Message
	bytes    int
}

func (i *inbox) hasSpace() bool { return len(i.messages) < inboxCount && i.bytes < inboxBytes }

func (i *inbox) put(f frame.Frame, subject string) {
	i.messages = append(i.messages, Message{From: f.From, Subject: subject, Type: f.Payload.Type, Blob: f.Payload.Blob, Metadata: f.Metadata})
	i.bytes += weight(f)
}

func (i *inbox) take() (Message, bool) {
	if len(i.messages) == 0 {
		return Message{}, false
	}
	first := i.messages[0]
	i.messages[0] = Message{}
	i.messages = i.messages[1:]
	i.bytes -= weigh(len(first.Blob), first.Metadata)
	return first, true
}

// weight is what a message costs to keep, about.
func weight(f frame.Frame) int { return weigh(len(f.Payload.Blob), f.Metadata) }

func weigh(size int, metadata map[string]string) int {
	for key, value := range metadata {
		size += len(key) + len(value)
	}
	return size + 256
}

// receiver puts one member's messages in order.
type receiver struct {
	began      bool
	next       uint32
	early      map[uint32]frame.Frame // came before one that is missing
	earlyBytes int
	wanted     map[uint32]*wanted
	direct     recent // messages outside the sequence
}

// wanted is a message that we asked for.
type wanted struct {
	from name.Name
	due  time.Time
	left int
}

func (m *machine) receiver(from name.Name) *receiver {
	r, ok := m.receivers[from.Key()]
	if !ok {
		r = &receiver{next: 1, early: map[uint32]frame.Frame{}, wanted: map[uint32]*wanted{}, began: !m.group}
		m.receivers[from.Key()] = r
	}
	return r
}

// data handles a message that is not control.
func (m *machine) data(now time.Time, f frame.Frame) {
	switch f.Kind {
	case frame.MsgAck:
		m.acknowledged(f.Message, f.From.Key())
	case frame.RtxRequest:
		m.requested(now, f)
	case frame.Msg:
		m.message(now, f)
	case frame.RtxReply:
		m.repaired(now, f)
	default:
	}
}

// message buffers a message if it may, and only then acknowledges it.
func (m *machine) message(now time.Time, f frame.Frame) {
	if !m.reliable {
		if m.inbox.hasSpace() {
			m.inbox.put(f, m.subjectOf(f.From))
		}
		return
	}
	if _, direct := f.Metadata[flagTo]; direct && m.group {
		m.direct(f)
		return
	}
	if m.arrange(now, f) {
		m.acknowledge(f, nil)
	}
}

func (m *machine) acknowledge(f frame.Frame, metadata map[string]string) {
	m.emit(frame.Data(m.route(f.From, f.Message), frame.MsgAck, frame.Payload{}, metadata))
}

// direct handles a message to this member alone, which is not in the group's sequence.
func (m *machine) direct(f frame.Frame) {
	if !m.inbox.hasSpace() {
		return
	}
	if m.receiver(f.From).direct.add(f.Message) {
		m.inbox.put(f, m.subjectOf(f.From))
	}
	m.acknowledge(f, map[string]string{flagTo: flagSet})
}

// arrange puts a message in its order; false: the buffer is full.
func (m *machine) arrange(now time.Time, f frame.Frame) bool {
	if f.Message >= ids {
		return false
	}
	r := m.receiver(f.From)
	if !r.began { // of a group that runs already
		r.began, r.next = true, f.Message
	}
	ahead := distance(r.next, f.Message)
	switch {
	case ahead < 0:
		return true // known
	case !m.inbox.hasSpace():
		return false
	case ahead == 0:
		m.deliver(r, f)
		return true
	case ahead >= reach:
		return false
	}
	if _, known := r.early[f.Message]; !known {
		if r.earlyBytes+weight(f) > earlyBytes {
			return false
		}
		r.early[f.Message] = f
		r.earlyBytes += weight(f)
		delete(r.wanted, f.Message)
	}
	m.request(now, r, f)
	return true
}

// deliver gives the next message to the user, and those that waited for it.
func (m *machine) deliver(r *receiver, f frame.Frame) {
	for {
		delete(r.wanted, r.next)
		m.inbox.put(f, m.subjectOf(f.From))
		r.next = following(r.next)
		follows, ok := r.early[r.next]
		if !ok {
			return
		}
		delete(r.early, r.next)
		r.earlyBytes -= weight(follows)
		f = follows
	}
}

// request asks for everything that is missing before a message.
func (m *machine) request(now time.Time, r *receiver, before frame.Frame) {
	for id := r.next; id != before.Message; id = following(id) {
		_, known := r.early[id]
		if _, requested := r.wanted[id]; known || requested {
			continue
		}
		r.wanted[id] = &wanted{before.From, now.Add(m.timing.Retry), m.timing.Retries}
		m.emit(frame.Data(m.route(before.From, id), frame.RtxRequest, frame.Payload{}, nil))
	}
}

// rerequest asks again.
func (m *machine) rerequest(now time.Time) {
	for _, r := range m.receivers {
		for id, w := range r.wanted {
			if now.Before(w.due) {
				continue
			}
			if w.left == 0 {
				m.end(now, FaultLost)
				return
			}
			w.due = now.Add(m.timing.Retry)
			if !m.inbox.hasSpace() {
				continue // our own user is late, not the sender
			}
			w.left--
			m.emit(frame.Data(m.route(w.from, id), frame.RtxRequest, frame.Payload{}, nil))
		}
	}
}

// repaired handles a message that was asked for again, or the answer that it is lost.
func (m *machine) repaired(now time.Time, f frame.Frame) {
	r := m.receiver(f.From)
	if _, requested := r.wanted[f.Message]; !requested {
		return
	}
	if f.Failed {
		m.end(now, FaultLost)
		return
	}
	if m.arrange(now, f) {
		delete(r.wanted, f.Message)
		m.acknowledge(f, nil)
	}
}

// distance is how far an id is ahead of another on the ring of ids; negative:
// behind.
func distance(from, to uint32) int {
	d := int64(to-from) % ids
	if d >= ids/2 {
		d -= ids
	}
	return int(d)
}
