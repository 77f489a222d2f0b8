package session

import (
	"context"
	"io"
	"maps"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

// Session is a conversation. Safe for concurrent use. It ends with Close, by
// the other end, or with the application. The code that got it closes it.
type Session struct {
	app   *App
	guest string // the subject who asked for it; empty: we did

	released bool // belongs to live
	resting  bool // belongs to app: it is over, and counts no more

	mu      sync.Mutex
	m       *machine
	changed chan struct{} // closed when something happens; nil: no goroutine waits for that
	wake    chan struct{} // live has to look before its alarm
	alarm   time.Time     // when live looks next; zero: soon, for the first time
}

func newSession(app *App, m *machine) *Session {
	return &Session{app: app, m: m, wake: make(chan struct{}, 1)}
}

// Peer is the other end; of a group: its moderator.
func (s *Session) Peer() name.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.peer
}

// Subject is whom the peer's tokens speak for, as their verifier vouches for it.
func (s *Session) Subject() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.subject
}

// ID is the session's own: it names no other of its peer's.
func (s *Session) ID() uint32 { return s.m.id }

// Group reports whether there may be more than two members.
func (s *Session) Group() bool { return s.m.group }

// Member is a participant of a session.
type Member struct {
	Name    name.Name
	Subject string // empty: it has sent nothing yet
	Offline bool
}

// Roster returns the other participants of the session, by name.
func (s *Session) Roster() []Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.roster()
}

// Metadata is what the session was asked for with.
func (s *Session) Metadata() map[string]string { return maps.Clone(s.m.metadata) }

// Send sends a message when fewer are under way than may be; it does not
// wait for its delivery. Errors: *TooLargeError and *MessageError, for this
// message; *BrokenError, ErrClosed; the context's.
func (s *Session) Send(ctx context.Context, message Message) error {
	return s.sending(ctx, func(now time.Time) (bool, error) {
		if !s.m.hasSpace() {
			return false, nil
		}
		return true, s.m.send(now, frame.Payload{Type: message.Type, Blob: message.Blob}, message.Metadata)
	})
}

// SendTo is Send to one member of a group, whom alone it reaches; between two it
// is Send. If that member acknowledges nothing the message is lost, and the
// session goes on. Errors: as of Send, and ErrNoMember.
func (s *Session) SendTo(ctx context.Context, to name.Name, message Message) error {
	if !s.m.group {
		return s.Send(ctx, message)
	}
	return s.sending(ctx, func(now time.Time) (bool, error) {
		if !s.m.hasSpaceFor(to) {
			return false, nil
		}
		return true, s.m.sendTo(now, to, frame.Payload{Type: message.Type, Blob: message.Blob}, message.Metadata)
	})
}

// sending waits until the window has space for a message.
func (s *Session) sending(ctx context.Context, send func(now time.Time) (bool, error)) error {
	return s.until(ctx, func() (bool, error) {
		if err := s.closedError(); err != nil || s.m.state != open {
			return false, err
		}
		sent, err := send(time.Now())
		if !sent {
			return false, nil
		}
		s.flush()
		return true, err
	})
}

// closedError says that there will be no more sending; nil: there may be.
func (s *Session) closedError() error {
	switch {
	case s.m.state == closed && s.m.fault != "":
		return &BrokenError{s.m.fault}
	case s.m.state >= leaving:
		return ErrClosed
	default:
		return nil
	}
}

// Receive gives the next message, in the order in which its sender sent it.
// Errors: io.EOF when the other end ended the session properly, *BrokenError,
// ErrClosed, the context's.
func (s *Session) Receive(ctx context.Context) (message Message, err error) {
	err = s.until(ctx, func() (ok bool, err error) {
		message, ok = s.m.inbox.take()
		switch {
		case ok || s.m.state < leaving:
			return ok, nil
		case s.m.state == closed && s.m.fault == "" && s.m.byPeer:
			return false, io.EOF
		default:
			return false, s.closedError()
		}
	})
	return message, err
}

// Delivered waits until everything that was sent is acknowledged. Errors:
// *BrokenError, ErrClosed, the context's.
func (s *Session) Delivered(ctx context.Context) error {
	return s.until(ctx, func() (bool, error) {
		return len(s.m.pending) == 0 && s.m.state == open, s.closedError()
	})
}

