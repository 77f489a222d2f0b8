package uacp_test

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"testing"

	"github.com/aepb/aepb-gateway/gateway/transport"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// TestWhomTheServerNameMeans: the longest name of an agent that a server name
// begins with, label by label, and else its first label.
func TestWhomTheServerNameMeans(t *testing.T) {
	t.Parallel()
	asked := make(chan string, 1)
	r := &road{exchange: echo, limit: func(q transport.Inquiry) error { asked <- q.Agent; return nil }}
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
		(line{t, conn}).send(octets(t, form.Frame{ID: 5}))
		if got := <-asked; got != want {
			t.Errorf("%q means %q, want %q", server, got, want)
		}
		_ = conn.Close()
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
