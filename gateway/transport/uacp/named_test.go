package uacp_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// TestListener_AgentByServerName: the longest name of an agent that a server name
// begins with, label by label, and else its first label.
func TestListener_AgentByServerName(t *testing.T) {
	t.Parallel()
	request := make(chan string, 1)
	r := &handler{exchange: echo, limit: func(q transport.CallInfo) error { request <- q.Agent; return nil }}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	known := []string{"sous", "sous.chef", "sous.chef.eu"}
	l, err := wire.NewListener(wire.ListenerDeps{
		Form: form.New(translators.Config{}), TLS: serverTLS(t), Net: plain, Agent: "chef", Anonymous: anonymous,
		Known: func(agent string) bool { return slices.Contains(known, agent) },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, r) }()
	for server, want := range map[string]string{
		"":                      "chef",
		"sous":                  "chef",
		"sous.example":          "sous",
		"sous.chef":             "sous", // it is at home in the domain chef
		"sous.chef.example":     "sous.chef",
		"sous.chefs.example":    "sous",
		"sous.chef.eu.example":  "sous.chef.eu",
		"Sous.Chef.EU.Example":  "sous.chef.eu",
		"sous.chef.us.example":  "sous.chef",
		"nobody.chef.eu.sous.x": "nobody",
	} {
		conn, err := tls.Dial("tcp", plain.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{wire.Protocol}, ServerName: server})
		if err != nil {
			t.Fatalf("%q: %v", server, err)
		}
		(line{t, conn}).send(content(t, form.Frame{ID: 5}))
		if got := <-request; got != want {
			t.Errorf("%q means %q, want %q", server, got, want)
		}
		_ = conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAttack_CertificateAmongTokensOverUACP: who holds an SVID with the id that an access token would give is not that caller.
func TestAttack_CertificateAmongTokensOverUACP(t *testing.T) {
	t.Parallel()
	callers := make(chan identity.Caller, 1)
	r := &handler{exchange: echo, limit: func(q transport.CallInfo) error { callers <- q.Caller; return nil }}
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.NewListener(wire.ListenerDeps{
		Form: form.New(translators.Config{}), TLS: serverTLS(t), Net: plain, Agent: "chef", Reserved: "spiffe://x.example/oauth/",
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, r) }()
	for id, want := range map[string]string{
		"spiffe://x.example/oauth/corp/users/ann": "", "spiffe://x.example/ann": "spiffe://x.example/ann", "spiffe://y.example/oauth/corp/users/ann": "spiffe://y.example/oauth/corp/users/ann",
	} {
		conn, err := tls.Dial("tcp", plain.Addr().String(), &tls.Config{InsecureSkipVerify: true, NextProtos: []string{wire.Protocol}, Certificates: []tls.Certificate{certificate(t, id)}})
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		(line{t, conn}).send(content(t, form.Frame{ID: 5}))
		if got := <-callers; string(got.ID) != want || got.Anonymous {
			t.Errorf("%s is taken for %+v", id, got)
		}
		_ = conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestLimit_OncePerFrame: each frame is one request, whatever it asks for.
func TestLimit_OncePerFrame(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string]form.Frame{
		"ping":       {ID: 5},
		"describe":   {Verb: form.Ask, ID: 5, Options: topic(form.TopicDescribe)},
		"message":    {Verb: form.Ask, ID: 5, Options: topic(form.TopicSend), Payload: []byte("hi")},
		"unreadable": {Verb: form.Ask, ID: 5},
	} {
		var limits atomic.Int32
		r := &handler{exchange: echo, limit: func(transport.CallInfo) error { limits.Add(1); return nil }}
		l := connect(t, open(t, r, wire.Config{}))
		l.send(content(t, frame))
		if got, err := l.receive(); err != nil || (got.Code == 0) != (name != "unreadable") || limits.Load() != 1 {
			t.Errorf("%s: got code %x, %v, asked the limit %d times", name, got.Code, err, limits.Load())
		}
	}
}
