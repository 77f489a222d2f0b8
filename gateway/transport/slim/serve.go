package slim

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/slim/rpc"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/mcp"
	form "github.com/aepb/aepb-gateway/translators/slim"
)

// Keys of metadata.
const (
	keyEvidence   = "execution-context" // ECTs, compact, joined by commas
	keyVersion    = prefixParameter + "version"
	keyExtensions = prefixParameter + "extensions"
	keyCallback   = "aepb-hitl-callback" // https URI that is told what a human decides
	keyParent     = "aepb-parent-jti"    // of the ECT that the message came of

	prefixParameter = "a2a-" // of service parameters (A2A 3.2.6)
)

// ListenerDeps is what a Listener needs.
type ListenerDeps struct {
	Network   *Network
	Form      translators.Translator // the SLIM codec
	Agents    func() []string        // directory names of those who are exposed; asked every second
	Anonymous ect.Identity           // who callers on a node without Caller are; empty: they are refused
	Reserved  string                 // what ids begin with that no caller may have; empty: there are none
	Version   string                 // of this gateway, for agents that name none
	Limits    ect.Limits             // of the evidence of one request; zero: the defaults
}

// grace is how long calls that run may go on after the end of Serve's context: the
// gateway has drained before (R16), so that only their last words are missing.
const grace = time.Second

// Listener exposes agents on every node, as org/namespace/agent.
type Listener struct {
	deps ListenerDeps

	mu       sync.Mutex
	draining bool
	calls    sync.WaitGroup
}

var _ transport.Listener = (*Listener)(nil)

// NewListener checks its dependencies.
func NewListener(deps ListenerDeps) (*Listener, error) {
	if deps.Network == nil || deps.Form == nil || deps.Form.Info().Binding != form.Binding || deps.Agents == nil {
		return nil, errors.New("slim: incomplete ListenerDeps")
	}
	return &Listener{deps: deps}, nil
}

// Serve keeps the network connected and takes calls until ctx ends. Those that
// run then have another 25 s; new ones are refused.
func (l *Listener) Serve(ctx context.Context, handler transport.Handler) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() { l.drain(end) })
	defer stop()
	network, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	group, network := errgroup.WithContext(network)
	group.Go(func() error { return l.deps.Network.Run(network) })
	group.Go(func() error {
		defer cut() // when the sessions have said their last
		return l.exposeAll(life, network, handler)
	})
	if err := group.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// exposeAll exposes the agents on all nodes until life or the network ends.
func (l *Listener) exposeAll(life, network context.Context, handler transport.Handler) error {
	life, end := context.WithCancel(life)
	defer end()
	defer context.AfterFunc(network, end)()
	group, life := errgroup.WithContext(life)
	for _, n := range l.deps.Network.nodes {
		group.Go(func() error { return l.expose(life, n, handler) })
	}
	return group.Wait()
}

// drain takes no more calls and waits for those that run, within reason: they
// end with their sessions after that.
func (l *Listener) drain(end context.CancelFunc) {
	l.mu.Lock()
	l.draining = true
	l.mu.Unlock()
	late := time.AfterFunc(grace, end)
	defer late.Stop()
	l.calls.Wait()
	end()
}

// enter counts a call in; false: it comes too late.
func (l *Listener) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.draining {
		return false
	}
	l.calls.Add(1)
	return true
}

func (l *Listener) drains() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.draining
}

// expose keeps one application for each agent that is listed.
func (l *Listener) expose(ctx context.Context, n *node, handler transport.Handler) error {
	var lives sync.WaitGroup
	defer lives.Wait()
	running := map[string]context.CancelFunc{}
	over := make(chan string)
	look := time.NewTicker(agentsEvery)
	defer look.Stop()
	for {
		listed := l.deps.Agents()
		for agent, stop := range running {
			if !slices.Contains(listed, agent) {
				stop()
			}
		}
		for _, agent := range listed {
			if running[agent] != nil {
				continue
			}
			within, stop := context.WithCancel(ctx)
			running[agent] = stop
			lives.Go(func() {
				defer stop()
				l.serveAs(within, n, agent, handler)
				select {
				case over <- agent:
				case <-ctx.Done():
				}
			})
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case agent := <-over:
			delete(running, agent)
			select { // not again at once: the node may have refused the name
			case <-ctx.Done():
			case <-look.C:
			}
		case <-look.C:
		}
	}
}

