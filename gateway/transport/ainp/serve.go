package ainp

import (
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// DoorDeps is what a Door needs.
type DoorDeps struct {
	Form    translators.Translator // the AINP codec
	Self    Identity
	Keys    *Keys
	Replays Replays
	// Identity is the SPIFFE id that a DID stands for; nil, or false: none.
	Identity func(did string) (ect.Identity, bool)
	Limits   ect.Limits       // of the evidence of one message; zero: the defaults
	Now      func() time.Time // nil: the real clock
}

// Door takes AINP traffic in. It is safe for concurrent use.
type Door struct{ deps DoorDeps }

var _ transport.Door = (*Door)(nil)

// NewDoor checks its dependencies.
func NewDoor(deps DoorDeps) (*Door, error) {
	if deps.Form == nil || deps.Form.Info().Binding != ainp.Binding || !deps.Self.complete() || deps.Keys == nil || deps.Replays == nil {
		return nil, errors.New("ainp: incomplete DoorDeps")
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &Door{deps}, nil
}

// Handler takes one envelope by POST and answers with one.
func (d *Door) Handler(road transport.Exchanger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v := &visit{d: d, road: road, w: w, r: r, profile: ainp.SigDraft}
		v.serve(r.Context())
	})
}

// visit is one message at the door.
type visit struct {
	d       *Door
	road    transport.Exchanger
	w       http.ResponseWriter
	r       *http.Request
	wire    translators.Wire
	message *canonical.Message
	sender  string          // DID, as far as it could be read
	profile ainp.SigProfile // in which we sign our answer
}

func (v *visit) serve(ctx context.Context) {
	ctx, evidence, err := v.admit(ctx)
	if err != nil {
		v.fail(err, nil)
		return
	}
	switch v.message.Op {
	case canonical.OpNotice:
		if err := v.road.Admit(ctx, v.asking(ctx)); err != nil {
			v.fail(err, nil)
			return
		}
		v.w.WriteHeader(http.StatusAccepted)
	case canonical.OpDescribe, canonical.OpCapabilities:
		v.describe(ctx)
	case canonical.OpAnswer: // nobody was asked: that takes a connection that stays open
		v.fail(&canonical.Error{Code: canonical.CodeInvalidRequest, Message: "an answer where a request belongs"}, nil)
	default:
		v.exchange(ctx, evidence)
	}
}

// asking is what the road needs to know of whoever asks. The limit was asked.
func (v *visit) asking(ctx context.Context) transport.Inquiry {
	q := transport.Asking(ctx, v.r.PathValue("agent"), ainp.Binding)
	q.Limited = true
	return q
}

// admit reads, verifies and decodes, the cheap things first. The context that
// it answers with knows the caller.
func (v *visit) admit(ctx context.Context) (context.Context, []string, error) {
	if v.r.Method != http.MethodPost {
		return ctx, nil, &problem.MethodError{Allow: http.MethodPost}
	}
	if kind, _, err := mime.ParseMediaType(v.r.Header.Get("Content-Type")); err != nil || kind != ainp.Media || v.r.Header.Get("Content-Encoding") != "" {
		return ctx, nil, &problem.MediaTypeError{Want: []string{ainp.Media}}
	}
	// A connection that proved nothing may bring a message that does: until then
	// its address pays.
	known := transport.WithCaller(ctx, transport.CallerFrom(ctx), transport.AddressFrom(ctx))
	if err := v.road.Limit(known, transport.Asking(known, v.r.PathValue("agent"), ainp.Binding)); err != nil {
		return ctx, nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(v.w, v.r.Body, int64(v.d.deps.Form.Info().BodyLimit)))
	if err != nil {
		return ctx, nil, problem.Reading(err)
	}
	v.wire = translators.Wire{Binding: ainp.Binding, Version: ainp.Version, Media: ainp.Media, Body: body}
	if v.message, err = v.d.deps.Form.Decode(v.wire); err != nil {
		return ctx, nil, v.first(ctx, err)
	}
	judge := verifier{v.d.deps.Keys, v.d.deps.Now}
	seen, err := judge.verify(ctx, body)
	if err != nil {
		return ctx, nil, err
	}
	v.sender, v.profile = seen.From, seen.profile
	if ctx, err = v.identify(ctx); err != nil {
		return ctx, nil, err
	}
	evidence, err := v.evidence(body)
	if err != nil {
		return ctx, nil, err
	}
	evidence = transport.Submitted(v.message, evidence)
	return ctx, evidence, v.remember(ctx, seen)
}

