//go:build interop

package slim_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/cmd/aepb-gateway/demo/peers"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/session"
)

// startPython runs a process with SLIM's bindings for Python, which are of 3.x.
func startPython(t *testing.T) *peer {
	t.Helper()
	python, err := filepath.Abs(filepath.Join("..", "..", ".tmp", "python-slim", "bin", "python"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(python); err != nil {
		t.Fatalf("%v: make interop installs it", err)
	}
	cmd := exec.Command(python, "-W", "ignore", "peer.py")
	cmd.Dir = "python"
	return runPeer(t, cmd)
}

// pythonNode is a node of SLIM 3 with a service configuration.
func pythonNode(t *testing.T, at, tls, more string) {
	t.Helper()
	file := nodeConfig(t, at, tls, more)
	var got struct{ Version string }
	startPython(t).do(t, job{"job": "node", "config": file}, &got)
	if !strings.HasPrefix(got.Version, "3.") {
		t.Errorf("a node of version %q", got.Version)
	}
}

// TestPython_Sessions: sessions of an application of SLIM 3 with ours, begun by
// either, on a node that demands keys of links and MACs of headers.
func TestPython_Sessions(t *testing.T) {
	t.Parallel()
	at := freeAddress(t)
	pythonNode(t, at, plainNode, "")
	theirs := startPython(t)
	theirs.do(t, job{"job": "app", "endpoint": "http://" + at, "name": "org/ns/alice", "secret": secret}, nil)
	us := join(t, at, "org/ns/gogate", plaintext(at))
	ctx := limited(t, 30*time.Second)
	id, s := open(t, theirs, "org/ns/alice", us, nil)
	for i := range 20 {
		text := fmt.Sprintf("item %d", i)
		theirs.do(t, job{"job": "publish", "session": id, "body": text, "type": "text/plain", "metadata": job{"k": text}}, nil)
		if m, err := s.Receive(ctx); err != nil || string(m.Blob) != text || m.Type != "text/plain" || m.Metadata["k"] != text {
			t.Fatalf("%+v %v", m, err)
		}
		if err := s.Send(ctx, session.Message{Type: "msg", Blob: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		var got received
		if theirs.do(t, job{"job": "receive", "session": id}, &got); got.Body != text {
			t.Fatalf("%+v", got)
		}
	}
	theirs.do(t, job{"job": "close", "app": "org/ns/alice", "session": id}, nil)
	if _, err := s.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
	begun, err := us.app.Open(ctx, parse(t, "org/ns/alice"), map[string]string{"a": "b"})
	if err != nil {
		t.Fatal(err)
	}
	var h handle
	if theirs.do(t, job{"job": "listen", "app": "org/ns/alice"}, &h); h.Metadata["a"] != "b" {
		t.Errorf("%+v", h)
	}
	if err := begun.Send(ctx, session.Message{Type: "msg", Blob: []byte("ping")}); err != nil {
		t.Fatal(err)
	}
	var got received
	if theirs.do(t, job{"job": "receive", "session": h.Session}, &got); got.Body != "ping" {
		t.Errorf("%+v", got)
	}
}

// TestPython_Group: a moderator of SLIM 3 invites us and another, and all hear all.
func TestPython_Group(t *testing.T) {
	t.Parallel()
	at := freeAddress(t)
	pythonNode(t, at, plainNode, "")
	moderator, bob := startPython(t), startPython(t)
	for name, p := range map[string]*peer{"org/ns/alice": moderator, "org/ns/bob": bob} {
		p.do(t, job{"job": "app", "endpoint": "http://" + at, "name": name, "secret": secret}, nil)
	}
	us := join(t, at, "org/ns/gogate", plaintext(at))
	var group, member handle
	moderator.do(t, job{"job": "open", "app": "org/ns/alice", "to": "org/ns/group", "group": true}, &group)
	moderator.do(t, job{"job": "invite", "app": "org/ns/alice", "session": group.Session, "who": "org/ns/gogate"}, nil)
	ctx := limited(t, time.Minute)
	s, err := us.app.Accept(ctx)
	if err != nil || !s.Group() {
		t.Fatalf("%v", err)
	}
	moderator.do(t, job{"job": "invite", "app": "org/ns/alice", "session": group.Session, "who": "org/ns/bob"}, nil)
	bob.do(t, job{"job": "listen", "app": "org/ns/bob"}, &member)
	moderator.do(t, job{"job": "publish", "session": group.Session, "body": "to all"}, nil)
	if m, err := s.Receive(ctx); err != nil || string(m.Blob) != "to all" {
		t.Errorf("%q %v", m.Blob, err)
	}
	if err := errors.Join(s.Send(ctx, session.Message{Type: "msg", Blob: []byte("from us")}), s.Delivered(ctx)); err != nil {
		t.Fatal(err)
	}
	var got received
	bob.do(t, job{"job": "receive", "session": member.Session}, &got) // the moderator's
	if bob.do(t, job{"job": "receive", "session": member.Session}, &got); got.Body != "from us" {
		t.Errorf("%+v", got)
	}
	moderator.do(t, job{"job": "close", "app": "org/ns/alice", "session": group.Session}, nil)
	if _, err := s.Receive(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("after the close: %v", err)
	}
}

// TestPython_PostQuantum: two of ours on a node that lets nobody in whose key is of
// X25519 alone.
func TestPython_PostQuantum(t *testing.T) {
	t.Parallel()
	at := freeAddress(t)
	pythonNode(t, at, plainNode, "      enforce_pqc: true\n")
	alice, bob := join(t, at, "org/ns/alice", plaintext(at)), join(t, at, "org/ns/bob", plaintext(at))
	ctx := limited(t, 30*time.Second)
	s, err := alice.app.Open(ctx, parse(t, "org/ns/bob"), nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := bob.app.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(ctx, session.Message{Type: "msg", Blob: []byte("ping")}); err != nil {
		t.Fatal(err)
	}
	if m, err := theirs.Receive(ctx); err != nil || string(m.Blob) != "ping" {
		t.Errorf("%q %v", m.Blob, err)
	}
}

// TestPython_ThroughTheGateway: clients and servers of SLIM 3 through a gateway, on
// a node that is configured as a service, over TLS.
func TestPython_ThroughTheGateway(t *testing.T) {
	t.Parallel()
	w := nodeless(t)
	pythonNode(t, w.at, fmt.Sprintf("{source: {type: file, cert: %q, key: %q}}", w.path("node.pem"), w.path("node-key.pem")), "")
	python := func(name, agent string) *peer {
		p := startPython(t)
		p.do(t, job{"job": "app", "endpoint": "https://" + w.at, "ca": string(w.trust.RootsPEM()), "name": name, "secret": secret, "agent": agent}, nil)
		return p
	}
	_, toolbox := w.toolbox(t)
	kinds := []string{"extended", "compat", "plain"}
	var agents strings.Builder
	fmt.Fprintf(&agents, "\nagents:\n  toolbox: %s\n", toolbox)
	for _, kind := range kinds {
		python("org/agents/"+kind, kind)
		fmt.Fprintf(&agents, "  %s: %s\n", kind, w.far("org/agents/"+kind, id(kind), ""))
	}
	alice := python("org/agents/alice", "")
	g := w.gateway(t, "first", w.on("first", id("alice"))+agents.String())
	g.await(t, "connected to the SLIM node")

	t.Run("a plain session", func(t *testing.T) {
		got, err := say(t, alice, "org/agents/alice", "org/first/toolbox", echoCall)
		if err != nil || !strings.Contains(got.Body, "who am I") {
			t.Errorf("%+v %v", got, err)
		}
	})
	t.Run("SLIMRPC, which is encrypted", func(t *testing.T) {
		err := alice.begin(t, job{
			"job": "call", "app": "org/agents/alice", "to": "org/first/toolbox", "service": "lf.a2a.v1.A2AService", "method": "SendMessage", "body": "",
		})(new(struct{}))
		var thrown *peerError
		if !errors.As(err, &thrown) || thrown.Code != int(rpc.Unavailable) {
			t.Errorf("%v", err)
		}
		g.await(t, "MLS is not supported by this gateway, use a session without MLS")
	})
	for _, kind := range kinds {
		t.Run("the agent "+kind, func(t *testing.T) {
			got, err := peers.A2ACall(t.Context(), w.client(t), g.public+"/agents/"+kind, message("hello"))
			if err != nil || got.Text() != "echo: hello" {
				t.Errorf("%q %v", got.Text(), err)
			}
			card := cardAt(t, w.client(t), g.public+"/agents/"+kind+"/.well-known/agent-card.json")
			if named := strings.Contains(card, `"Say again"`) && strings.Contains(card, `"echo"`); named != (kind != "plain") {
				t.Errorf("skills named: %v in %s", named, card) // who shows no card at all has none to keep
			}
		})
	}
}
