package slim

import (
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"github.com/aepb/aepb-gateway/gateway/transport/slim/name"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// The services that A2A goes by on SLIMRPC. The binding's document knows the
// second, the libraries that are out use the first for A2A 1.0 and the second
// for 0.3, so servers of ours answer to both.
const (
	ServiceA2A    = "lf.a2a.v1.A2AService"
	ServiceA2AOld = "a2a.v1.A2AService"
)

// IsA2A reports whether a service is A2A by one of its names.
func IsA2A(service string) bool { return service == ServiceA2A || service == ServiceA2AOld }

// CallA2A calls a method of A2A. Service is the name to try first; if there is
// nothing of that name, the other one is tried, but nothing is done twice: SLIM's
// servers name the service or method of a call in their refusal if it is unknown.
// Any other refusal may come from an agent that has begun. After such a refusal
// only methods that change nothing are tried again, and none at all after an error
// of A2A. The responses' service is the one that answered.
// Errors: those of Call; a failure of the agent comes from Next.
func CallA2A(ctx context.Context, caller *Peer, to name.Name, r rpc.Request) (*Responses, string, error) {
	r.Service = cmp.Or(r.Service, ServiceA2A)
	first, err := opened(ctx, caller, to, r)
	if err != nil || !first.unknown() || !first.idle(r) {
		return first, r.Service, err
	}
	other := r
	if other.Service = ServiceA2A; r.Service == ServiceA2A {
		other.Service = ServiceA2AOld
	}
	second, err := opened(ctx, caller, to, other)
	if err != nil || second.unknown() { // the agent itself does not know the method
		if second != nil {
			second.Close()
		}
		return first, r.Service, nil
	}
	first.Close()
	return second, other.Service, nil
}

// Responses are those of a call whose first one was looked at; io.EOF comes after the last.
type Responses struct {
	*rpc.Stream
	frame rpc.Frame
	err   error
	read  bool
}

func opened(ctx context.Context, caller *Peer, to name.Name, r rpc.Request) (*Responses, error) {
	stream, err := caller.Call(ctx, to, r)
	if err != nil {
		return nil, err
	}
	s := &Responses{Stream: stream}
	s.frame, s.err = stream.Next(ctx)
	return s, nil
}

// notFound begins the text with which SLIM's servers refuse a call that has no handler.
// Its service and method follow (agntcy/slim 2.2, slimrpc).
const notFound = "Method not found: "

// unknown reports whether the server's status says that it does not know the service.
func (s *Responses) unknown() bool {
	var status *rpc.StatusError
	return errors.As(s.err, &status) && status.Code == rpc.Unimplemented && !inWords(status.Message)
}

// idle reports whether the call began no work, or only work that may be repeated.
func (s *Responses) idle(r rpc.Request) bool {
	var status *rpc.StatusError
	return readsOnly(r.Method) || errors.As(s.err, &status) && status.Message == notFound+r.Service+"/"+r.Method
}

// readsOnly reports whether a method of A2A may be called any number of times.
func readsOnly(method string) bool {
	return strings.HasPrefix(method, "Get") || strings.HasPrefix(method, "List") || method == "SubscribeToTask"
}

// Next gives the one that was looked at, and then the others.
func (s *Responses) Next(ctx context.Context) (rpc.Frame, error) {
	if s.read {
		return s.Stream.Next(ctx)
	}
	s.read = true
	return s.frame, s.err
}

// Address is where an agent card, or an operator, says that an agent is.
type Address struct {
	Node string // host:port; empty: the node that we are on
	Name name.Name
}

// BindingURI is what agent cards call SLIMRPC: the address of the binding's document.
const BindingURI = "https://a2a-protocol.org/bindings/experimental-slimrpc/v1"

// interfaces say in a card where an agent is, by each name of SLIMRPC that released clients
// look for: that of the binding (2.1), that of slima2a 0.9, and that of earlier documents.
func (a Address) interfaces() []canonical.Interface {
	return []canonical.Interface{
		{URL: a.Name.Base(), Transport: BindingURI, Version: "1.0"},
		{URL: a.Name.Base(), Transport: "slimrpc", Version: "1.0"},
		{URL: scheme + a.Node + "/" + a.Name.Base(), Transport: strings.TrimSuffix(BindingURI, "/v1"), Version: "1.0"},
	}
}

// DefaultPort is that of nodes.
const DefaultPort = "46357"

const scheme = "slim://"

// ParseAddress reads org/namespace/service, or slim://[node[:port]/] before it.
// Errors: *name.Error.
func ParseAddress(text string) (Address, error) {
	rest, isURL := strings.CutPrefix(text, scheme)
	var node string
	if isURL && strings.Count(rest, "/") == 3 {
		node, rest, _ = strings.Cut(rest, "/")
	}
	n, err := name.Parse(rest)
	if err != nil {
		return Address{}, err
	}
	if n.ID != name.AnyID() {
		return Address{}, &name.Error{Reason: "the address contains an id: leave it out"}
	}
	if node == "" {
		if isURL && strings.HasPrefix(text, scheme+"/") {
			return Address{}, &name.Error{Reason: "the node is empty"}
		}
		return Address{Name: n}, nil
	}
	node, err = hostport(node)
	return Address{Node: node, Name: n}, err
}

// foreign says which characters no host is written with.
func foreign(r rune) bool {
	return r <= ' ' || r > '~' || strings.ContainsRune(`@?#\%"<>`, r)
}

// hostport completes and checks a node's address.
func hostport(node string) (string, error) {
	if !strings.Contains(node, ":") || strings.HasPrefix(node, "[") && strings.HasSuffix(node, "]") {
		node += ":" + DefaultPort
	}
	host, port, err := net.SplitHostPort(node)
	if err != nil || host == "" || strings.ContainsFunc(host, foreign) {
		return "", &name.Error{Reason: "the node is not host:port"}
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", &name.Error{Reason: "the node has an invalid port"}
	}
	return net.JoinHostPort(host, port), nil
}
