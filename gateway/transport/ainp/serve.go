package ainp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/policy/quota"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// ServerDeps is what a Server needs.
type ServerDeps struct {
	Form    translators.Translator // the AINP codec
	Self    Identity
	Keys    *Keys
	Replays Replays
	// Identity is the SPIFFE id that a DID stands for; nil, or false: none.
	Identity func(did string) (ect.Identity, bool)
	// Named says whether the operator names a DID; nil: those that Identity knows.
	// Documents of other did:web are not fetched.
	Named func(did string) bool
	// ByDID says whether there are callers that are known by a DID; nil: if there
	// is Identity. Without them a connection has to prove an identity to stay open.
	ByDID func() bool
	// Receiver is the DID that an agent is known by; nil, or empty: it has none.
	Receiver func(agent string) string
	// Refused is told why a message that came through a WebSocket is answered with an
	// error; what is posted has an HTTP status. Nil: nothing is told.
	Refused func(ctx context.Context, agent string, err error)
	Limits  ect.Limits       // of the evidence of one message; zero: the defaults
	Socket  SocketConfig     // bounds of connections that stay open
	Now     func() time.Time // nil: the real clock
}

// Server takes AINP traffic in. It is safe for concurrent use.
type Server struct {
	deps         ServerDeps
	identified   *quota.Places   // connections that stay open, by caller
	unidentified *quota.Pool     // those whose caller has proved no identity yet, by address
	open         context.Context //nolint:containedctx // ends when the server closes
	close        context.CancelFunc
	sockets      sockets
}

var _ transport.HTTPServer = (*Server)(nil)

// NewServer checks its dependencies.
func NewServer(deps ServerDeps) (*Server, error) {
	if deps.Form == nil || deps.Form.Info().Binding != ainp.Binding || !deps.Self.complete() || deps.Keys == nil || deps.Replays == nil {
		return nil, errors.New("ainp: incomplete DoorDeps")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	if deps.Identity == nil {
		deps.Identity = func(string) (ect.Identity, bool) { return "", false }
		deps.ByDID = func() bool { return false }
	}
	if deps.Refused == nil {
		deps.Refused = func(context.Context, string, error) {}
	}
	if deps.ByDID == nil {
		deps.ByDID = func() bool { return true }
	}
	if deps.Named == nil {
		deps.Named = func(did string) bool { _, ok := deps.Identity(did); return ok }
	}
	deps.Socket = deps.Socket.withDefaults()
	d := &Server{deps: deps}
	if err := d.bound(deps.Socket); err != nil {
		return nil, err
	}
	d.open, d.close = context.WithCancel(context.Background())
	d.sockets.idle = make(chan struct{})
	return d, nil
}

// Close takes no more connections that stay open, and ends each of those that there are
// when nothing is under way on it.
func (d *Server) Close() {
	d.sockets.close()
	d.close()
}

// Wait waits, after Close, until the connections have ended, or ctx has.
func (d *Server) Wait(ctx context.Context) {
	select {
	case <-d.sockets.idle:
	case <-ctx.Done():
	}
}

// Handler takes one envelope by POST and answers with one, or opens a WebSocket.
func (d *Server) Handler(handler transport.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
			d.serveSocket(w, r, handler)
			return
		}
		v := &serverCall{d: d, handler: handler, agent: r.PathValue("agent"), back: post{w}, profile: ainp.SigDraft}
		v.posted(r.Context(), w, r)
	})
}

// back is the way back to a caller.
type back interface {
	// advise says beside an error what its caller may do.
	advise(problem.Problem)
	// put sends one signed message; none: it was taken, and nothing is said.
	put(body []byte, evidence []string, status int)
}

// serverCall is one message at the server.
type serverCall struct {
	d       *Server
	handler transport.Handler
	agent   string
	back    back
	socket  *socket     // nil: the message was posted
	refused func(error) // of a message in a socket: is told why it is answered with an error
	pass    limit.Pass
	header  []string // evidence beside the message
	wire    translators.Wire
	message *canonical.Message
	id      string          // of the message
	parent  string          // jti of the token that the message names
	sender  string          // DID, as far as it could be read
	profile ainp.SigProfile // in which we sign our answer
}

