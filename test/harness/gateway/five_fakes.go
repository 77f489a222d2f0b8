package gatewaytest

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	tainp "github.com/aepb/aepb-gateway/gateway/transport/ainp"
	tuacp "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

// Agents of µACP and AINP do not exist as software that runs here, so these are
// fakes. They read and write with the codecs, which are tested against the
// known answers of the reference codes; what they do with a message is their own.

// perform is what both can: add two numbers, and repeat what they are told.
func perform(m *canonical.Message) canonical.Body {
	add := canonical.Capability{
		ID: "add", Title: "Add", Description: "Adds two integers.", Profile: canonical.ProfileTyped,
		InputSchema: json.RawMessage(`{"type":"object"}`),
	}
	switch body := m.Body.(type) {
	case *canonical.DescribeRequest:
		return &canonical.Description{Name: "abacus", Version: "1", Capabilities: []canonical.Capability{add}}
	case *canonical.Page:
		return &canonical.CapabilityList{Capabilities: []canonical.Capability{add}}
	case *canonical.Invoke:
		return &canonical.Result{Output: performed(body)}
	default:
		return &canonical.Error{Code: canonical.CodeNoMethod, Message: "no such thing"}
	}
}

func performed(body *canonical.Invoke) *canonical.Output {
	out := &canonical.Output{}
	var args struct{ A, B json.Number }
	raw := json.RawMessage(nil)
	if body.Call != nil {
		raw = body.Call.Args
	}
	for _, part := range body.Turn.Parts {
		switch part.Kind {
		case canonical.KindText:
			out.Parts = append(out.Parts, canonical.Part{Kind: canonical.KindText, Text: "You said: " + part.Text})
		case canonical.KindData:
			if body.Call == nil {
				raw = part.Data
			}
		default:
		}
	}
	if raw != nil && json.Unmarshal(raw, &args) == nil && args.A != "" {
		a, _ := args.A.Int64()
		b, _ := args.B.Int64()
		out.Structured = json.RawMessage(`{"sum":` + strconv.FormatInt(a+b, 10) + `}`)
	}
	return out
}

// does is what a fake does with a message.
type does func(m *canonical.Message) canonical.Body

func (d does) with(m *canonical.Message) canonical.Body {
	if d == nil {
		return perform(m)
	}
	return d(m)
}

// Spoil changes what a fake is about to answer to an invocation; nil: nothing is.
type Spoil func(good []byte) []byte

// UACPFake is a µACP agent over TLS.
type UACPFake struct {
	Form  *uacp.Translator
	Spoil Spoil
	Calls atomic.Int32
	Seen  func(body []byte)         // told of every invocation; nil: nobody is
	Tells []string                  // to whoever observes it; nil: it cannot be observed
	Who   *ecttest.Party            // set by uacpAgent
	Job   *Job                      // what it works on; nil: it answers at once
	Does  does                      // nil: perform
	Undo  func(token string) string // mints the checkpoint of an invocation, or the result of a rollback; nil: it has neither
}

// Observed is the frames that answer an OBSERVE.
func (f *UACPFake) Observed(request uacp.Frame, carriage string) [][]byte {
	open, _ := uacp.Marker(uacp.MarkOpen, carriage, request).Bytes()
	end, _ := uacp.Marker(uacp.MarkEnd, carriage, request).Bytes()
	out := [][]byte{open}
	add := func(e *canonical.Event) {
		wire, _, err := f.Form.Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Correlation: canonical.Correlation{WireID: json.RawMessage("1")}, Body: e,
		}, translators.Target{Form: carriage})
		if err != nil {
			return
		}
		if frame, err := uacp.ParseFrame(wire.Body); err == nil {
			body, _ := frame.ReplyTo(request, request.ID+uint32(len(out))).Bytes()
			out = append(out, body)
		}
	}
	for _, text := range f.Tells {
		add(&canonical.Event{Artifact: &canonical.ArtifactUpdate{Last: true, Artifact: canonical.Artifact{
			ID: text, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}},
		}}})
	}
	if carriage == uacp.FormEnveloped {
		add(&canonical.Event{Status: &canonical.Status{State: canonical.StateCompleted}})
	}
	return append(out, end)
}

// Answer is the frame that answers one; nil: none.
func (f *UACPFake) Answer(body []byte) []byte {
	m, err := f.Form.Decode(translators.Wire{Binding: uacp.Binding, Body: body})
	if err != nil || m.Op == canonical.OpNotice {
		return nil
	}
	reply := &canonical.Message{Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: f.Does.with(m)}
	if d, ok := reply.Body.(*canonical.Description); ok {
		d.Streams = f.Tells != nil && f.Job == nil
	}
	if f.Job != nil {
		reply.Body = f.Job.answerTo(m, reply.Body)
	}
	if signal, ok := m.Body.(*canonical.Signal); ok && f.Undo != nil {
		reply.Body = &canonical.Signal{Token: f.Undo(signal.Token)}
	}
	if _, failed := reply.Body.(*canonical.Error); failed {
		reply.Phase = canonical.PhaseError
	}
	wire, _, err := f.Form.Encode(reply, translators.Target{Form: uacp.FormOf(body)})
	if err != nil {
		return nil
	}
	if m.Op != canonical.OpInvoke {
		return wire.Body
	}
	f.Calls.Add(1)
	if f.Seen != nil {
		f.Seen(body)
	}
	switch {
	case f.Spoil != nil:
		return f.Spoil(wire.Body)
	case f.Undo != nil:
		return f.checkpointed(body, wire.Body)
	default:
		return wire.Body
	}
}

