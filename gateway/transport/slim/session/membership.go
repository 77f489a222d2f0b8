package session

import (
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// enrol writes down who is in the session besides us and the peer.
func (m *machine) enrol(participants []*dataplane.Participant) {
	for _, p := range participants {
		n, err := name.Decode(p.GetName())
		if err != nil || n == m.self || n == m.peer {
			continue
		}
		m.members[n.Key()] = member{name: n, offline: p.GetStatus() == dataplane.ParticipantState_OFFLINE}
	}
}

// updated handles a change of the group by its moderator.
func (m *machine) updated(now time.Time, f frame.Frame) {
	if !m.group || f.From != m.peer {
		return
	}
	if m.state == closed && m.fault == FaultRemoved { // our answer was lost
		m.reply(f, frame.Acknowledge())
	}
	if m.state != open {
		return
	}
	if m.seen.add(f.Message) {
		m.change(now, f.Command.GetGroupUpdate())
	}
	m.reply(f, frame.Acknowledge())
}

func (m *machine) change(now time.Time, update *dataplane.GroupUpdatePayload) {
	n, err := name.Decode(update.GetParticipant().GetName())
	if err != nil {
		return
	}
	switch update.GetOp() {
	case dataplane.GroupUpdateOp_ADD, dataplane.GroupUpdateOp_REJOIN:
		if len(m.members) < maxMembers {
			m.enrol([]*dataplane.Participant{update.GetParticipant()})
		}
	case dataplane.GroupUpdateOp_REMOVE:
		m.drop(n)
		if n == m.self {
			m.end(now, FaultRemoved)
		}
	}
}

// maxMembers bounds a group.
const maxMembers = 1024

// drop forgets a member, so that no message waits for its acknowledgement any more.
func (m *machine) drop(n name.Name) {
	key := n.Key()
	delete(m.members, key)
	delete(m.receivers, key)
	m.forgive(key)
}

// participant handles the message that a member goes offline or comes back.
func (m *machine) participant(f frame.Frame) {
	update := f.Command.GetUpdateParticipantState()
	n, err := name.Decode(update.GetParticipant())
	if err != nil || n != f.From { // a member may update itself alone
		return
	}
	key := n.Key()
	if who, ok := m.members[key]; ok {
		who.offline = update.GetNewState() == dataplane.ParticipantState_OFFLINE
		m.members[key] = who
		if who.offline {
			m.forgive(key)
		}
	}
	m.reply(f, frame.Acknowledge())
}

// subjectOf is whom a member's tokens speak for.
func (m *machine) subjectOf(who name.Name) string {
	if who == m.peer {
		return m.subject
	}
	return m.members[who.Key()].subject
}

// present reports whether who is another participant of the session.
func (m *machine) present(who name.Name) bool {
	_, member := m.members[who.Key()]
	return who == m.peer || member
}

// roster returns the other participants of the session.
func (m *machine) roster() []Member {
	all := []Member{{Name: m.peer, Subject: m.subject}}
	for _, who := range m.members {
		all = append(all, Member{Name: who.name, Subject: who.subject, Offline: who.offline})
	}
	slices.SortFunc(all, func(a, b Member) int { return strings.Compare(a.Name.String(), b.Name.String()) })
	return all
}

// audience is who has to acknowledge what we send.
func (m *machine) audience() map[name.Key]name.Name {
	who := map[name.Key]name.Name{m.peer.Key(): m.peer}
	for key, other := range m.members {
		if !other.offline {
			who[key] = other.name
		}
	}
	return who
}

// recent remembers the last ids that it was given.
type recent struct {
	ids  map[uint32]struct{}
	ring []uint32
	at   int
}

const recentIDs = 256

// add reports whether an id is new.
func (r *recent) add(id uint32) bool {
	if _, old := r.ids[id]; old {
		return false
	}
	if r.ids == nil {
		r.ids, r.ring = map[uint32]struct{}{}, make([]uint32, 0, recentIDs)
	}
	if len(r.ring) < recentIDs {
		r.ring = append(r.ring, id)
	} else {
		delete(r.ids, r.ring[r.at])
		r.ring[r.at] = id
		r.at = (r.at + 1) % recentIDs
	}
	r.ids[id] = struct{}{}
	return true
}