func (v *serverCall) posted(ctx context.Context, w http.ResponseWriter, r *http.Request) {
	body, err := v.receive(ctx, w, r)
	if err != nil {
		v.fail(err, nil)
		return
	}
	v.serve(ctx, body)
}

func (v *serverCall) serve(ctx context.Context, body []byte) {
	ctx, evidence, err := v.admit(ctx, body)
	if err != nil {
		v.fail(err, nil)
		return
	}
	v.act(ctx, evidence)
}

// act does what an admitted message asks for.
func (v *serverCall) act(ctx context.Context, evidence []string) {
	switch v.message.Op {
	case canonical.OpNotice:
		if err := v.handler.Admit(ctx, v.asking(ctx)); err != nil {
			v.fail(err, nil)
			return
		}
		v.back.put(nil, nil, http.StatusAccepted)
	case canonical.OpDescribe, canonical.OpCapabilities:
		v.describe(ctx)
	case canonical.OpAnswer:
		v.answered(ctx, evidence)
	case canonical.OpAbort:
		v.stop(ctx, evidence)
	default:
		v.exchange(ctx, evidence)
	}
}

// asking is what the pipeline needs to know of the sender.
func (v *serverCall) asking(ctx context.Context) transport.CallInfo {
	return transport.CallInfoFrom(ctx, v.agent, ainp.Binding).With(v.pass)
}

// receive reads what is posted, the cheap things first.
func (v *serverCall) receive(ctx context.Context, w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, &problem.MethodError{Allow: http.MethodPost}
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != ainp.Media || r.Header.Get("Content-Encoding") != "" {
		return nil, &problem.MediaTypeError{Want: []string{ainp.Media}}
	}
	if err := v.limit(ctx); err != nil {
		return nil, err
	}
	if refusal := transport.Refusal(ctx); refusal != nil && !v.d.deps.ByDID() {
		return nil, refusal // whatever the message says
	}
	body, err := transport.ReadAll(http.MaxBytesReader(w, r.Body, int64(v.d.deps.Form.Info().BodyLimit)), r.ContentLength)
	if err != nil {
		return nil, problem.Reading(err)
	}
	v.header = r.Header.Values(ect.HeaderName)
	return body, nil
}

// limit takes the message from its connection's share. A connection that proved
// nothing may bring a message that does: until then its address pays.
func (v *serverCall) limit(ctx context.Context) (err error) {
	known := transport.WithCaller(ctx, transport.CallerFrom(ctx), transport.AddressFrom(ctx))
	v.pass, err = v.handler.Limit(known, v.asking(known))
	return err
}

// admit decodes and verifies. The context that it answers with knows the caller.
func (v *serverCall) admit(ctx context.Context, body []byte) (context.Context, []string, error) {
	var err error
	v.wire = translators.Wire{Binding: ainp.Binding, Version: ainp.Version, Form: v.form(), Media: ainp.Media, Body: body}
	if v.message, err = v.d.deps.Form.Decode(v.wire); err != nil {
		return ctx, nil, v.first(ctx, err)
	}
	e, head, err := read(body)
	if err != nil {
		return ctx, nil, err
	}
	if _, ok := v.d.deps.Identity(head.From); !ok && transport.Refusal(ctx) != nil {
		return ctx, nil, transport.Refusal(ctx) // no signature can help: its key is not looked for
	}
	judge := verifier{v.d.deps.Keys, v.d.deps.Now, v.d.deps.Named}
	seen, err := judge.verify(ctx, e, head)
	if err != nil {
		return ctx, nil, err
	}
	v.id, v.sender, v.profile = seen.ID, seen.From, seen.profile
	v.wire.Hasher = translators.Knowing(translators.HasherOf(v.d.deps.Form), body, seen.text.HashInput())
	if !v.isRecipient(seen.To) {
		return ctx, nil, &canonical.Error{Code: canonical.CodeForbidden, Message: "the message names another receiver: expected the agent of the URL or this gateway"}
	}
	if v.socket != nil && v.socket.did != "" && v.socket.did != v.sender {
		return ctx, nil, &problem.IdentityError{Reason: "the connection was opened in another name"}
	}
	if ctx, err = v.identify(ctx, seen.To); err != nil {
		return ctx, nil, err
	}
	if v.socket != nil {
		if err := v.socket.prove(ctx); err != nil {
			return ctx, nil, err
		}
	}
	evidence, err := v.evidence(e)
	if err != nil {
		return ctx, nil, err
	}
	evidence = transport.Submitted(v.message, evidence)
	return ctx, evidence, v.remember(ctx, seen)
}