// serveAs is one agent on one node.
func (l *Listener) serveAs(ctx context.Context, n *node, agent string, handler transport.Handler) {
	at := &exposedAgent{l: l, node: n, agent: agent, handler: handler, revisions: map[talkKey]string{}}
	peer, err := n.as(agent, at, at.groups())
	if err == nil {
		err = peer.Run(ctx)
	}
	if err != nil && ctx.Err() == nil {
		n.deps.Logger.WarnContext(ctx, "agent not exposed on the SLIM node",
			slog.String("agent", agent), slog.String("node", n.Address), slog.Any("error", err))
	}
}

// exposedAgent is one agent as callers on one node see it.
type exposedAgent struct {
	l       *Listener
	node    *node
	agent   string
	handler transport.Handler

	mu        sync.Mutex
	revisions map[talkKey]string // the revision of MCP that a caller's session agreed on
}

var (
	_ rpc.Handler = (*exposedAgent)(nil)
	_ rpc.Counter = (*exposedAgent)(nil)
)

// Enter implements [rpc.Counter]: a call is waited for until its caller has been told
// how it ended.
func (d *exposedAgent) Enter() (leave func()) {
	if d.l.enter() {
		return d.l.calls.Done
	}
	return func() {} // it is refused
}

// groups is the agent's part in groups; nil: it takes none.
func (d *exposedAgent) groups() Groups {
	places, err := quota.New(quota.Config{Resource: "SLIM groups", Total: int64(d.node.Groups), PerHolder: int64(d.node.Groups)})
	if err != nil { // no group is allowed
		return nil
	}
	return &groups{
		handler: d, places: places, logger: d.node.deps.Logger, identity: d.agent,
		welcome: func(subject string) bool {
			who, _ := d.node.caller(rpc.Call{Subject: subject})
			return who != "" || d.l.deps.Anonymous != ""
		},
	}
}

// arrived marks a call's context with who makes it. A shared secret proves that
// a caller knows it, and not which of those who do it is; a token of an issuer
// says who it is.
func (d *exposedAgent) arrived(ctx context.Context, call rpc.Call) context.Context {
	who, address := d.node.caller(call)
	switch anonymous, reserved := d.l.deps.Anonymous, d.l.deps.Reserved; {
	case reserved != "" && strings.HasPrefix(string(who), reserved):
		return transport.WithoutCaller(ctx, &problem.IdentityError{Reason: "ids under " + reserved + " are those of callers with access tokens"}, address)
	case who != "":
		return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: who}}, address)
	case anonymous != "":
		return transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: anonymous}, Anonymous: true}, address)
	default:
		return transport.WithoutCaller(ctx, &problem.UnauthenticatedError{}, address)
	}
}

// Serve answers one call.
func (d *exposedAgent) Serve(ctx context.Context, call rpc.Call, out rpc.Responder) error {
	if d.l.drains() {
		return &rpc.StatusError{Code: rpc.Unavailable, Message: "UnavailableError: this gateway is about to stop"}
	}
	ctx = d.arrived(ctx, call)
	v := &serverCall{exposed: d, call: call, out: out}
	if call.Service != "" {
		v.wire = translators.Wire{
			Binding: form.Binding, Version: form.VersionA2A, Form: form.FormRPC, Media: MediaProto,
			Path: "/" + call.Service + "/" + call.Method, Body: call.Body, Header: parameters(call),
		}
		return v.rpc(ctx)
	}
	v.wire = translators.Wire{Binding: form.Binding, Media: form.Media, Body: call.Body, Header: parameters(call)}
	return v.plain(ctx)
}

