package session

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/nodetest"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// channels are the names of the group that these tests are about.
func channels(t *testing.T) (channel, control name.Name) {
	t.Helper()
	return named(t, "org/ns/room").With(name.ID{High: 7, Low: 1}), named(t, "org/ns/room").With(name.ID{High: 7, Low: 2})
}

const space = 700 // the group's session id

// invite makes b a member of a group that a moderates, with others in it.
func invite(t *testing.T, a, b *App, others ...name.Name) *Session {
	t.Helper()
	channel, control := channels(t)
	join := frame.Join(1000, 3)
	join.GetJoinRequest().Channel, join.GetJoinRequest().Control = channel.Encode(), control.Encode()
	route := frame.Route{From: a.Name(), To: b.Name().Any(), Session: space, Message: 4, Group: true}
	a.emit(frame.Control(route, frame.Discover(), nil))
	synctest.Wait()
	route.To, route.Message = b.Name(), 5
	a.emit(frame.Control(route, join, nil))
	synctest.Wait()
	route.Message = 6
	members := []*dataplane.Participant{frame.Member(a.Name().Encode()), frame.Member(b.Name().Encode())}
	for _, other := range others {
		members = append(members, frame.Member(other.Encode()))
	}
	a.emit(frame.Control(route, frame.Welcome(members...), nil))
	s, err := b.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func groupClosed() *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupClose{GroupClose: &dataplane.GroupClosePayload{}}}
}

func changed(op dataplane.GroupUpdateOp, who *dataplane.Name) *dataplane.CommandPayload {
	return &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupUpdate{
		GroupUpdate: &dataplane.GroupUpdatePayload{Op: op, Participant: frame.Member(who)},
	}}
}

// TestGroup_DirectMessageOutsideTheSequence: what is sent to one goes to that one, outside the
// sequence, and is sent again until it is acknowledged; one who acknowledges
// nothing costs the others nothing.
func TestGroup_DirectMessageOutsideTheSequence(t *testing.T) {
	t.Parallel()
	type sent struct {
		to     string
		id     uint32
		direct bool
	}
	var received []sent
	fate := func(m *dataplane.Message) nodetest.Fate {
		if kindOf(m) == frame.Msg {
			_, direct := m.GetMetadata()[flagTo]
			received = append(received, sent{m.GetPublish().GetHeader().GetDestination().GetStrName().GetStrComponent_2(), m.GetPublish().GetSession().GetMessageId(), direct})
		}
		return nodetest.Fate{}
	}
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, fate)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		s := invite(t, a, b, named(t, "org/ns/carol").With(name.ID{High: 1, Low: 1}))
		if roster := s.Roster(); len(roster) != 2 || roster[0].Name != a.Name() || roster[0].Subject != "org/ns/alice" || roster[1].Subject != "" {
			t.Errorf("%+v", roster)
		}
		if err := s.SendTo(t.Context(), named(t, "org/ns/dave"), Message{}); !errors.Is(err, ErrNoMember) {
			t.Errorf("to a stranger: %v", err)
		}
		for range windowOne {
			if err := s.SendTo(t.Context(), a.Name(), Message{Blob: []byte("x"), Metadata: map[string]string{"k": "v"}}); err != nil {
				t.Fatal(err)
			}
		}
		late := make(chan error, 1)
		go func() { late <- s.SendTo(t.Context(), a.Name(), Message{}) }()
		synctest.Wait()
		if len(received) != windowOne || len(late) != 0 {
			t.Fatalf("%d messages, %d over", len(received), len(late))
		}
		for _, m := range received {
			if m.to != "alice" || m.id < ids || !m.direct {
				t.Errorf("%+v", m)
			}
		}
		if err := s.SendTo(t.Context(), named(t, "org/ns/carol").With(name.ID{High: 1, Low: 1}), Message{}); err != nil {
			t.Errorf("to another: %v", err)
		}
		stop := keepAlive(t, a, b)
		time.Sleep(15 * time.Second) // nobody acknowledges anything
		stop()
		if err := <-late; err != nil {
			t.Errorf("after the others were given up: %v", err)
		}
		if s.closedError() != nil {
			t.Errorf("the group is over: %v", s.closedError())
		}
	})
}