// isRecipient reports whether a message is for this gateway or the agent of this server, or names no
// receiver (see identify). A signature is valid at any receiver, so a party that was sent a message
// could otherwise use it here in its sender's name.
func (v *serverCall) isRecipient(to string) bool {
	return to == "" || to == v.d.deps.Self.DID || v.d.deps.Receiver != nil && to == v.d.deps.Receiver(v.agent)
}

// first is what to say of a message that cannot be read: those who may not call
// the agent hear that instead (architecture section 5, policy before form).
func (v *serverCall) first(ctx context.Context, unreadable error) error {
	if err := transport.Refusal(ctx); err != nil {
		return err
	}
	return cmp.Or(v.handler.Admit(ctx, v.asking(ctx)), unreadable)
}

// remember takes a message once.
func (v *serverCall) remember(ctx context.Context, seen verified) error {
	first, err := v.d.deps.Replays.First(ctx, seen.key(), seen.At, seen.until())
	switch {
	case err != nil:
		return &problem.RecordingError{Err: err}
	case !first:
		return repeated()
	default:
		return nil
	}
}

// identify finds out whom the DID stands for, and takes the message from their
// share. A connection that proved another identity contradicts it; one that
// proved nothing where something is needed is refused. Where the signature alone
// says who calls, the message names its recipient (to): each service that was ever
// sent one without could use it here.
func (v *serverCall) identify(ctx context.Context, to string) (context.Context, error) {
	id, ok := v.d.deps.Identity(v.sender)
	caller := transport.CallerFrom(ctx)
	switch {
	case !ok:
		return ctx, transport.Refusal(ctx)
	case caller.ID == id && !caller.Anonymous:
		return ctx, nil
	case caller.ID != "" && !caller.Anonymous:
		return ctx, &problem.IdentityError{Reason: "the certificate and the DID name different workloads"}
	case to == "":
		return ctx, unaddressed()
	}
	ctx = transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: id}}, transport.AddressFrom(ctx))
	return ctx, v.limit(ctx)
}

// evidence is what the envelope holds; a header stands in for it on a direct
// connection, since brokers do not forward headers.
func (v *serverCall) evidence(e ainp.Envelope) ([]string, error) {
	tokens, err := e.Evidence()
	if err != nil {
		return nil, err
	}
	if v.parent, err = e.Parent(); err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		tokens = v.header
	}
	return ect.ParseHeader(tokens, v.d.deps.Limits)
}

// form is that of the messages of this visit.
func (v *serverCall) form() string {
	if v.socket != nil {
		return ainp.FormSocket
	}
	return ""
}

// call is the message as the pipeline gets it.
func (v *serverCall) call(ctx context.Context, evidence []string) transport.Call {
	c := transport.Call{
		EntryPoint: transport.Native, Agent: v.agent, Wire: v.wire, Message: v.message, Evidence: evidence, Parent: v.parent, Program: transport.Program{Sender: v.sender},
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx), Pass: v.pass,
	}
	if v.socket != nil {
		c.Session, c.CanAnswer = v.socket.session, []canonical.Mode{canonical.ModeForm, canonical.ModeURL}
	}
	return c
}

func (v *serverCall) exchange(ctx context.Context, evidence []string) {
	if v.socket != nil {
		var done func()
		ctx, done = v.socket.begin(ctx, v.id)
		defer done()
	}
	answer, err := v.handler.Exchange(ctx, v.call(ctx, evidence))
	switch {
	case err == nil && answer.Events() != nil && v.socket != nil:
		v.stream(ctx, answer)
		return
	case err == nil && answer.Events() != nil: // a POST cannot ask for one
		err = errors.Join(&canonical.Error{Code: canonical.CodeInternal, Message: "a stream for one answer"}, answer.Events().Close())
	}
	if err != nil {
		v.broken(ctx, err, answer.Evidence)
		return
	}
	v.write(answer.Wire(), answer.Evidence, http.StatusOK)
}

