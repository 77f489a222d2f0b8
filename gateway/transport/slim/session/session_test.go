package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/nodetest"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const secret = "a secret that all members of these tests know"

func named(t *testing.T, text string) name.Name {
	t.Helper()
	n, err := name.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// start runs an application in the test's bubble.
func start(t *testing.T, node Node, as, secret string) *App {
	t.Helper()
	who, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte(secret)})
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewApp(Deps{Node: node, Name: named(t, as), Provider: who, Verifier: who})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	synctest.Wait() // it is known now
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return a
}

// pair begins a session between two applications.
func pair(t *testing.T, a, b *App) (*Session, *Session) {
	t.Helper()
	mine, err := a.Open(t.Context(), b.Name().Any(), map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := b.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return mine, theirs
}

// newNode makes a node in the test's bubble.
func newNode(t *testing.T, fate func(*dataplane.Message) nodetest.Fate) *nodetest.Node {
	t.Helper()
	return nodetest.New(t, fate)
}

func kindOf(m *dataplane.Message) frame.Kind {
	return m.GetPublish().GetSession().GetSessionMessageType()
}

// TestSession_UnreliableNetwork: whatever a node does to messages, what arrives is what was
// sent, in order and once.
func TestSession_UnreliableNetwork(t *testing.T) {
	t.Parallel()
	handlers := map[string]func(*rand.Rand) nodetest.Fate{
		"good":     func(*rand.Rand) nodetest.Fate { return nodetest.Fate{} },
		"losing":   func(r *rand.Rand) nodetest.Fate { return nodetest.Fate{Drop: r.IntN(8) == 0} },
		"doubling": func(r *rand.Rand) nodetest.Fate { return nodetest.Fate{Copies: r.IntN(3)} },
		"unorderly": func(r *rand.Rand) nodetest.Fate {
			return nodetest.Fate{Delay: time.Duration(r.IntN(900)) * time.Millisecond}
		},
		"all of it": func(r *rand.Rand) nodetest.Fate {
			return nodetest.Fate{Drop: r.IntN(10) == 0, Copies: r.IntN(2), Delay: time.Duration(r.IntN(500)) * time.Millisecond}
		},
	}
	for handler, fate := range handlers {
		t.Run(handler, func(t *testing.T) {
			t.Parallel()
			chance := rand.New(rand.NewPCG(1, 2))
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t, func(*dataplane.Message) nodetest.Fate { return fate(chance) })
				mine, theirs := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
				if theirs.Metadata()["k"] != "v" || theirs.Subject() != "org/ns/alice" || mine.Subject() != "org/ns/bob" {
					t.Errorf("%v, %v to %v", theirs.Metadata(), theirs.Subject(), mine.Subject())
				}
				done := make(chan error, 2)
				go func() { done <- sendAll(t.Context(), mine, 300) }()
				go func() { done <- sendAll(t.Context(), theirs, 300) }()
				receiveAll(t, theirs, 300)
				receiveAll(t, mine, 300)
				for range 2 {
					if err := <-done; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

func sendAll(ctx context.Context, s *Session, count int) error {
	for i := range count {
		if err := s.Send(ctx, Message{Type: "msg", Blob: fmt.Appendf(nil, "%d", i)}); err != nil {
			return err
		}
	}
	return s.Delivered(ctx)
}

func receiveAll(t *testing.T, s *Session, count int) {
	t.Helper()
	for i := range count {
		m, err := s.Receive(t.Context())
		if err != nil || string(m.Blob) != fmt.Sprint(i) || m.From != s.Peer() {
			t.Fatalf("%d: %q from %v, %v", i, m.Blob, m.From, err)
		}
	}
}

// TestSession_Close: who is told goodbye reads to the end; who said it does not.
func TestSession_Close(t *testing.T) {
	t.Parallel()
	for _, closer := range []string{"who began it", "who was asked"} {
		t.Run(closer, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t, nil)
				a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
				one, other := pair(t, a, b)
				if closer == "who was asked" {
					one, other = other, one
				}
				if err := sendAll(t.Context(), one, 3); err != nil {
					t.Fatal(err)
				}
				one.Close()
				synctest.Wait()
				receiveAll(t, other, 3)
				if _, err := other.Receive(t.Context()); !errors.Is(err, io.EOF) {
					t.Errorf("the other end: %v", err)
				}
				if err := other.Send(t.Context(), Message{}); !errors.Is(err, ErrClosed) {
					t.Errorf("the other end sends: %v", err)
				}
				if _, err := one.Receive(t.Context()); !errors.Is(err, ErrClosed) {
					t.Errorf("the closer: %v", err)
				}
				time.Sleep(linger + time.Second)
				if len(a.all())+len(b.all()) != 0 {
					t.Error("a session is kept for ever")
				}
			})
		})
	}
}

// TestSession_IdleLivesByHeartbeats: by heartbeats, for a quarter of an hour.
func TestSession_IdleLivesByHeartbeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		mine, theirs := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
		time.Sleep(15 * time.Minute)
		if err := sendAll(t.Context(), mine, 1); err != nil {
			t.Fatal(err)
		}
		receiveAll(t, theirs, 1)
	})
}

