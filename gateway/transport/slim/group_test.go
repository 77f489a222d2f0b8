package slim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/credential"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/dataplane"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/frame"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/internal/nodetest"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// moderator is somebody who invites and asks, frame by frame.
type moderator struct {
	node *nodetest.Node
	who  *credential.Secret
	name name.Name

	mu       sync.Mutex
	received []frame.Frame
	deaf     bool // it acknowledges nothing
}

func newModerator(t *testing.T, node *nodetest.Node, as string) *moderator {
	t.Helper()
	who, err := credential.NewSecret(credential.SecretDeps{ID: as, Secret: []byte("a secret that all members of these tests know")})
	if err != nil {
		t.Fatal(err)
	}
	m := &moderator{node: node, who: who, name: named(t, as).With(name.ID{High: 3, Low: uint64(len(as))})}
	if err := node.Subscribe(t.Context(), m.name, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *moderator) Token(ctx context.Context) (string, error) { return m.who.Token(ctx) }

func (*moderator) Connected(bool) {}

// Receive keeps what came, and acknowledges what wants that.
func (m *moderator) Receive(wire *dataplane.Message) {
	f, err := frame.Read(wire)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.received = append(m.received, f)
	deaf := m.deaf
	m.mu.Unlock()
	if f.Kind == frame.Msg && !deaf {
		_ = m.send(frame.Data(m.to(f.From, f.Session, f.Message), frame.MsgAck, frame.Payload{}, nil))
	}
}

func (m *moderator) to(who name.Name, session, message uint32) frame.Route {
	return frame.Route{From: m.name, To: who, Session: session, Message: message, Group: true}
}

func (m *moderator) send(message *dataplane.Message) error {
	if err := frame.Seal(context.Background(), message, m.who); err != nil {
		return err
	}
	return m.node.Send(message)
}

// invite takes somebody into a group and says whether it stays.
func (m *moderator) invite(t *testing.T, who name.Name, id uint32, others ...name.Name) (stays bool) {
	t.Helper()
	members := []*dataplane.Participant{frame.Member(m.name.Encode()), frame.Member(who.Encode())}
	for _, other := range others {
		members = append(members, frame.Member(other.Encode()))
	}
	join := frame.Join(1000, 3)
	join.GetJoinRequest().Channel = named(t, "org/ns/room").With(name.ID{High: uint64(id), Low: 1}).Encode()
	join.GetJoinRequest().Control = named(t, "org/ns/room").With(name.ID{High: uint64(id), Low: 2}).Encode()
	for i, command := range []*dataplane.CommandPayload{join, frame.Welcome(members...)} {
		if err := m.send(frame.Control(m.to(who, id, uint32(i+1)), command, nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	of := func(kind frame.Kind) bool {
		return slices.ContainsFunc(m.received, func(f frame.Frame) bool { return f.Session == id && f.Kind == kind })
	}
	return of(frame.GroupAck) && !of(frame.LeaveRequest)
}

// answers are the messages that came since, by session.
func (m *moderator) answers() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, f := range m.received {
		if f.Kind == frame.Msg {
			all = append(all, fmt.Sprintf("%d %s%s", f.Session, f.Metadata["slimrpc-code"], f.Payload.Blob))
		}
	}
	m.received = nil
	return all
}

// protocol answers everything with who asked.
type protocol struct{}

func (protocol) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	return out.Send(ctx, rpc.Frame{Body: []byte(call.Method + " for " + call.Subject)})
}

// member runs a peer that takes part in at most two groups, of those whom it
// does not call a stranger.
func member(t *testing.T, node *nodetest.Node) *Peer {
	t.Helper()
	return memberOf(t, node, protocol{}, 2)
}

// memberOf is one with a handler, and room for so many groups.
func memberOf(t *testing.T, node *nodetest.Node, handler rpc.Handler, most int64) *Peer {
	t.Helper()
	places, err := quota.New(quota.Config{Resource: "groups", Total: most, PerHolder: most})
	if err != nil {
		t.Fatal(err)
	}
	who, err := credential.NewSecret(credential.SecretDeps{ID: "org/ns/us", Secret: []byte("a secret that all members of these tests know")})
	if err != nil {
		t.Fatal(err)
	}
	peer, err := NewPeer(PeerDeps{Node: node, Name: named(t, "org/ns/us"), Provider: who, Verifier: who, Handler: handler, Groups: &groups{
		handler: handler, places: places, logger: slog.New(slog.DiscardHandler), identity: "us",
		welcome: func(subject string) bool { return !strings.HasSuffix(subject, "stranger") },
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- peer.Run(ctx) }()
	synctest.Wait()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	return peer
}

// TestGroup_AnswersEachMember: requests are answered, each to its asker, in the way that it
// asked; the rest is not for us.
func TestGroup_AnswersEachMember(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		us, alice := member(t, node), newModerator(t, node, "org/ns/alice")
		if !alice.invite(t, us.Name(), 70) {
			t.Fatal("it does not stay")
		}
		channel := named(t, "org/ns/room").With(name.ID{High: 70, Low: 1})
		for i, answer := range []struct {
			body     string
			metadata map[string]string
			want     string
		}{
			{"good morning", nil, ""},
			{`[1]`, nil, ""},
			{`{"jsonrpc":"2.0","method":"notifications/message"}`, nil, ""},
			{`{"jsonrpc":"2.0","id":1,"result":{}}`, nil, ""},
			{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, nil, ""},
			{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, nil, "70  for org/ns/alice"},
			{"x", map[string]string{"rpc-id": "1", "slimrpc-dir": "resp", "service": "s", "method": "m"}, ""},
			{"x", map[string]string{"rpc-id": "1", "slimrpc-dir": "req", "service": "s"}, ""},
			{"x", map[string]string{"rpc-id": "1", "slimrpc-dir": "req", "service": "s", "method": "m"}, "70 m for org/ns/alice|70 0"},
			{"x", map[string]string{"rpc-id": "1", "slimrpc-dir": "req", "service": "s", "method": "m", "slimrpc-timeout": "soon"}, "70 3the deadline is no time"},
		} {
			if err := alice.send(frame.Data(alice.to(channel, 70, uint32(i+1)), frame.Msg, frame.Payload{Blob: []byte(answer.body)}, answer.metadata)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if got := strings.Join(alice.answers(), "|"); got != answer.want {
				t.Errorf("%s %v: %q, want %q", answer.body, answer.metadata, got, answer.want)
			}
		}
	})
}

// TestGroup_SlowMemberBlocksNoOther: a member that asks too much, and acknowledges no answer,
// does not keep us from hearing the others.
func TestGroup_SlowMemberBlocksNoOther(t *testing.T) {
	t.Parallel()
	for kind, flood := range map[string]func(n int) (string, map[string]string){
		"calls": func(n int) (string, map[string]string) {
			return "x", map[string]string{"rpc-id": strconv.Itoa(n), "slimrpc-dir": "req", "service": "s", "method": "m"}
		},
		"messages": func(n int) (string, map[string]string) {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, n), nil
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				node := newNode(t)
				us, alice, bob := member(t, node), newModerator(t, node, "org/ns/alice"), newModerator(t, node, "org/ns/bobby")
				if !alice.invite(t, us.Name(), 70, bob.name) {
					t.Fatal("it does not stay")
				}
				alice.mu.Lock()
				alice.deaf = true
				alice.mu.Unlock()
				channel := named(t, "org/ns/room").With(name.ID{High: 70, Low: 1})
				for n := range 300 {
					body, metadata := flood(n)
					if err := alice.send(frame.Data(alice.to(channel, 70, uint32(n+1)), frame.Msg, frame.Payload{Blob: []byte(body)}, metadata)); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
				}
				if err := bob.send(frame.Data(bob.to(channel, 70, 1), frame.Msg, frame.Payload{Blob: []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)}, nil)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := strings.Join(bob.answers(), "|"); !strings.Contains(got, "org/ns/bobby") || strings.Contains(got, "too many calls") {
					t.Errorf("the other is answered %q", got)
				}
			})
		})
	}
}