// parameters are those of A2A in a call's metadata, in any case (SLIMRPC binding, 3), and
// who wants to be told what a human decides, as the codec reads them.
func parameters(call rpc.Call) http.Header {
	h := http.Header{}
	for _, key := range slices.Sorted(maps.Keys(call.Metadata)) {
		if strings.HasPrefix(strings.ToLower(key), prefixParameter) {
			h.Add(key, call.Metadata[key])
		}
	}
	if uri := call.Metadata[keyCallback]; uri != "" {
		h.Set(form.FieldCallback, uri)
	}
	return h
}

// serverCall is one call at the server.
type serverCall struct {
	exposed *exposedAgent
	call    rpc.Call
	out     rpc.Responder
	wire    translators.Wire
	pass    limit.Pass
	message *canonical.Message        // plain sessions: as far as it could be read
	notice  transport.LifecycleNotice // of the agent, once it is known
}

func (v *serverCall) asking(ctx context.Context) transport.CallInfo {
	return transport.CallInfoFrom(ctx, v.exposed.agent, form.Binding).With(v.pass)
}

// admit judges what needs no body: who calls, and how often.
func (v *serverCall) admit(ctx context.Context) (evidence []string, err error) {
	if v.pass, err = v.exposed.handler.Limit(ctx, v.asking(ctx)); err != nil {
		return nil, err
	}
	return ect.ParseHeader([]string{v.call.Metadata[keyEvidence]}, v.exposed.l.deps.Limits)
}

// rpc answers a call of A2A's service.
func (v *serverCall) rpc(ctx context.Context) error {
	evidence, err := v.admit(ctx)
	switch text := v.wire.Header.Get(keyVersion); {
	case err != nil:
	case v.wire.Path == rollbackPath:
		message := &canonical.Message{Phase: canonical.PhaseRequest, Body: &canonical.Signal{Token: string(v.call.Body)}}
		return v.exchange(ctx, transport.Submitted(message, evidence))
	case !IsA2A(v.call.Service):
		return &rpc.StatusError{Code: rpc.Unimplemented, Message: "no such service"}
	case text != "" && text != "1" && !strings.HasPrefix(text, "1."):
		err = &canonical.Error{Code: canonical.CodeUnsupportedVersion, Message: "over SLIM this agent speaks A2A 1.0"}
	case v.call.Method == methodCard:
		return v.card(ctx)
	default:
		return v.exchange(ctx, evidence)
	}
	return v.refuse(ctx, err)
}

// exchange lets the pipeline do the work.
func (v *serverCall) exchange(ctx context.Context, evidence []string) error {
	answer, err := v.exposed.handler.Exchange(ctx, transport.Call{
		EntryPoint: transport.Native, Agent: v.exposed.agent, Wire: v.wire, Evidence: evidence, Parent: v.call.Metadata[keyParent], Pass: v.pass,
		Detached: v.wire.Version != form.VersionMCP(mcp.Modern), Session: v.session(),
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx),
	})
	v.notice = answer.Notice
	switch {
	case err != nil:
		return v.refuse(ctx, err)
	case v.message != nil && v.message.Op == canonical.OpAbort:
		return nil // an abort has no answer
	case answer.Events() != nil:
		return v.stream(ctx, answer)
	default:
		return v.say(ctx, answer.Wire(), answer.Evidence)
	}
}

// session returns the session in which a client of MCP may cancel its requests;
// empty: none.
func (v *serverCall) session() string {
	if v.message == nil || v.message.Op != canonical.OpInvoke && v.message.Op != canonical.OpAbort {
		return ""
	}
	if _, byMCP := form.Revision(v.message.Origin.Version); !byMCP {
		return ""
	}
	return "slim " + v.call.From.String() + " " + strconv.FormatUint(uint64(v.call.Session), 10)
}