// TestSession_SilentPeerIsGone: an end that gives no sign of life is gone.
func TestSession_SilentPeerIsGone(t *testing.T) {
	t.Parallel()
	var mute atomic.Bool
	fate := func(*dataplane.Message) nodetest.Fate { return nodetest.Fate{Drop: mute.Load()} }
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, fate)
		mine, theirs := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
		mute.Store(true)
		began := time.Now()
		for _, s := range []*Session{mine, theirs} {
			var broken *BrokenError
			if _, err := s.Receive(t.Context()); !errors.As(err, &broken) || broken.Fault != FaultSilent {
				t.Errorf("%v", err)
			}
		}
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("noticed after %v", took)
		}
	})
}

// TestSession_UnacknowledgedMessageBreaksIt: what nobody acknowledges breaks the session.
func TestSession_UnacknowledgedMessageBreaksIt(t *testing.T) {
	t.Parallel()
	fate := func(m *dataplane.Message) nodetest.Fate { return nodetest.Fate{Drop: kindOf(m) == frame.Msg} }
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, fate)
		mine, _ := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
		var broken *BrokenError
		if err := sendAll(t.Context(), mine, 1); !errors.As(err, &broken) || broken.Fault != FaultLost {
			t.Errorf("%v", err)
		}
	})
}

// TestSession_SurvivesLongDisconnection for longer than everybody's patience: nothing is held
// against anybody, and nothing is lost.
func TestSession_SurvivesLongDisconnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		mine, theirs := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
		node.Cut(true)
		done := make(chan error, 1)
		go func() { done <- sendAll(t.Context(), mine, 10) }()
		time.Sleep(10 * time.Minute)
		node.Cut(false)
		receiveAll(t, theirs, 10)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestSession_SlowReaderHoldsUpSender holds up its sender, keeps within bounds, and loses nothing
// that it was promised.
func TestSession_SlowReaderHoldsUpSender(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		mine, theirs := pair(t, start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret))
		done := make(chan error, 1)
		go func() { done <- sendAll(t.Context(), mine, inboxCount+600) }()
		time.Sleep(5 * time.Second) // its sender has patience for ten
		theirs.mu.Lock()
		waiting := len(theirs.m.inbox.messages)
		theirs.mu.Unlock()
		if waiting > inboxCount+reach { // what came early comes with what was missing
			t.Errorf("%d messages wait", waiting)
		}
		receiveAll(t, theirs, inboxCount+600)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestOpen_UnansweredEndsInTime, in time.
func TestOpen_UnansweredEndsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a := start(t, node, "org/ns/alice", secret)
		began := time.Now()
		var broken *BrokenError
		if _, err := a.Open(t.Context(), named(t, "org/ns/nobody"), nil); !errors.As(err, &broken) || broken.Fault != FaultSilent {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 11*time.Second {
			t.Errorf("after %v", took)
		}
	})
}

// TestSession_IgnoresPeersWithoutTheSecret: who does not know the secret is not heard, from the first
// message to one in the middle of a session of others.
func TestSession_IgnoresPeersWithoutTheSecret(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		eve := start(t, node, "org/ns/eve", strings.Repeat("another secret ", 4))
		var broken *BrokenError
		if _, err := eve.Open(t.Context(), b.Name().Any(), nil); !errors.As(err, &broken) {
			t.Errorf("eve: %v", err)
		}
		mallory := start(t, node, "org/ns/mallory", secret)
		mine, theirs := pair(t, a, b)
		route := frame.Route{From: a.Name(), To: b.Name(), Session: mine.m.id, Message: 1}
		lie := frame.Data(route, frame.Msg, frame.Payload{Blob: []byte("lie")}, nil)
		eve.emit(lie)     // no token of ours
		mallory.emit(lie) // a token, but of somebody else
		route.From = mallory.Name()
		mallory.emit(frame.Data(route, frame.Msg, frame.Payload{Blob: []byte("lie")}, nil))
		mallory.emit(frame.Control(route, frame.Leave(), nil))
		synctest.Wait()
		if err := sendAll(t.Context(), mine, 1); err != nil {
			t.Fatal(err)
		}
		receiveAll(t, theirs, 1)
	})
}