// first is what to say of a message that cannot be read: those who may not call
// the agent hear that instead (architecture section 5, policy before form).
func (v *visit) first(ctx context.Context, unreadable error) error {
	if err := transport.Refusal(ctx); err != nil {
		return err
	}
	if err := v.road.Admit(ctx, v.asking(ctx)); err != nil {
		return err
	}
	return unreadable
}

// remember takes a message once.
func (v *visit) remember(ctx context.Context, seen verified) error {
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
// proved nothing where something is needed is refused.
func (v *visit) identify(ctx context.Context) (context.Context, error) {
	var id ect.Identity
	ok := false
	if v.d.deps.Identity != nil {
		id, ok = v.d.deps.Identity(v.sender)
	}
	caller := transport.CallerFrom(ctx)
	switch {
	case !ok:
		return ctx, transport.Refusal(ctx)
	case caller.ID == id && !caller.Anonymous:
		return ctx, nil
	case caller.ID != "" && !caller.Anonymous:
		return ctx, &problem.IdentityError{Reason: "the certificate and the DID name different workloads"}
	}
	ctx = transport.WithCaller(ctx, identity.Caller{Peer: ect.Peer{ID: id}}, transport.AddressFrom(ctx))
	return ctx, v.road.Limit(ctx, transport.Asking(ctx, v.r.PathValue("agent"), ainp.Binding))
}

// evidence is what the envelope holds; a header stands in for it on a direct
// connection, since brokers do not forward headers.
func (v *visit) evidence(body []byte) ([]string, error) {
	tokens, err := ainp.Evidence(body)
	if err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		tokens = v.r.Header.Values(ect.HeaderName)
	}
	return ect.ParseHeader(tokens, v.d.deps.Limits)
}

func (v *visit) exchange(ctx context.Context, evidence []string) {
	answer, err := v.road.Exchange(ctx, transport.Call{
		Entrance: transport.Native, Agent: v.r.PathValue("agent"), Wire: v.wire, Evidence: evidence, Sender: v.sender,
		Caller: transport.CallerFrom(ctx), Address: transport.AddressFrom(ctx), Limited: true,
	})
	if err == nil && answer.Events != nil {
		err = errors.Join(&canonical.Error{Code: canonical.CodeUnsupportedOp, Message: "AINP streams are not served here"}, answer.Events.Close())
	}
	if err != nil {
		v.fail(err, answer.Evidence)
		return
	}
	if len(answer.Wire.Body) == 0 { // what was stopped was not asked here
		v.w.WriteHeader(http.StatusAccepted)
		return
	}
	v.write(answer.Wire.Body, answer.Evidence, http.StatusOK)
}

// describe answers from the directory (R8: no ECT, no forwarding).
func (v *visit) describe(ctx context.Context) {
	d, err := v.road.Describe(ctx, v.asking(ctx))
	if err != nil {
		v.fail(err, nil)
		return
	}
	said := *d
	said.Extensions = nil // what another protocol said about an agent is not for our callers
	said.Capabilities = make([]canonical.Capability, len(d.Capabilities))
	copy(said.Capabilities, d.Capabilities)
	for i := range said.Capabilities {
		said.Capabilities[i].Extensions = nil
	}
	var body canonical.Body = &said
	if v.message.Op == canonical.OpCapabilities {
		body = &canonical.CapabilityList{Capabilities: said.Capabilities}
	}
	v.say(&canonical.Message{Op: v.message.Op, Phase: canonical.PhaseResponse, Body: body}, nil, http.StatusOK)
}

func (v *visit) fail(err error, evidence []string) {
	p := problem.From(err)
	p.Advise(v.w.Header())
	v.say(&canonical.Message{Op: canonical.OpInvoke, Phase: canonical.PhaseError, Body: problem.Native(err)}, evidence, p.Status)
}

// say writes a message of our own, under the id of the one that is answered.
func (v *visit) say(m *canonical.Message, evidence []string, status int) {
	if v.message != nil {
		m.Correlation.WireID = v.message.Correlation.WireID
	}
	wire, _, err := v.d.deps.Form.Encode(m, translators.Target{
		Stamp: translators.Stamp{From: v.d.deps.Self.DID, To: v.sender, At: v.d.deps.Now()},
	})
	if err != nil {
		v.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	v.write(wire.Body, evidence, status)
}

func (v *visit) write(body []byte, evidence []string, status int) {
	signed, err := v.d.deps.Self.finish(body, evidence, v.profile)
	if err != nil {
		v.w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := v.w.Header()
	h.Set("Content-Type", ainp.Media)
	h.Set("Content-Length", strconv.Itoa(len(signed)))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	for _, token := range evidence {
		h.Add(ect.HeaderName, token)
	}
	v.w.WriteHeader(status)
	_, _ = v.w.Write(signed) // a caller that went away needs no answer
}
