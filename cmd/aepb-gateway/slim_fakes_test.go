package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tslim "github.com/aepb/aepb-gateway/gateway/transport/slim"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/slimtest"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/slim"
)

const slimSecret = "what all members of the network of these tests know"

// slimNet is a SLIM node on loopback, with the gateway and others on it.
type slimNet struct {
	at   string
	node *slimtest.Node
}

// newSLIMNet starts a node, and writes the gateway into the plan as a member.
func newSLIMNet(t *testing.T, p *plan) *slimNet {
	t.Helper()
	listener := listen(t)
	n := &slimNet{at: listener.Addr().String()}
	p.config.SLIM.Nodes = []config.SLIMNode{{
		URL: "http://" + n.at, Organization: "org", Namespace: "gw", SecretFile: filepath.Join(t.TempDir(), "secret"),
	}}
	must(t, os.WriteFile(p.config.SLIM.Nodes[0].SecretFile, []byte(slimSecret), 0o600))
	n.node = slimtest.NewNode(t, listener)
	return n
}

// join makes somebody a member.
func (n *slimNet) join(t *testing.T, as string, handler rpc.Handler) *tslim.Peer {
	t.Helper()
	return slimtest.Join(t, slimtest.Member{Name: as, Secret: slimSecret, Node: n.at, Handler: handler, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.at)
	}})
}

// slimFake is an agent on a node, of A2A on SLIMRPC and of JSON-RPC. Like the
// other fakes it reads and writes with the codec; the real software is what
// test/slim runs.
type slimFake struct {
	calls  atomic.Int32
	does   does                                   // nil: perform
	answer func(call rpc.Call) (rpc.Frame, error) // of an invocation; nil: as it should be
	seen   func(call rpc.Call)                    // told of every invocation; nil: nobody is

	rollback func(token string) string // answers rollback requests; nil: it cannot go back
}

// Serve is rpc.Handler's.
func (f *slimFake) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if call.Service == tslim.ServiceRollback {
		if f.rollback == nil {
			return &rpc.StatusError{Code: rpc.Unimplemented, Message: "no way back"}
		}
		return out.Send(ctx, rpc.Frame{Body: []byte(f.rollback(string(call.Body)))})
	}
	form := slim.New(translators.Config{})
	w := translators.Wire{Binding: slim.Binding, Media: slim.Media, Body: call.Body}
	if call.Service != "" {
		w = translators.Wire{
			Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: tslim.MediaProto,
			Path: "/" + call.Service + "/" + call.Method, Body: call.Body,
		}
	}
	asked, err := tslim.Unframe(w)
	if err != nil {
		return &rpc.StatusError{Code: rpc.InvalidArgument, Message: "not a message"}
	}
	m, err := form.Decode(asked)
	if err != nil {
		return &rpc.StatusError{Code: rpc.Unimplemented, Message: "no such method"}
	}
	if call.Method == "GetExtendedAgentCard" {
		m.Op, m.Body = canonical.OpDescribe, &canonical.DescribeRequest{}
	}
	if m.Op == canonical.OpInvoke {
		f.calls.Add(1)
		if f.seen != nil {
			f.seen(call)
		}
		if f.answer != nil {
			frame, err := f.answer(call)
			if err != nil {
				return err
			}
			return out.Send(ctx, frame)
		}
	}
	if m.Op == canonical.OpNotice {
		return nil
	}
	reply := &canonical.Message{
		Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: f.does.with(m),
		Conversation: canonical.Conversation{ContextID: "c-1", TaskID: "t-1"},
	}
	if d, ok := reply.Body.(*canonical.Description); ok {
		d.Interfaces = []canonical.Interface{
			{URL: "org/agents/x", Transport: tslim.BindingURI, Version: "1.0"},
			{URL: "org/agents/x", Transport: "slimrpc", Version: "1.0"},
			{URL: "slim://n.example/org/agents/x", Transport: "https://a2a-protocol.org/bindings/experimental-slimrpc", Version: "1.0"},
		}
	}
	if _, lists := reply.Body.(*canonical.CapabilityList); lists && f.does != nil {
		reply.Origin = m.Origin // its own words, in which any name stays as it is
	}
	if _, failed := reply.Body.(*canonical.Error); failed {
		reply.Phase = canonical.PhaseError
	}
	wire, _, err := form.Encode(reply, translators.Target{Version: m.Origin.Version, Form: w.Form})
	if err != nil {
		return err
	}
	wire.Re, wire.Path = m.Op, w.Path
	if wire, _, err = tslim.Frame(wire); err != nil {
		return err
	}
	return out.Send(ctx, rpc.Frame{Body: wire.Body})
}

// slimAgent starts a SLIM fake and lists it; version: whose words it speaks.
func (b *bed) slimAgent(t *testing.T, n *slimNet, as, version string, f *slimFake) {
	t.Helper()
	n.join(t, "org/agents/"+as, f)
	b.listAs(t, as, b.svid(t, "/"+as).ID, directory.Endpoint{Binding: slim.Binding, Version: version, URL: "slim://" + n.at + "/org/agents/" + as})
}

// askSLIM has a member call an agent of the gateway, in A2A on SLIMRPC or with a
// JSON-RPC message, and gives what it is answered.
func askSLIM(t *testing.T, caller *tslim.Peer, agent, method string, body []byte, metadata map[string]string) (rpc.Frame, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	to, err := name.Parse("org/gw/" + agent)
	must(t, err)
	if method == "" {
		c, err := caller.Converse(ctx, to)
		if err != nil {
			return rpc.Frame{}, err
		}
		defer c.Close()
		stream, err := c.Call(ctx, body, metadata)
		if err != nil {
			return rpc.Frame{}, err
		}
		defer stream.Close()
		return stream.Next(ctx)
	}
	stream, err := caller.Call(ctx, to, rpc.Request{Service: tslim.ServiceA2A, Method: method, Body: body, Metadata: metadata})
	if err != nil {
		return rpc.Frame{}, err
	}
	defer stream.Close()
	return stream.Next(ctx)
}

// inProtobuf is a JSON-RPC message of A2A as SLIMRPC carries it.
func inProtobuf(t *testing.T, text string) []byte {
	t.Helper()
	w, _, err := tslim.Frame(translators.Wire{Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: slim.Media, Body: []byte(text)})
	must(t, err)
	return w.Body
}

// outOfProtobuf is its inverse, for an answer to SendMessage.
func outOfProtobuf(t *testing.T, body []byte) string {
	t.Helper()
	w, err := tslim.Unframe(translators.Wire{
		Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: tslim.MediaProto, Re: canonical.OpInvoke, Body: body,
	})
	must(t, err)
	return string(w.Body)
}

// exposed waits until the gateway shows an agent on the node.
func (n *slimNet) exposed(t *testing.T, caller *tslim.Peer, agent string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		f, err := askSLIM(t, caller, agent, "", []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil)
		if err == nil && strings.Contains(string(f.Body), `"jsonrpc"`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not exposed: %v", agent, err)
		}
	}
}