// keepAlive has a moderator send heartbeats.
func keepAlive(t *testing.T, a, b *App) (stop func()) {
	t.Helper()
	over := make(chan struct{})
	go func() {
		tick := time.NewTicker(5 * time.Second)
		defer tick.Stop()
		for id := uint32(100); ; id++ {
			select {
			case <-over:
				return
			case <-tick.C:
				a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: space, Message: id, Group: true}, frame.Beat(), nil))
			}
		}
	}()
	return func() { close(over) }
}

// TestGroup_EndedByModeratorOnly: by its moderator, for us alone or for all; by nobody else.
func TestGroup_EndedByModeratorOnly(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]struct {
		command func(self *dataplane.Name) *dataplane.CommandPayload
		want    error
	}{
		"closed": {func(*dataplane.Name) *dataplane.CommandPayload { return groupClosed() }, io.EOF},
		"removed": {func(self *dataplane.Name) *dataplane.CommandPayload {
			return changed(dataplane.GroupUpdateOp_REMOVE, self)
		}, &BrokenError{FaultRemoved}},
		"asked to leave": {func(*dataplane.Name) *dataplane.CommandPayload { return frame.Leave() }, io.EOF},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t, nil)
				a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
				carol := start(t, node, "org/ns/carol", secret)
				s := invite(t, a, b, carol.Name())
				route := frame.Route{From: carol.Name(), To: b.Name(), Session: space, Message: 9, Group: true}
				carol.emit(frame.Control(route, end.command(b.Name().Encode()), nil))
				synctest.Wait()
				if err := s.closedError(); err != nil {
					t.Fatalf("a member may end it: %v", err)
				}
				route.From = a.Name()
				a.emit(frame.Control(route, end.command(b.Name().Encode()), nil))
				synctest.Wait()
				_, err := s.Receive(t.Context())
				var broken, want *BrokenError
				if errors.As(end.want, &want) && (!errors.As(err, &broken) || *broken != *want) || want == nil && !errors.Is(err, end.want) {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// TestGroup_RemovedMemberInvitedAgain: who was removed may be invited again, at once, and the
// removal is acknowledged as often as it is said.
func TestGroup_RemovedMemberInvitedAgain(t *testing.T) {
	t.Parallel()
	var acks, found int
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, func(m *dataplane.Message) nodetest.Fate {
			switch kindOf(m) {
			case frame.GroupAck:
				acks++
			case frame.DiscoveryReply:
				found++
			default:
			}
			return nodetest.Fate{}
		})
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		channel, _ := channels(t)
		for round := range 3 {
			s := invite(t, a, b)
			if s.ended() {
				t.Fatalf("round %d: over before it began", round)
			}
			to := frame.Route{From: a.Name(), To: channel, Session: space, Message: 50, Group: true}
			a.emit(frame.Data(to, frame.Msg, frame.Payload{Blob: []byte("hello")}, nil))
			if m, err := s.Receive(t.Context()); err != nil || string(m.Blob) != "hello" {
				t.Fatalf("round %d: %q %v", round, m.Blob, err)
			}
			to.To = b.Name()
			for range 2 {
				a.emit(frame.Control(to, changed(dataplane.GroupUpdateOp_REMOVE, b.Name().Encode()), nil))
				synctest.Wait()
			}
			if !s.ended() || acks != 3*(round+1) || found != round+1 { // of the welcome, and of each removal
				t.Errorf("round %d: %d acknowledgements, found %d times", round, acks, found)
			}
		}
		time.Sleep(linger + time.Second)
		if len(b.all()) != 0 {
			t.Errorf("%d sessions are kept", len(b.all()))
		}
	})
}