// TestGroup_CountIsBounded: no more groups than there are places, and none of a stranger.
func TestGroup_CountIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := newNode(t)
		us, alice, stranger := member(t, node), newModerator(t, node, "org/ns/alice"), newModerator(t, node, "org/ns/stranger")
		if stranger.invite(t, us.Name(), 69) {
			t.Error("it stays with a stranger")
		}
		for id, want := range []bool{true, true, false} {
			if alice.invite(t, us.Name(), uint32(70+id)) != want {
				t.Errorf("group %d: %t", id, !want)
			}
		}
		closed := &dataplane.CommandPayload{CommandPayloadType: &dataplane.CommandPayload_GroupClose{GroupClose: &dataplane.GroupClosePayload{}}}
		if err := alice.send(frame.Control(alice.to(us.Name(), 70, 9), closed, nil)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !alice.invite(t, us.Name(), 75) {
			t.Error("when one is over there is no place either")
		}
	})
}

// TestGroup_WhoMayInvite: callers, and in development anybody who knows the secret.
func TestGroup_WhoMayInvite(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		caller, anonymous ect.Identity
		places            int
		want              bool
	}{{"spiffe://x/y", "", 1, true}, {"", "spiffe://x/anonymous", 1, true}, {"", "", 1, false}, {"spiffe://x/y", "", 0, false}} {
		d := endpointFor(&script{}, c.caller, c.anonymous)
		d.node.Groups, d.node.deps = c.places, &NetworkDeps{Logger: slog.New(slog.DiscardHandler)}
		part, takes := d.groups().(*groups)
		if takes != (c.places > 0) || takes && part.welcome("org/ns/alice") != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// TestGroup_CallersByIssuedTokens: with tokens of issuers, each caller is who its own
// says, and is counted by it; without an id it is nobody.
func TestGroup_CallersByIssuedTokens(t *testing.T) {
	t.Parallel()
	n := NodeConfig{Caller: "spiffe://x/all", Issued: Issued{Caller: func(subject string) ect.Identity {
		return map[string]ect.Identity{"alice": "spiffe://x/alice"}[subject]
	}}}
	from := name.Name{Org: "o", Namespace: "n", Service: "claims-to-be-alice"}
	for _, c := range []struct {
		secret, subject, who, address string
	}{
		{"", "alice", "spiffe://x/alice", "slim:alice"},
		{"", "mallory", "", "slim:mallory"},
		{"s", "alice", "spiffe://x/all", "slim:o/n/claims-to-be-alice"},
	} {
		n.Secret = []byte(c.secret)
		if who, address := n.caller(rpc.Call{Subject: c.subject, From: from}); string(who) != c.who || address != c.address {
			t.Errorf("%+v: %s %s", c, who, address)
		}
	}
	if _, err := (&node{}).member(from); err == nil {
		t.Error("a member that can show nothing")
	}
}
