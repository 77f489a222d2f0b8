package gatewaytest

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

// SlimNet is a SLIM node on loopback, with the gateway and others on it.
type SlimNet struct {
	At   string
	node *slimtest.Node
}

// NewSLIMNet starts a node, and writes the gateway into the plan as a member.
func NewSLIMNet(t testing.TB, p *Plan) *SlimNet {
	t.Helper()
	listener := Listen(t)
	n := &SlimNet{At: listener.Addr().String()}
	p.Config.SLIM.Nodes = []config.SLIMNode{{
		URL: "http://" + n.At, Organization: "org", Namespace: "gw", SecretFile: filepath.Join(t.TempDir(), "secret"),
	}}
	Must(t, os.WriteFile(p.Config.SLIM.Nodes[0].SecretFile, []byte(slimSecret), 0o600))
	n.node = slimtest.NewNode(t, listener)
	return n
}

// Join makes somebody a member.
func (n *SlimNet) Join(t *testing.T, as string, handler rpc.Handler) *tslim.Peer {
	t.Helper()
	return slimtest.Join(t, slimtest.Member{Name: as, Secret: slimSecret, Node: n.At, Handler: handler, Dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", n.At)
	}})
}

// SlimFake is an agent on a node, of A2A on SLIMRPC and of JSON-RPC. Like the
// other fakes it reads and writes with the codec; the real software is what
// test/slim runs.
type SlimFake struct {
	calls  atomic.Int32
	Does   does                                   // nil: perform
	Answer func(call rpc.Call) (rpc.Frame, error) // of an invocation; nil: as it should be
	Seen   func(call rpc.Call)                    // told of every invocation; nil: nobody is

	Rollback func(token string) string // answers rollback requests; nil: it cannot go back
}

// Serve is rpc.Handler's.
func (f *SlimFake) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if call.Service == tslim.ServiceRollback {
		if f.Rollback == nil {
			return &rpc.StatusError{Code: rpc.Unimplemented, Message: "no way back"}
		}
		return out.Send(ctx, rpc.Frame{Body: []byte(f.Rollback(string(call.Body)))})
	}
	form := slim.New(translators.Config{})
	w := translators.Wire{Binding: slim.Binding, Media: slim.Media, Body: call.Body}
	if call.Service != "" {
		w = translators.Wire{
			Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: tslim.MediaProto,
			Path: "/" + call.Service + "/" + call.Method, Body: call.Body,
		}
	}
	request, err := tslim.Unframe(w)
	if err != nil {
		return &rpc.StatusError{Code: rpc.InvalidArgument, Message: "not a message"}
	}
	m, err := form.Decode(request)
	if err != nil {
		return &rpc.StatusError{Code: rpc.Unimplemented, Message: "no such method"}
	}
	if call.Method == "GetExtendedAgentCard" {
		m.Op, m.Body = canonical.OpDescribe, &canonical.DescribeRequest{}
	}
	if m.Op == canonical.OpInvoke {
		f.calls.Add(1)
		if f.Seen != nil {
			f.Seen(call)
		}
		if f.Answer != nil {
			frame, err := f.Answer(call)
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
		Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: f.Does.with(m),
		Conversation: canonical.Conversation{ContextID: "c-1", TaskID: "t-1"},
	}
	if d, ok := reply.Body.(*canonical.Description); ok {
		d.Interfaces = []canonical.Interface{
			{URL: "org/agents/x", Transport: tslim.BindingURI, Version: "1.0"},
			{URL: "org/agents/x", Transport: "slimrpc", Version: "1.0"},
			{URL: "slim://n.example/org/agents/x", Transport: "https://a2a-protocol.org/bindings/experimental-slimrpc", Version: "1.0"},
		}
	}
	if _, lists := reply.Body.(*canonical.CapabilityList); lists && f.Does != nil {
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

// SlimAgent starts a SLIM fake and lists it; version: whose words it speaks.
func (b *Fixture) SlimAgent(t *testing.T, n *SlimNet, as, version string, f *SlimFake) {
	t.Helper()
	n.Join(t, "org/agents/"+as, f)
	b.ListAs(t, as, b.SVID(t, "/"+as).ID, directory.Endpoint{Binding: slim.Binding, Version: version, URL: "slim://" + n.At + "/org/agents/" + as})
}

// AskSLIM has a member call an agent of the gateway, in A2A on SLIMRPC or with a
// JSON-RPC message, and gives what it is answered.
func AskSLIM(t *testing.T, caller *tslim.Peer, agent, method string, body []byte, metadata map[string]string) (rpc.Frame, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	to, err := name.Parse("org/gw/" + agent)
	Must(t, err)
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

// InProtobuf is a JSON-RPC message of A2A as SLIMRPC carries it.
func InProtobuf(t *testing.T, text string) []byte {
	t.Helper()
	w, _, err := tslim.Frame(translators.Wire{Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: slim.Media, Body: []byte(text)})
	Must(t, err)
	return w.Body
}

// OutOfProtobuf is its inverse, for an answer to SendMessage.
func OutOfProtobuf(t *testing.T, body []byte) string {
	t.Helper()
	w, err := tslim.Unframe(translators.Wire{
		Binding: slim.Binding, Version: slim.VersionA2A, Form: slim.FormRPC, Media: tslim.MediaProto, Re: canonical.OpInvoke, Body: body,
	})
	Must(t, err)
	return string(w.Body)
}

// Exposed waits until the gateway shows an agent on the node.
func (n *SlimNet) Exposed(t *testing.T, caller *tslim.Peer, agent string) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for {
		f, err := AskSLIM(t, caller, agent, "", []byte(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), nil)
		if err == nil && strings.Contains(string(f.Body), `"jsonrpc"`) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s is not exposed: %v", agent, err)
		}
	}
}