// say sends a message; a failure ends the call.
func (v *serverCall) say(ctx context.Context, w translators.Wire, evidence []string) error {
	if w.Form == form.FormRPC && w.Status > 0 && w.Status <= lastStatus {
		return &rpc.StatusError{Code: rpc.Code(uint32(w.Status)), Message: string(w.Body)}
	}
	fields := http.Header{}
	v.notice.Announce(fields)
	f := rpc.Frame{Body: w.Body, Metadata: make(map[string]string, len(fields)+1)}
	for name := range fields { // Deprecation, Sunset and Link, as keys are written here
		f.Metadata[strings.ToLower(name)] = fields.Get(name)
	}
	if len(evidence) > 0 {
		f.Metadata[keyEvidence] = strings.Join(evidence, ",")
	}
	return v.out.Send(ctx, f)
}

// stream sends each event when it comes. What closes the evidence of a stream
// follows the last one, for those who showed that they know evidence.
func (v *serverCall) stream(ctx context.Context, answer transport.Answer) error {
	defer func() { _ = answer.Events().Close() }()
	evidence := answer.Evidence
	for {
		event, err := answer.Events().Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return v.refuse(ctx, err)
		}
		if evidence = append(evidence, event.Evidence...); len(event.Wire.Body) == 0 && v.call.Metadata[keyEvidence] == "" {
			continue
		}
		if err := v.say(ctx, event.Wire, evidence); err != nil {
			return err
		}
		evidence = nil
	}
}

// refuse says an error of ours in the words that the caller uses.
func (v *serverCall) refuse(ctx context.Context, err error) error {
	return v.express(ctx, &canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.Native(err)}, true)
}

// express encodes a message of our own, and sends it.
func (v *serverCall) express(ctx context.Context, m *canonical.Message, failed bool) error {
	target := translators.Target{Version: v.wire.Version, Form: v.wire.Form}
	if v.message != nil {
		m.Correlation.WireID, target.Version = v.message.Correlation.WireID, v.message.Origin.Version
	}
	if agentError, refused := m.Body.(*canonical.Error); refused && v.message != nil {
		if revision, byMCP := form.Revision(target.Version); byMCP {
			if result := mcp.Misfit(revision, v.message, agentError); result != nil {
				m.Phase, m.Body = canonical.PhaseResponse, result
			}
		}
	}
	wire, _, err := v.exposed.l.deps.Form.Encode(m, target)
	if err == nil {
		wire, _, err = Frame(wire)
	}
	if err != nil {
		return err
	}
	if failed && v.wire.Form != form.FormRPC && m.Correlation.WireID == nil {
		return nil // a notification has no answer
	}
	return v.say(ctx, wire, nil)
}

// card answers from the directory (R8: no ECT, no forwarding).
func (v *serverCall) card(ctx context.Context) error {
	description, err := v.described(ctx)
	if err != nil {
		return v.refuse(ctx, err)
	}
	description.Interfaces = v.exposed.node.at(v.exposed.agent).interfaces()
	description.Versions, description.Streams = []string{"1.0"}, true
	return v.express(ctx, &canonical.Message{Op: canonical.OpDescribe, Phase: canonical.PhaseResponse, Body: description}, false)
}

// described is the agent as its callers may know it: what another protocol
// says of it is not for them.
func (v *serverCall) described(ctx context.Context) (*canonical.Description, error) {
	d, err := v.exposed.handler.Describe(ctx, v.asking(ctx))
	if err != nil {
		return nil, err
	}
	copied := *d
	copied.Extensions, copied.Extended = nil, false
	copied.Capabilities = slices.Clone(copied.Capabilities)
	for i := range copied.Capabilities {
		copied.Capabilities[i].Extensions = nil
	}
	copied.Name = cmp.Or(copied.Name, v.exposed.agent)
	copied.Version = cmp.Or(copied.Version, v.exposed.l.deps.Version)
	return &copied, nil
}