// TestSession_RefusesEncryptionAndLargeMessages: of encryption, and of a message too large, both at once.
func TestSession_RefusesEncryptionAndLargeMessages(t *testing.T) {
	t.Parallel()
	var received []frame.Kind // written under the node's lock, read when all is quiet
	reasons := 0
	fate := func(m *dataplane.Message) nodetest.Fate {
		received = append(received, kindOf(m))
		if m.GetMetadata()["aepb-reason"] == "MLS is not supported by this gateway, use a session without MLS" {
			reasons++
		}
		return nodetest.Fate{}
	}
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, fate)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		mine, _ := pair(t, a, b)
		var large *TooLargeError
		if err := mine.Send(t.Context(), Message{Blob: make([]byte, 4<<20)}); !errors.As(err, &large) {
			t.Errorf("4 MiB: %v", err)
		}
		if err := mine.Send(t.Context(), Message{Blob: make([]byte, frame.MaxMessage-1024)}); !errors.As(err, &large) {
			t.Errorf("without room for a token: %v", err)
		}
		received = nil
		join := frame.Join(1000, 10)
		join.GetJoinRequest().MlsSettings = &dataplane.MlsSettings{}
		var log strings.Builder
		b.deps.Logger = slog.New(slog.NewTextHandler(&log, nil))
		a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: 99, Message: 5}, join, nil))
		synctest.Wait()
		want := fmt.Sprint([]frame.Kind{frame.JoinRequest, frame.JoinReply, frame.LeaveRequest, frame.LeaveReply})
		if got := fmt.Sprint(received); got != want {
			t.Errorf("%v, want %v", got, want)
		}
		if !strings.Contains(log.String(), `reason="MLS is not supported by this gateway, use a session without MLS"`) {
			t.Errorf("the log says %s", log.String())
		}
		if reasons != 2 {
			t.Errorf("%d messages say why", reasons)
		}
		if len(b.all()) != 1 {
			t.Error("there is a session")
		}
	})
}

// TestSession_WithoutWelcomeIsGivenUp that nobody welcomes us to is given up.
func TestSession_WithoutWelcomeIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: 99, Message: 5}, frame.Join(1000, 10), nil))
		synctest.Wait()
		if len(b.all()) != 1 {
			t.Fatal("there is no session")
		}
		time.Sleep(joinLimit + linger + time.Second)
		if len(b.all()) != 0 {
			t.Error("it is kept for ever")
		}
	})
}

// TestSession_CountPerMemberIsBounded: one member may not take all the sessions there are.
func TestSession_CountPerMemberIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b, c := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret), start(t, node, "org/ns/carol", secret)
		for i := range uint32(maxGuest + 10) {
			a.emit(frame.Control(frame.Route{From: a.Name(), To: b.Name(), Session: 1000 + i, Message: 5}, frame.Join(1000, 10), nil))
		}
		synctest.Wait()
		if got := len(b.all()); got != maxGuest {
			t.Errorf("%d sessions", got)
		}
		if _, err := c.Open(t.Context(), b.Name().Any(), nil); err != nil {
			t.Errorf("another member: %v", err)
		}
		time.Sleep(joinLimit + linger + time.Second)
		if got := len(b.all()); got != 1 || len(b.guests) != 1 {
			t.Errorf("%d sessions of %v", got, b.guests)
		}
	})
}

// TestSession_EndedSessionsFreeTheirSlots: a session that is over takes nobody's place, however many
// there were in a short while, and not all of them linger.
func TestSession_EndedSessionsFreeTheirSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		a, b := start(t, node, "org/ns/alice", secret), start(t, node, "org/ns/bob", secret)
		for i := range maxEnded + 10 {
			s, err := a.Open(t.Context(), b.Name().Any(), nil)
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if _, err := b.Accept(t.Context()); err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			s.Close()
			synctest.Wait()
		}
		if len(a.all()) != maxEnded || len(b.all()) != maxEnded {
			t.Errorf("%d and %d sessions linger", len(a.all()), len(b.all()))
		}
		time.Sleep(linger + time.Second)
		if len(a.all())+len(b.all())+a.count+b.count+a.ended+b.ended+len(b.guests) != 0 {
			t.Errorf("a session is kept for ever: %d %d %d %d %v", a.count, b.count, a.ended, b.ended, b.guests)
		}
	})
}

// TestApp_StopEndsItsSessions is the end of its sessions, which hear of it.
func TestApp_StopEndsItsSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t, nil)
		b := start(t, node, "org/ns/bob", secret)
		a := start(t, node, "org/ns/alice", secret)
		mine, theirs := pair(t, a, b)
		a.stop()
		if _, err := theirs.Receive(t.Context()); !errors.Is(err, io.EOF) {
			t.Errorf("the other end: %v", err)
		}
		if err := mine.Send(t.Context(), Message{}); !errors.Is(err, ErrClosed) {
			t.Errorf("ours: %v", err)
		}
		if _, err := a.Open(t.Context(), b.Name().Any(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("another one: %v", err)
		}
	})
}
