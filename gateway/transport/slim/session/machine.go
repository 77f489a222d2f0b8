package session

import (
	"math/rand/v2"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Timing of a session. The zero value works.
type Timing struct {
	Retry     time.Duration // after which an unanswered message is sent again; 0: 1 s
	Retries   int           // how often; 0: 10
	Heartbeat time.Duration // between signs of life; 0: 9 s, the protocol's own is 10 s
	Silence   time.Duration // after which the other end counts as gone; 0: 35 s
}

func (t Timing) withDefaults() Timing {
	t.Retry = positive(t.Retry, time.Second)
	t.Retries = positive(t.Retries, 10)
	t.Heartbeat = positive(t.Heartbeat, 9*time.Second)
	t.Silence = positive(t.Silence, 35*time.Second)
	return t
}

func positive[T int | time.Duration](value, otherwise T) T {
	if value > 0 {
		return value
	}
	return otherwise
}

// state is how far a session is.
type state int

const (
	discovering state = iota // it looks for an application with the name
	joining                  // one end has asked the other
	open
	leaving // we have asked to end it
	closed
)

// linger is how long an ended session still answers repeated goodbyes.
const linger = 15 * time.Second

// joinLimit is how long a peer that asked for a session may take to begin it.
const joinLimit = 30 * time.Second

// machine is one session. Its methods are given the time and leave what is to
// be sent in out, what is for the user in inbox. Not safe for concurrent use.
type machine struct {
	parameters
	state        state
	fault        Fault // why it is closed; empty: properly
	byPeer       bool  // the other end closed it
	up           bool  // there is a connection
	ended        time.Time
	lastReceived time.Time
	beat         time.Time // when the next heartbeat is due
	started      time.Time
	requests     map[uint32]*request
	members      map[name.Key]member
	seen         recent

	sender
	receivers map[name.Key]*receiver

	out   []*dataplane.Message
	inbox inbox
}

// parameters are what a session begins with: between whom it is, and of which kind.
// They do not change any more once it is open.
type parameters struct {
	id         uint32
	self, peer name.Name // peer: the other end, or the moderator
	group      bool
	initiator  bool
	reliable   bool
	channel    name.Name // of a group: where data goes
	control    name.Name // of a group: where heartbeats go
	metadata   map[string]string
	subject    string // whom the peer's token speaks for
	timing     Timing
}

// member is another participant of the session.
type member struct {
	name    name.Name
	subject string // empty: it has sent nothing yet
	offline bool
}

// request is a control message that wants an answer.
type request struct {
	message *dataplane.Message
	kind    frame.Kind
	due     time.Time
	left    int
}

func newMachine(self, peer name.Name, id uint32, timing Timing, now time.Time) *machine {
	return &machine{
		parameters: parameters{id: id, self: self, peer: peer, timing: timing, reliable: true}, up: true, started: now, lastReceived: now,
		requests: map[uint32]*request{}, members: map[name.Key]member{}, receivers: map[name.Key]*receiver{},
		sender: newSender(),
	}
}

func (m *machine) route(to name.Name, message uint32) frame.Route {
	return frame.Route{From: m.self, To: to, Session: m.id, Message: message, Group: m.group}
}

// controlID is random, as the protocol wants the ids of control messages.
func (m *machine) controlID() uint32 {
	for {
		id := rand.Uint32() //nolint:gosec // unique, not secret
		if _, taken := m.requests[id]; id != 0 && !taken {
			return id
		}
	}
}

// emit puts a message with those that the session sends next.
func (m *machine) emit(message *dataplane.Message) { m.out = append(m.out, message) }

// ask sends a control message until it is answered.
func (m *machine) ask(now time.Time, to name.Name, command *dataplane.CommandPayload, metadata map[string]string) {
	id := m.controlID()
	message := frame.Control(m.route(to, id), command, metadata)
	m.requests[id] = &request{message, message.GetPublish().GetSession().GetSessionMessageType(), now.Add(m.timing.Retry), m.timing.Retries}
	m.emit(message)
}

// reply answers a control message with its own id.
func (m *machine) reply(f frame.Frame, command *dataplane.CommandPayload) {
	m.emit(frame.Control(m.route(f.From, f.Message), command, nil))
}

// answered takes a request off the list; false: there is no such request.
func (m *machine) answered(f frame.Frame, kind frame.Kind) bool {
	r, ok := m.requests[f.Message]
	if !ok || r.kind != kind {
		return false
	}
	delete(m.requests, f.Message)
	return true
}

func (m *machine) end(now time.Time, fault Fault) {
	if m.state == closed {
		return
	}
	m.state, m.fault, m.ended = closed, fault, now
	clear(m.requests)
	m.sender = newSender()
	clear(m.receivers)
}

// receive takes in a message whose token and signature are good.
func (m *machine) receive(now time.Time, f frame.Frame, subject string) {
	if !m.admits(f, subject) {
		return
	}
	m.lastReceived = now
	switch {
	case f.Failed && f.Kind != frame.RtxReply:
		m.failed(now, f)
	case f.Control():
		m.steer(now, f, subject)
	case m.state == open || m.state == leaving:
		m.data(now, f)
	}
}

// admits says whether a sender may speak in this session, and makes sure that
// it is the same one all the time.
func (m *machine) admits(f frame.Frame, subject string) bool {
	if m.state == discovering {
		return f.Kind == frame.DiscoveryReply && f.From.Any() == m.peer.Any()
	}
	if f.From == m.peer {
		return m.subject == subject
	}
	key := f.From.Key()
	who, ok := m.members[key]
	if !ok || who.subject != "" && who.subject != subject {
		return false
	}
	who.subject = subject
	m.members[key] = who
	return true
}

// failed handles the notice that a message was not delivered. Data messages are sent
// again anyway.
func (m *machine) failed(now time.Time, f frame.Frame) {
	if _, ok := m.requests[f.Message]; ok && f.Control() {
		m.end(now, FaultRefused)
	}
}

// tick does what is due.
func (m *machine) tick(now time.Time) {
	if m.state == closed {
		return
	}
	if !m.up { // no answer can arrive: retries are not counted
		m.postpone(now)
		return
	}
	switch {
	case m.state == joining && !m.initiator && now.Sub(m.started) >= joinLimit:
		m.end(now, FaultSilent)
	case m.state >= open && now.Sub(m.lastReceived) >= m.timing.Silence:
		m.end(now, FaultSilent)
	default:
		m.repeat(now)
		m.resend(now)
		m.rerequest(now)
		m.heartbeat(now)
	}
}

// repeat sends unanswered requests again.
func (m *machine) repeat(now time.Time) {
	for _, r := range m.requests {
		if now.Before(r.due) {
			continue
		}
		if r.left == 0 {
			m.exhausted(now, r)
			return
		}
		r.left--
		r.due = now.Add(m.timing.Retry)
		m.emit(r.message)
	}
}

// exhausted ends the session. A goodbye without an answer ends it without a fault.
func (m *machine) exhausted(now time.Time, r *request) {
	if r.kind == frame.LeaveRequest {
		m.end(now, "")
		return
	}
	m.end(now, FaultSilent)
}

func (m *machine) heartbeat(now time.Time) {
	if m.state != open || now.Before(m.beat) {
		return
	}
	m.beat = now.Add(m.timing.Heartbeat)
	route := m.route(m.peer, m.controlID())
	if m.group {
		route.To, route.Everybody = m.control, true
	}
	m.emit(frame.Control(route, frame.Beat(), nil))
}

// postpone moves everything to after the connection is back.
func (m *machine) postpone(now time.Time) {
	later := now.Add(m.timing.Retry)
	m.lastReceived, m.beat, m.started = now, later, now
	for _, r := range m.requests {
		r.due = later
	}
	for _, p := range m.pending {
		p.due = later
	}
	for _, r := range m.receivers {
		for _, w := range r.wanted {
			w.due = later
		}
	}
}

// next is when tick has something to do.
func (m *machine) next() time.Time {
	if m.state == closed {
		return m.ended.Add(linger)
	}
	due := m.lastReceived.Add(m.timing.Silence)
	if m.state == joining && !m.initiator {
		due = m.started.Add(joinLimit)
	}
	if m.state == open && m.beat.Before(due) {
		due = m.beat
	}
	for _, r := range m.requests {
		due = earlier(due, r.due)
	}
	for _, p := range m.pending {
		due = earlier(due, p.due)
	}
	for _, r := range m.receivers {
		for _, w := range r.wanted {
			due = earlier(due, w.due)
		}
	}
	return due
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