// answered takes the decision on a question that was asked on this connection.
func (v *serverCall) answered(ctx context.Context, evidence []string) {
	if v.socket == nil {
		v.fail(&canonical.Error{Code: canonical.CodeInvalidRequest, Message: "an answer, expected a request"}, nil)
		return
	}
	if answer, err := v.handler.Exchange(ctx, v.call(ctx, evidence)); err != nil {
		v.fail(err, answer.Evidence)
	}
}

// stop ends what an intent of the same connection began, or what the pipeline knows.
func (v *serverCall) stop(ctx context.Context, evidence []string) {
	abort, ok := v.message.Body.(*canonical.Abort)
	if !ok || v.socket == nil || !v.socket.stop(abort.Request) {
		if answer, err := v.handler.Exchange(ctx, v.call(ctx, evidence)); err != nil {
			v.fail(err, answer.Evidence)
			return
		}
	}
	v.say(&canonical.Message{Op: v.message.Op, Phase: canonical.PhaseResponse, Body: &canonical.Done{}}, nil, http.StatusOK)
}

// describe answers from the directory (R8: no ECT, no forwarding).
func (v *serverCall) describe(ctx context.Context) {
	d, err := v.handler.Describe(ctx, v.asking(ctx))
	if err != nil {
		v.fail(err, nil)
		return
	}
	copied := *d
	copied.Extensions = nil // what another protocol said about an agent is not for our callers
	copied.Capabilities = make([]canonical.Capability, len(d.Capabilities))
	copy(copied.Capabilities, d.Capabilities)
	for i := range copied.Capabilities {
		copied.Capabilities[i].Extensions = nil
	}
	var body canonical.Body = &copied
	if v.message.Op == canonical.OpCapabilities {
		body = &canonical.CapabilityList{Capabilities: copied.Capabilities}
	}
	v.say(&canonical.Message{Op: v.message.Op, Phase: canonical.PhaseResponse, Body: body}, nil, http.StatusOK)
}

func (v *serverCall) fail(err error, evidence []string) {
	p, failure := problem.From(err), problem.Native(err)
	if v.refused != nil {
		v.refused(err)
	}
	v.back.advise(p)
	if v.message != nil && v.message.Op == canonical.OpNative && failure.Code == canonical.CodeNoMethod {
		failure = &canonical.Error{
			Code: canonical.CodeOther, Message: failure.Message,
			Native: &canonical.NativeError{Binding: ainp.Binding, Data: json.RawMessage(`"NEGOTIATION_FAILED"`)},
		}
	}
	v.say(&canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: failure}, evidence, p.Status)
}

// say writes a message of our own, under the id of the one that is answered.
func (v *serverCall) say(m *canonical.Message, evidence []string, status int) {
	if v.message != nil {
		m.Correlation.WireID = v.message.Correlation.WireID
	}
	wire, _, err := v.d.deps.Form.Encode(m, translators.Target{
		Stamp: translators.Addressing{From: v.d.deps.Self.DID, To: v.sender, At: v.d.deps.Now()},
	})
	if err != nil {
		v.back.put(nil, nil, http.StatusInternalServerError)
		return
	}
	v.write(wire, evidence, status)
}

// write signs a message and sends it; one without a body says that nothing is to
// be said. The evidence comes oldest first.
func (v *serverCall) write(wire translators.Wire, evidence []string, status int) {
	if len(wire.Body) == 0 {
		v.back.put(nil, nil, http.StatusAccepted)
		return
	}
	var body []byte
	e, err := ainp.Open(wire.Body)
	if err == nil {
		newest := slices.Clone(evidence)
		slices.Reverse(newest)
		body, err = v.d.deps.Self.finish(e, wire, newest, v.profile)
	}
	if err != nil {
		v.back.put(nil, nil, http.StatusInternalServerError)
		return
	}
	v.back.put(body, evidence, status)
}

// post writes the response to the POST that brought a message.
type post struct{ w http.ResponseWriter }

func (p post) advise(refusal problem.Problem) { refusal.Advise(p.w.Header()) }

func (p post) put(body []byte, evidence []string, status int) {
	if len(body) == 0 {
		p.w.WriteHeader(status)
		return
	}
	transport.AddEvidence(p.w.Header(), evidence)
	transport.Respond(p.w, ainp.Media, body, status)
}