// checkpointed is a reply with a checkpoint of what was there before.
func (f *UACPFake) checkpointed(request, reply []byte) []byte {
	tokens, err := UACPEvidence(request)
	if err != nil || len(tokens) == 0 {
		return nil
	}
	out, err := UACPWithEvidence(reply, []string{f.Undo(tokens[0])})
	if err != nil {
		return nil
	}
	return out
}

func (f *UACPFake) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for {
		body, err := ReadFrameOf(conn)
		if err != nil {
			return
		}
		if request, err := uacp.ParseFrame(body); err == nil && request.IsAck() {
			continue
		} else if err == nil && request.Verb == uacp.Observe && f.Tells != nil && f.Job.observed(request.Topic()) {
			for _, frame := range f.Observed(request, uacp.FormOf(body)) {
				if WriteFrameTo(conn, frame) != nil {
					return
				}
			}
			continue
		}
		if reply := f.Answer(body); reply == nil {
			return
		} else if WriteFrameTo(conn, reply) != nil {
			return
		}
	}
}

// ReadFrameOf reads one frame of µACP: two bytes of length, at most 65535, and then the frame. It returns the frame
// without its length; the error is that of the reader, io.EOF where no frame begins.
func ReadFrameOf(r io.Reader) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[:]))
	_, err := io.ReadFull(r, body)
	return body, err
}

// WriteFrameTo writes one frame of µACP behind its length, in one write. body is at most 65535 bytes. The error is that
// of the writer.
func WriteFrameTo(w io.Writer, body []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...))
	return err
}

// UACPAgent starts a µACP fake and lists it.
func (b *Fixture) UACPAgent(t *testing.T, name string, f *UACPFake, carriage string) {
	t.Helper()
	f.Form = uacp.New(translators.Config{})
	svid := b.SVID(t, "/"+name)
	f.Who = b.Party(t, svid)
	config := Serving(svid)
	config.NextProtos = []string{tuacp.Protocol}
	plain := Listen(t)
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := plain.Accept()
			if err != nil {
				return
			}
			group.Go(func() { f.serve(tls.Server(conn, config)) })
		}
	})
	t.Cleanup(group.Wait)
	t.Cleanup(func() { _ = plain.Close() })
	b.ListAs(t, name, svid.ID, directory.Endpoint{Binding: uacp.Binding, URL: tuacp.Scheme + "://" + plain.Addr().String(), Form: carriage})
}

// ListAs lists an agent with one endpoint, open to every caller, with a time limit of 5 s. An error ends the test.
func (b *Fixture) ListAs(t *testing.T, name string, id ect.Identity, e directory.Endpoint) {
	t.Helper()
	Must(t, b.Directory().Put(directory.Agent{
		Name: name, ID: id, Timeout: 5 * time.Second, Rules: policy.Rules{Open: true}, Endpoints: []directory.Endpoint{e},
	}))
}

// AINPFake is an AINP agent over HTTPS.
type AINPFake struct {
	Who     tainp.Identity
	profile ainp.SigProfile
	Does    does // nil: perform
	Spoil   Spoil
	Calls   atomic.Int32
	Seen    func(body []byte)
	status  int
}

