package slim_test

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestGroup_AgentOfTheGateway: a real moderator invites an agent of the gateway into
// a group. Whoever asks it there is answered, alone; what is no request for it
// is not; the moderator ends it. An encrypted group is refused.
func TestGroup_AgentOfTheGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	_, toolbox := w.toolbox(t)
	g := w.gateway(t, "first", w.on("first", "spiffe://"+domain+"/client")+"\nagents: {toolbox: "+toolbox+"}")
	g.await(t, "connected to the SLIM node")
	alice, bob := w.app(t, "org/agents/alice", nil), w.app(t, "org/agents/bob", nil)
	var group, member handle
	alice.do(t, job{"job": "open", "app": "org/agents/alice", "to": "org/agents/room", "group": true}, &group)
	invite := func(who string) error {
		return alice.begin(t, job{"job": "invite", "app": "org/agents/alice", "session": group.Session, "who": who})(new(struct{}))
	}
	eventually(t, func() error { return invite("org/first/toolbox") })
	g.await(t, "agent joined the SLIM group")
	if err := invite("org/agents/bob"); err != nil {
		t.Fatal(err)
	}
	bob.do(t, job{"job": "listen", "app": "org/agents/bob"}, &member)
	say := func(p *peer, session, body string) {
		p.do(t, job{"job": "publish", "session": session, "body": body}, nil)
	}
	hear := func(p *peer, session string, within time.Duration) (got received, err error) {
		return got, p.begin(t, job{"job": "receive", "session": session, "timeout": within.Milliseconds()})(&got)
	}
	call := func(text string) string { return strings.Replace(echoCall, "who am I", text, 1) }

	say(alice, group.Session, "good morning, all") // no request of any protocol
	say(alice, group.Session, `{"jsonrpc":"2.0","method":"notifications/message"}`)
	say(alice, group.Session, `{"jsonrpc":"2.0","id":7,"result":{}}`)
	say(alice, group.Session, call("from alice"))
	got, err := hear(alice, group.Session, 10*time.Second)
	if err != nil || !strings.Contains(got.Body, "from alice") || got.From != "org/first/toolbox" && !strings.HasPrefix(got.From, "org/first/toolbox") {
		t.Fatalf("%+v %v", got, err)
	}
	if tokens := strings.Split(got.Metadata["execution-context"], ","); len(tokens) != 2 {
		t.Errorf("%d tokens", len(tokens))
	}
	for range 4 { // what alice said, in order
		if got, err = hear(bob, member.Session, 10*time.Second); err != nil || !strings.HasPrefix(got.From, "org/agents/alice") {
			t.Fatalf("bob hears %+v, %v", got, err)
		}
	}
	say(bob, member.Session, call("from bob"))
	if got, err = hear(bob, member.Session, 10*time.Second); err != nil || !strings.Contains(got.Body, "from bob") {
		t.Fatalf("bob hears %+v, %v", got, err)
	}
	if got, err = hear(alice, group.Session, 10*time.Second); err != nil || !strings.Contains(got.Body, "from bob") || !strings.HasPrefix(got.From, "org/agents/bob") {
		t.Errorf("alice hears %+v, %v", got, err)
	}
	if got, err := hear(alice, group.Session, time.Second); err == nil {
		t.Errorf("alice hears what was for bob: %+v", got)
	}
	alice.do(t, job{"job": "remove", "app": "org/agents/alice", "session": group.Session, "who": "org/first/toolbox"}, nil)
	g.await(t, "agent left the SLIM group")

	t.Run("again, and closed", func(t *testing.T) {
		if err := invite("org/first/toolbox"); err != nil {
			t.Fatal(err)
		}
		say(bob, member.Session, call("again"))
		if got, err = hear(bob, member.Session, 10*time.Second); err != nil || !strings.Contains(got.Body, "again") {
			t.Errorf("%+v %v", got, err)
		}
		alice.do(t, job{"job": "close", "app": "org/agents/alice", "session": group.Session}, nil)
		ctx := limited(t, 20*time.Second)
		for strings.Count(string(g.logs.text()), "agent left the SLIM group") < 2 {
			if wait(t, 50*time.Millisecond); ctx.Err() != nil {
				t.Fatal("the group is not over")
			}
		}
	})
	t.Run("an encrypted group", func(t *testing.T) {
		var locked handle
		alice.do(t, job{"job": "open", "app": "org/agents/alice", "to": "org/agents/vault", "group": true, "mls": true, "retries": 2, "interval": 300}, &locked)
		err := alice.begin(t, job{"job": "invite", "app": "org/agents/alice", "session": locked.Session, "who": "org/first/toolbox"})(new(struct{}))
		if _, refused := errors.AsType[*peerError](err); !refused {
			t.Errorf("it was joined: %v", err)
		}
		g.await(t, "MLS is not supported by this gateway, use a session without MLS")
	})
}