// TestGroup_RefusedAtOnce: at once, with a notice, and nothing is left of them.
func TestGroup_RefusedAtOnce(t *testing.T) {
	t.Parallel()
	for what, spoil := range map[string]func(*dataplane.JoinRequestPayload){
		"encrypted":         func(j *dataplane.JoinRequestPayload) { j.MlsSettings = &dataplane.MlsSettings{} },
		"without a channel": func(j *dataplane.JoinRequestPayload) { j.Channel = nil },
		"without control":   func(j *dataplane.JoinRequestPayload) { j.Control = nil },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var received []frame.Kind
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t, func(m *dataplane.Message) nodetest.Fate {
					received = append(received, kindOf(m))
					return nodetest.Fate{}
				})
				a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
				channel, control := channels(t)
				join := frame.Join(1000, 3)
				join.GetJoinRequest().Channel, join.GetJoinRequest().Control = channel.Encode(), control.Encode()
				spoil(join.GetJoinRequest())
				a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: space, Message: 5, Group: true}, join, nil))
				synctest.Wait()
				if len(received) != 2 || received[1] != frame.GroupNack || len(b.all()) != 0 {
					t.Errorf("%v, %d sessions", received, len(b.all()))
				}
			})
		})
	}
}

// TestGroup_MembersAreBounded: members beyond the bound are not enrolled.
func TestGroup_MembersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		s := invite(t, a, b)
		for i := range uint32(maxMembers + 10) {
			other := named(t, "org/ns/m"+strings.Repeat("x", int(i%7))).With(name.ID{High: 9, Low: uint64(i)})
			a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: space, Message: 1000 + i, Group: true}, changed(dataplane.GroupUpdateOp_ADD, other.Encode()), nil))
		}
		synctest.Wait()
		if got := len(s.Roster()); got != maxMembers+1 {
			t.Errorf("%d members", got)
		}
	})
}

// TestGroup_MemberIdentityIsFixed: whoever spoke for a member first does so to the end, and
// nobody else speaks for it, for the moderator, or in the group at all.
func TestGroup_MemberIdentityIsFixed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		carol, mallory := start(t, node, "org/ns/carol", secret), start(t, node, "org/ns/mallory", secret)
		s := invite(t, a, b, carol.Name())
		tell := func(by *App, as name.Name, id uint32, text string) {
			by.emit(frame.Data(frame.Route{From: as, To: b.Name(), Session: space, Message: id, Group: true}, frame.Msg, frame.Payload{Blob: []byte(text)}, nil))
			synctest.Wait()
		}
		tell(carol, carol.Name(), 1, "one")
		tell(mallory, carol.Name(), 2, "a lie")
		tell(mallory, a.Name(), 1, "a lie")
		tell(mallory, mallory.Name(), 1, "a lie")
		tell(carol, carol.Name(), 2, "two")
		for _, want := range []string{"one", "two"} {
			if m, err := s.Receive(t.Context()); err != nil || string(m.Blob) != want || m.Subject != "org/ns/carol" || m.From != carol.Name() {
				t.Errorf("%s of %s, %v", m.Blob, m.Subject, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if m, err := s.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s of %s, %v", m.Blob, m.Subject, err)
		}
	})
}

// TestGroup_MemberGoesOfflineByItself: a member goes offline by its own word, and by
// nobody else's, the moderator's included.
func TestGroup_MemberGoesOfflineByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		carol, dave := start(t, node, "org/ns/carol", secret), start(t, node, "org/ns/dave", secret)
		s := invite(t, a, b, carol.Name(), dave.Name())
		says := func(by *App, who name.Name, is dataplane.ParticipantState) string {
			answer := &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_UpdateParticipantState{
				UpdateParticipantState: &dataplane.UpdateParticipantStatePayload{Participant: who.Encode(), NewState: is},
			}}
			by.emit(frame.Control(frame.Route{From: by.Name(), To: b.Name(), Session: space, Message: 40, Group: true}, answer, nil))
			synctest.Wait()
			var all strings.Builder
			for _, m := range s.Roster() {
				if m.Offline {
					all.WriteString(m.Name.Service)
				}
			}
			return all.String()
		}
		const gone, here = dataplane.ParticipantState_OFFLINE, dataplane.ParticipantState_ONLINE
		for i, step := range []struct {
			by, about *App
			is        dataplane.ParticipantState
			offline   string
		}{
			{dave, carol, gone, ""},
			{a, carol, gone, ""},
			{carol, carol, gone, "carol"},
			{dave, carol, here, "carol"},
			{carol, carol, here, ""},
		} {
			if got := says(step.by, step.about.Name(), step.is); got != step.offline {
				t.Errorf("step %d: offline is %q, want %q", i, got, step.offline)
			}
		}
	})
}