// ServeHTTP answers a signed envelope with a signed envelope. It answers with 400 what it cannot read, and with 401
// what its sender has not signed.
func (f *AINPFake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	form := ainp.New(translators.Config{})
	m, err := form.Decode(translators.Wire{Binding: ainp.Binding, Body: body})
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	head, err := AINPHead(body)
	if err != nil || !Holds(r.Context(), head, body, f.profile) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	wire, _, err := form.Encode(&canonical.Message{
		Op: m.Op, Phase: canonical.PhaseResponse, Correlation: m.Correlation, Body: f.Does.with(m),
	}, translators.Target{Stamp: translators.Addressing{From: f.Who.DID, To: head.From, At: time.Now()}})
	if err != nil {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	reply := Signed(f.Who, wire.Body, f.profile)
	if m.Op == canonical.OpInvoke {
		f.Calls.Add(1)
		if f.Seen != nil {
			f.Seen(body)
		}
		if f.Spoil != nil {
			reply = f.Spoil(reply)
		}
	}
	w.Header().Set("Content-Type", ainp.Media)
	if f.status != 0 && m.Op == canonical.OpInvoke {
		w.WriteHeader(f.status)
	}
	_, _ = w.Write(reply)
}

// Holds: the signature is that of the sender named.
func Holds(ctx context.Context, head ainp.Head, body []byte, profile ainp.SigProfile) bool {
	keys, err := tainp.NewKeys(nil, nil).Resolve(ctx, head.From)
	if err != nil || len(keys) != 1 {
		return false
	}
	e, err := ainp.Open(body)
	if err != nil {
		return false
	}
	text, err := e.Text()
	if err != nil {
		return false
	}
	sig, err := base64.StdEncoding.DecodeString(head.Sig)
	return err == nil && ed25519.Verify(keys[0], text.SigningInput(profile), sig)
}

// Signed signs an envelope; one that cannot be signed stays as it is.
func Signed(who tainp.Identity, body []byte, profile ainp.SigProfile) []byte {
	e, err := ainp.Open(body)
	if err != nil {
		return body
	}
	text, err := e.Text()
	if err != nil {
		return body
	}
	return e.WithSignature(base64.StdEncoding.EncodeToString(ed25519.Sign(who.Key, text.SigningInput(profile))))
}

// Did is somebody in AINP, the same for the same name.
func Did(name string) tainp.Identity {
	seed := make([]byte, ed25519.SeedSize)
	copy(seed, name)
	key := ed25519.NewKeyFromSeed(seed)
	public, _ := key.Public().(ed25519.PublicKey)
	return tainp.Identity{DID: tainp.KeyDID(public), Key: key}
}

// AINPAgent starts an AINP fake and lists it; want is the DID that its operator expects.
func (b *Fixture) AINPAgent(t *testing.T, name string, f *AINPFake, e directory.Endpoint) {
	t.Helper()
	svid := b.SVID(t, "/"+name)
	if f.Who.Key == nil {
		f.Who = Did(name)
	}
	server := httptest.NewUnstartedServer(f)
	server.TLS = Serving(svid)
	server.StartTLS()
	t.Cleanup(server.Close)
	e.Binding, e.URL = ainp.Binding, server.URL+"/ainp"
	b.ListAs(t, name, svid.ID, e)
}

// DialUACP opens a connection to the gateway's µACP listener as somebody, toward an agent.
func (b *Fixture) DialUACP(t *testing.T, agent string, who *identity.SVID) *tls.Conn {
	t.Helper()
	conf := b.ClientTLS(t, who)
	conf.NextProtos = []string{tuacp.Protocol}
	conf.ServerName = "127.0.0.1"
	if agent != "" {
		conf.ServerName = agent + ".localhost"
		conf.InsecureSkipVerify = true // the test asks for agents by names that no certificate has
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	conn, err := (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", strings.TrimPrefix(b.At.UACP, tuacp.Scheme+"://"))
	Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	out, ok := conn.(*tls.Conn)
	if !ok {
		t.Fatal("no TLS")
	}
	Must(t, out.SetDeadline(time.Now().Add(Patience)))
	return out
}

// AskUACP sends one frame and reads one.
func (b *Fixture) AskUACP(t *testing.T, agent string, frame []byte) []byte {
	t.Helper()
	conn := b.DialUACP(t, agent, b.Dev.Client)
	Must(t, WriteFrameTo(conn, frame))
	reply, err := ReadFrameOf(conn)
	Must(t, err)
	return reply
}

// FrameOf is a call of add, or a text, in µACP.
func FrameOf(t *testing.T, carriage string, invoke *canonical.Invoke) []byte {
	t.Helper()
	wire, _, err := uacp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`42`)},
	}, translators.Target{Form: carriage})
	Must(t, err)
	return wire.Body
}

// EnvelopeOf is the same in AINP, unsigned.
func EnvelopeOf(t *testing.T, who tainp.Identity, invoke *canonical.Invoke) []byte {
	t.Helper()
	wire, _, err := ainp.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Body: invoke,
		Correlation: canonical.Correlation{WireID: json.RawMessage(`"` + string(ect.NewRandomID()) + `"`)},
	}, translators.Target{Stamp: translators.Addressing{From: who.DID, At: time.Now()}})
	Must(t, err)
	return wire.Body
}

// Addition is a call that adds n and 1.
func Addition(n int64) *canonical.Invoke {
	return &canonical.Invoke{Call: &canonical.Call{Name: "add", Args: json.RawMessage(`{"a":` + strconv.FormatInt(n, 10) + `,"b":1}`)}}
}

// TextInvoke is a message of one text.
func TextInvoke(text string) *canonical.Invoke {
	return &canonical.Invoke{Turn: canonical.Content{
		ID: "m1", Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}},
	}}
}

// TokensIn are those inside an envelope, newest first; nil: it cannot be read.
func TokensIn(body []byte) []string {
	tokens, err := AINPEvidence(body)
	if err != nil {
		return nil
	}
	return tokens
}
