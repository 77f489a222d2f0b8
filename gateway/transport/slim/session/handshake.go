package session

import (
	"cmp"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Metadata of control messages.
const (
	flagLeaving = "LEAVING_SESSION"
	flagTo      = "PUBLISH_TO" // a group's message to one member, outside the sequence
	flagSet     = "TRUE"
	keyReason   = "aepb-reason" // in words, of a refusal
)

// initiate begins a session with the application that answers to the peer's name.
func (m *machine) initiate(now time.Time) {
	m.initiator, m.state = true, discovering
	m.ask(now, m.peer, frame.Discover(), nil)
}

// invited begins a session that the peer asked for.
func invited(self name.Name, f frame.Frame, subject string, timing Timing, now time.Time) (*machine, error) {
	m := newMachine(self, f.From, f.Session, timing, now)
	join := f.Command.GetJoinRequest()
	m.state, m.subject, m.metadata = joining, subject, f.Metadata
	m.group, m.reliable = f.Group, join.GetTimerSettings() != nil
	if !m.group {
		return m, nil
	}
	var err error
	if m.channel, err = name.Decode(join.GetChannel()); err != nil {
		return nil, err
	}
	m.control, err = name.Decode(join.GetControl())
	return m, err
}

// steer handles a control message.
func (m *machine) steer(now time.Time, f frame.Frame, subject string) {
	switch f.Kind {
	case frame.DiscoveryReply:
		m.found(now, f, subject)
	case frame.JoinRequest:
		m.discoveryRequest(f)
	case frame.JoinReply:
		m.joined(now, f)
	case frame.GroupWelcome:
		m.welcomed(now, f)
	case frame.GroupAck:
		m.accepted(now, f)
	case frame.GroupNack:
		m.declined(now, f)
	case frame.LeaveRequest, frame.GroupClose:
		m.closeMessage(now, f)
	case frame.LeaveReply:
		if m.answered(f, frame.LeaveRequest) {
			m.end(now, "")
		}
	case frame.GroupUpdate:
		m.updated(now, f)
	case frame.ParticipantState:
		m.participant(f)
	default: // a heartbeat was noted already; other kinds are between other members
	}
}

// found handles the answer of an application to its name, which names the instance.
func (m *machine) found(now time.Time, f frame.Frame, subject string) {
	if m.state != discovering || !m.answered(f, frame.DiscoveryRequest) {
		return
	}
	m.state, m.peer, m.subject = joining, f.From, subject
	m.ask(now, m.peer, frame.Join(uint32(m.timing.Retry.Milliseconds()), uint32(m.timing.Retries)), m.metadata) //nolint:gosec // small
}

// discoveryRequest answers again a peer that asks again because the answer was lost.
func (m *machine) discoveryRequest(f frame.Frame) {
	if !m.initiator && m.state != closed && f.From == m.peer {
		m.reply(f, frame.Joined(m.self.Encode()))
	}
}

func (m *machine) joined(now time.Time, f frame.Frame) {
	if m.state != joining || !m.answered(f, frame.JoinRequest) {
		return
	}
	self, peer := frame.Member(m.self.Encode()), frame.Member(m.peer.Encode())
	m.ask(now, m.peer, frame.Welcome(self, peer), nil)
}

func (m *machine) accepted(now time.Time, f frame.Frame) {
	if m.state == joining && m.answered(f, frame.GroupWelcome) {
		m.begin(now)
	}
}

func (m *machine) declined(now time.Time, f frame.Frame) {
	r, ok := m.requests[f.Message]
	if ok && (r.kind == frame.GroupWelcome || r.kind == frame.JoinRequest) {
		m.end(now, FaultRefused)
	}
}

func (m *machine) begin(now time.Time) {
	m.state = open
	m.beat = now.Add(m.timing.Heartbeat)
}

// welcomed handles the welcome that begins a session, and its repetition.
func (m *machine) welcomed(now time.Time, f frame.Frame) {
	if m.initiator || f.From != m.peer || m.state > open {
		return
	}
	if m.state == joining {
		m.enrol(f.Command.GetGroupWelcome().GetParticipants())
		m.begin(now)
	}
	m.reply(f, frame.Acknowledge())
}

// leave ends the session from our side.
func (m *machine) leave(now time.Time) {
	switch m.state {
	case open:
		m.state = leaving
		metadata := map[string]string(nil)
		if !m.initiator {
			metadata = map[string]string{flagLeaving: flagSet}
		}
		m.ask(now, m.peer, frame.Leave(), metadata)
	case discovering, joining:
		m.end(now, "")
	default:
	}
}

// closeMessage handles the end of the session by the other end or the moderator.
func (m *machine) closeMessage(now time.Time, f frame.Frame) {
	if f.From != m.peer {
		return
	}
	m.reply(f, goodbye(f))
	m.byPeer = m.byPeer || m.state != closed
	m.end(now, "")
}

// noMLS is why an encrypted session is refused, for the log and for clients that read the
// metadata of a refusal. SLIM's own clients show a text of their own.
const noMLS = "MLS is not supported by this gateway, use a session without MLS"

// refusal answers a request for a session that we will not have. SLIM's own
// software takes no notice of a refusal and asks until it is tired, so one who
// asks for an encrypted conversation of two is told otherwise: we come in,
// without the keys that would be needed, and leave, which ends it at once. In a
// group the same would stop its moderator.
func refusal(self name.Name, f frame.Frame) []*dataplane.Message {
	route := frame.Route{From: self, To: f.From, Session: f.Session, Message: f.Message, Group: f.Group}
	if f.Command.GetJoinRequest().GetMlsSettings() == nil {
		return []*dataplane.Message{frame.Control(route, frame.Decline(), nil)}
	}
	reason := map[string]string{keyReason: noMLS}
	if f.Group {
		return []*dataplane.Message{frame.Control(route, frame.Decline(), reason)}
	}
	leave := route
	leave.Message ^= 1 << 31
	leave.Message = cmp.Or(leave.Message, 1)
	return []*dataplane.Message{
		frame.Control(route, frame.Joined(self.Encode()), reason),
		frame.Control(leave, frame.Leave(), map[string]string{flagLeaving: flagSet, keyReason: noMLS}),
	}
}

// goodbye is the answer to one.
func goodbye(f frame.Frame) *dataplane.CommandPayload {
	if f.Kind == frame.GroupClose {
		return frame.Acknowledge()
	}
	return frame.Left()
}
