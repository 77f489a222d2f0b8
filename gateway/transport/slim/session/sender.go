package session

import (
	"maps"
	"math/rand/v2"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Bounds of what a session keeps of its own messages.
const (
	windowCount = 64       // unacknowledged messages
	windowBytes = 16 << 20 // and their bytes
	windowOne   = 1        // of them to one member of a group alone: nothing else keeps their order
	keptCount   = 512      // messages for those who missed one
	keptBytes   = 16 << 20
	ids         = 1 << 31 // ids of data: a ring from 0, beginning at 1
)

// sender is the way out of a session's data.
type sender struct {
	last           uint32
	pending        map[uint32]*outgoing
	pendingBytes   int
	unacknowledged map[uint32]sentMessage
	keptOrder      []uint32
	keptBytes      int
}

// sentMessage is a message for those who missed it.
type sentMessage struct {
	message *dataplane.Message
	size    int
}

// outgoing is a message that not all members have acknowledged.
type outgoing struct {
	message *dataplane.Message
	missing map[name.Key]name.Name
	size    int
	due     time.Time
	left    int
	direct  bool // to one member of a group: its loss is that member's
}

func newSender() sender {
	return sender{pending: map[uint32]*outgoing{}, unacknowledged: map[uint32]sentMessage{}}
}

// hasSpace reports whether one more message may be under way.
func (s *sender) hasSpace() bool {
	return len(s.pending) < windowCount && s.pendingBytes < windowBytes
}

// hasSpaceFor reports whether one more message may be under way to a member: one
// that acknowledges nothing does not use up the window of all.
func (m *machine) hasSpaceFor(to name.Name) bool {
	under := 0
	for _, p := range m.pending {
		if _, missing := p.missing[to.Key()]; missing && p.direct {
			under++
		}
	}
	return under < windowOne && m.hasSpace()
}

// sendTo sends data to one member of a group, outside the sequence. Errors: as
// of send, and ErrNoMember.
func (m *machine) sendTo(now time.Time, to name.Name, payload frame.Payload, metadata map[string]string) error {
	if !m.present(to) {
		return ErrNoMember
	}
	metadata = maps.Clone(metadata)
	if metadata == nil {
		metadata = map[string]string{}
	}
	metadata[flagTo] = flagSet
	id := m.directID()
	message := frame.Data(m.route(to, id), frame.Msg, payload, metadata)
	size, err := sized(message)
	if err != nil {
		return err
	}
	m.emit(message)
	if m.reliable {
		m.pending[id] = &outgoing{message, map[name.Key]name.Name{to.Key(): to}, size, now.Add(m.timing.Retry), m.timing.Retries, true}
		m.pendingBytes += size
	}
	return nil
}

// directID is random, and none of the sequence's.
func (m *machine) directID() uint32 {
	for {
		id := rand.Uint32() | ids //nolint:gosec // unique, not secret
		if _, taken := m.pending[id]; !taken {
			return id
		}
	}
}

// sized is how large a message will be with its token.
func sized(message *dataplane.Message) (int, error) {
	size, err := frame.Fits(message)
	if size += tokenReserve; err == nil && size > frame.MaxMessage {
		err = &frame.TooLargeError{Size: size, Limit: frame.MaxMessage}
	}
	return size, err
}

// send sends data. Errors: *frame.TooLargeError, *frame.Error, and then nothing
// was sent.
func (m *machine) send(now time.Time, payload frame.Payload, metadata map[string]string) error {
	id := following(m.last)
	route := m.route(m.peer, id)
	if m.group {
		route.To, route.Everybody = m.channel, true
	}
	message := frame.Data(route, frame.Msg, payload, metadata)
	size, err := sized(message)
	if err != nil {
		return err
	}
	m.last = id
	m.emit(message)
	if m.reliable {
		m.pending[id] = &outgoing{message, m.audience(), size, now.Add(m.timing.Retry), m.timing.Retries, false}
		m.pendingBytes += size
		m.keep(id, message, size)
	}
	return nil
}

func following(id uint32) uint32 { return (id + 1) % ids }

// tokenReserve is what a token, not there yet, will add to a message.
const tokenReserve = 8 << 10

func (s *sender) keep(id uint32, message *dataplane.Message, size int) {
	s.unacknowledged[id] = sentMessage{message, size}
	s.keptOrder = append(s.keptOrder, id)
	s.keptBytes += size
	for len(s.keptOrder) > keptCount || s.keptBytes > keptBytes && len(s.keptOrder) > 1 {
		oldest := s.keptOrder[0]
		s.keptBytes -= s.unacknowledged[oldest].size
		delete(s.unacknowledged, oldest)
		s.keptOrder = s.keptOrder[1:]
	}
}

// acknowledged takes note of who has a message.
func (s *sender) acknowledged(id uint32, who name.Key) {
	p, ok := s.pending[id]
	if !ok {
		return
	}
	delete(p.missing, who)
	s.settle(id, p)
}

func (s *sender) settle(id uint32, p *outgoing) {
	if len(p.missing) == 0 {
		s.pendingBytes -= p.size
		delete(s.pending, id)
	}
}

// forgive waits no more for a member's acknowledgements.
func (s *sender) forgive(who name.Key) {
	for id, p := range s.pending {
		delete(p.missing, who)
		s.settle(id, p)
	}
}

// resend sends the messages again that not all members have acknowledged.
func (m *machine) resend(now time.Time) {
	for id, p := range m.pending {
		if now.Before(p.due) {
			continue
		}
		switch {
		case p.left == 0 && p.direct:
			clear(p.missing)
			m.settle(id, p)
			continue
		case p.left == 0:
			m.end(now, FaultLost)
			return
		}
		p.left--
		p.due = now.Add(m.timing.Retry)
		for _, to := range p.missing {
			m.emit(frame.Redirect(p.message, to.Encode(), frame.Msg))
		}
	}
}

// requested sends a message again that a member misses. The request does not acknowledge
// it, or the window would move on without it. It proves that the member is present,
// so the retries are counted anew.
func (m *machine) requested(now time.Time, f frame.Frame) {
	old, ok := m.unacknowledged[f.Message]
	message := old.message
	if p, under := m.pending[f.Message]; under {
		p.due, p.left = now.Add(m.timing.Retry), m.timing.Retries
		message, ok = p.message, true
	}
	if ok {
		m.emit(frame.Redirect(message, f.From.Encode(), frame.RtxReply))
		return
	}
	m.emit(frame.Unreachable(m.route(f.From, f.Message)))
}