// opened waits for the session to begin. One that the other end has ended by
// then was never wanted.
func (s *Session) opened(ctx context.Context) error {
	return s.until(ctx, func() (bool, error) {
		if s.m.byPeer {
			return false, &BrokenError{FaultRefused}
		}
		return s.m.state == open, s.closedError()
	})
}

// until waits for something to be true of the session.
func (s *Session) until(ctx context.Context, holds func() (bool, error)) error {
	for {
		s.mu.Lock()
		yes, err := holds()
		if yes || err != nil {
			s.mu.Unlock()
			return err
		}
		changed := s.change()
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}

// Close ends the session. What was sent and not delivered yet may be lost:
// Delivered waits for it. The goodbye is repeated in the background
// until it is answered, or the retries are used up.
func (s *Session) Close() {
	s.do(func(now time.Time) { s.m.leave(now) })
}

// do runs something on the machine and sends what comes out of it.
func (s *Session) do(step func(now time.Time)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	step(time.Now())
	s.flush()
}

// change is closed when something happens next; the lock is held.
func (s *Session) change() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// flush sends the messages of the machine, in order, and wakes all goroutines that
// wait for a change. A message that cannot be sent now is sent again later. It wakes
// live only if something is due before the alarm.
func (s *Session) flush() {
	for _, message := range s.m.out {
		s.app.emit(message)
	}
	clear(s.m.out)
	s.m.out = s.m.out[:0]
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	if s.m.state != closed && !s.m.next().Before(s.alarm) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// receive takes in a message for this session.
func (s *Session) receive(f frame.Frame, subject string) {
	s.do(func(now time.Time) { s.m.receive(now, f, subject) })
}

// claims reports whether a message belongs to this session.
func (s *Session) claims(f frame.Frame) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	again := f.Kind == frame.DiscoveryRequest || f.Kind == frame.JoinRequest && s.m.state == closed // who is asked again begins anew
	if s.m.group != f.Group || again {
		return false
	}
	if s.m.state == discovering {
		return f.From.Any() == s.m.peer.Any()
	}
	_, isMember := s.m.members[f.From.Key()]
	return f.From == s.m.peer || isMember
}

// live does what time asks for, until the session has been over for a while.
func (s *Session) live(ctx context.Context) {
	// pass sets when it fires. A timer that is due when it is made crashes the race detector
	// where several goroutines of one synctest bubble wait for theirs (Go 1.26).
	timer := time.NewTimer(linger)
	defer timer.Stop()
	defer s.release(ctx)
	for !s.pass(timer) {
		if s.ended() {
			s.release(ctx)
			if !s.app.rest(s) {
				return
			}
		}
		select {
		case <-ctx.Done():
			s.do(func(now time.Time) { s.m.end(now, "") })
			return
		case <-s.wake:
		case <-timer.C:
		}
	}
}

// pass ticks when something is due and sets the timer for what is next.
func (s *Session) pass(timer *time.Timer) (over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	due := s.m.next()
	if !now.Before(due) {
		if s.m.state == closed {
			return true
		}
		before := s.m.state
		s.m.tick(now)
		if len(s.m.out) > 0 || s.m.state != before {
			s.flush()
		}
		due = s.m.next()
	}
	wait := max(due.Sub(now), time.Millisecond)
	s.alarm = now.Add(wait)
	timer.Reset(wait)
	return false
}

// connected tells the machine about the connection.
func (s *Session) connected(up bool) {
	s.do(func(now time.Time) {
		s.m.up = up
		s.m.postpone(now)
	})
}

func (s *Session) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.state == closed
}

// release takes the session's names back, once; it may be invited again with
// the same ones. Only live calls it.
func (s *Session) release(ctx context.Context) {
	if s.released {
		return
	}
	s.released = true
	for _, n := range s.names() {
		s.app.deps.Node.Unsubscribe(context.WithoutCancel(ctx), n)
	}
}

// names are those that exist for this session alone.
func (s *Session) names() []name.Name {
	if !s.m.group {
		return nil
	}
	return []name.Name{s.m.channel, s.m.control}
}
