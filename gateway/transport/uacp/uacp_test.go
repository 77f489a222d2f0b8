package uacp_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math/big"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/ecttest"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/policy/limit"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const anonymous = "spiffe://td/anonymous"

func certificate(t testing.TB, ids ...string) tls.Certificate {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "agent"}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature}
	for _, id := range ids {
		uri, err := url.Parse(id)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

func serverTLS(t testing.TB) *tls.Config {
	t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{certificate(t)}, MinVersion: tls.VersionTLS12} // which the listener may not keep
}

// network is egress without its rules.
type network struct {
	version   uint16
	err       error
	datagrams net.Conn // in place of a socket
}

func (n network) DialDatagrams(ctx context.Context, hostport string) (net.Conn, error) {
	if n.datagrams != nil || n.err != nil {
		return n.datagrams, n.err
	}
	return (&net.Dialer{}).DialContext(ctx, "udp", hostport)
}

func (n network) DialTLS(ctx context.Context, hostport string, _ ect.Identity, protocols ...string) (*tls.Conn, error) {
	if n.err != nil {
		return nil, n.err
	}
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: protocols, MaxVersion: n.version}}
	conn, err := d.DialContext(ctx, "tcp", hostport)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// handler answers what a test says.
type handler struct {
	mu       sync.Mutex
	calls    []transport.Call
	exchange func(transport.Call) (transport.Answer, error)
	limit    func(transport.CallInfo) error
	refusal  error // of Admit
	err      error
}

func (r *handler) Exchange(_ context.Context, call transport.Call) (transport.Answer, error) {
	r.mu.Lock()
	r.calls = append(r.calls, call)
	r.mu.Unlock()
	if !call.Pass.Valid() {
		return transport.Answer{}, limit.ErrNoPass
	}
	return r.exchange(call)
}

func (r *handler) Describe(_ context.Context, q transport.CallInfo) (*canonical.Description, error) {
	if !q.Pass.Valid() {
		return nil, limit.ErrNoPass
	}
	inner := canonical.Extensions{"a2a-v1": json.RawMessage(`{"secret":1}`), form.Binding: json.RawMessage(`{"secret":1}`)}
	return &canonical.Description{
		Name: "chef", Version: "1", Capabilities: []canonical.Capability{{ID: "cook", Description: "cooks", Extensions: inner}}, Extensions: inner,
	}, r.err
}

func (r *handler) Limit(ctx context.Context, q transport.CallInfo) (limit.Pass, error) {
	if r.limit == nil {
		return transporttest.Pass(transport.Refusal(ctx))
	}
	return transporttest.Pass(r.limit(q))
}

func (r *handler) Admit(_ context.Context, q transport.CallInfo) error {
	if !q.Pass.Valid() {
		return limit.ErrNoPass
	}
	return r.refusal
}

func (r *handler) seen() []transport.Call {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]transport.Call(nil), r.calls...)
}

// echo answers a message with its own words, enveloped or bare as it came.
func echo(call transport.Call) (transport.Answer, error) {
	tr := form.New(translators.Config{})
	m, err := tr.Decode(call.Wire)
	if err != nil {
		return transport.Answer{}, err
	}
	reply := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseResponse, Correlation: m.Correlation,
		Body: &canonical.Result{Output: &canonical.Output{Parts: m.Body.(*canonical.Invoke).Turn.Parts}},
	}
	w, _, err := tr.Encode(reply, translators.Target{Form: call.Wire.Form})
	return transporttest.Answer(w, "our.own.token", "an.older.one"), err
}

// open starts a listener and gives its address.
func open(t testing.TB, r *handler, config wire.Config) string {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.NewListener(wire.ListenerDeps{
		Form: form.New(translators.Config{}), TLS: serverTLS(t), Net: plain, Agent: "chef", Anonymous: anonymous, Config: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return plain.Addr().String()
}

func dialer(t testing.TB, n wire.Network) *wire.Dialer {
	t.Helper()
	d, err := wire.NewDialer(wire.DialerDeps{Network: n, Form: form.New(translators.Config{})})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func endpoint(address string) transport.Endpoint {
	return transport.Endpoint{Agent: "chef", Binding: form.Binding, URL: "uacps://" + address, Timeout: 5 * time.Second}
}

func message(carriage string) translators.Wire {
	w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`"0195a8b2-1c3d-4e5f-8a9b-0c1d2e3f4a5b"`)},
		Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}}},
	}, translators.Target{Form: carriage})
	if err != nil {
		return translators.Wire{}
	}
	return w
}

// seal makes a recorded message, as the pipeline does.
func seal(t testing.TB, w translators.Wire) (transport.Sealed, string) {
	t.Helper()
	recorder, err := ect.NewRecorder(ect.RecorderDeps{Store: ecttest.NewStore(), Retention: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	token, err := ecttest.NewParty(t, "spiffe://td/gw").Signer(t, time.Now).Sign(ect.Claims{
		Act: ect.ActTranslate, Audience: []string{"x"}, Workflow: "6f1f8f3c-9a37-4b6e-9c55-0a4a0b7b7f10", OutputHash: ect.Hash(w.Body),
	})
	if err != nil {
		t.Fatal(err)
	}
	receipt, err := recorder.Record(t.Context(), token, ect.Filing{})
	if err != nil {
		t.Fatal(err)
	}
	attested, err := transport.Attest(receipt, w)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := attested.Seal("an.cest.or")
	if err != nil {
		t.Fatal(err)
	}
	return sealed, token.Compact()
}

// TestDialer_WithListenerInBothForms: both faces against each other, in both forms of carriage.
func TestDialer_WithListenerInBothForms(t *testing.T) {
	t.Parallel()
	for _, carriage := range []string{form.FormEnveloped, form.FormBare} {
		r := &handler{exchange: echo}
		address := open(t, r, wire.Config{})
		sealed, token := seal(t, message(carriage))
		reply, err := dialer(t, network{}).Dial(t.Context(), endpoint(address), sealed)
		if err != nil {
			t.Fatal(err)
		}
		m, err := form.New(translators.Config{}).Decode(reply.Wire)
		if err != nil {
			t.Fatal(err)
		}
		if parts := m.Body.(*canonical.Result).Output.Parts; len(parts) != 1 || parts[0].Text != "hi" || reply.Wire.Form != carriage {
			t.Errorf("%s: got %+v as %s", carriage, parts, reply.Wire.Form)
		}
		call := r.seen()[0]
		var sent, back []string
		if carriage == form.FormEnveloped {
			sent, back = []string{token, "an.cest.or"}, []string{"our.own.token", "an.older.one"}
		}
		if diff := cmp.Diff(sent, call.Evidence); diff != "" {
			t.Errorf("%s: evidence that arrived (-want +got):\n%s", carriage, diff)
		}
		if diff := cmp.Diff(back, reply.Evidence); diff != "" {
			t.Errorf("%s: evidence that came back (-want +got):\n%s", carriage, diff)
		}
		if call.Agent != "chef" || call.Caller.ID != anonymous || !call.Caller.Anonymous || call.Address != "127.0.0.1" || call.Wire.Form != carriage {
			t.Errorf("%s: got %+v", carriage, call)
		}
	}
}

func TestDescribe_AgentOfAListener(t *testing.T) {
	t.Parallel()
	r := &handler{}
	d, ep, err := dialer(t, network{}).Describe(t.Context(), endpoint(open(t, r, wire.Config{})))
	if err != nil {
		t.Fatal(err)
	}
	if d.Name != "chef" || d.Version != "1" || len(d.Capabilities) != 1 || d.Capabilities[0].ID != "cook" || ep.Version != form.Profile {
		t.Errorf("got %+v, %+v", d, ep)
	}
	if body, err := json.Marshal(d); err != nil || strings.Contains(string(body), "secret") {
		t.Errorf("what the agent says to us alone is told: %s", body)
	}
	if len(r.seen()) != 0 {
		t.Error("a question about the agent went into the pipeline")
	}
}

// line is a raw connection to a listener.
type line struct {
	t    testing.TB
	conn *tls.Conn
}

func connect(t testing.TB, address string) line {
	t.Helper()
	conn, err := network{}.DialTLS(t.Context(), address, "", wire.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	return line{t, conn}
}

func (l line) send(data []byte) {
	l.t.Helper()
	if _, err := l.conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(data))), data...)); err != nil {
		l.t.Fatal(err)
	}
}

func (l line) receive() (form.Frame, error) {
	var head [2]byte
	if _, err := io.ReadFull(l.conn, head[:]); err != nil {
		return form.Frame{}, err
	}
	body := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(l.conn, body); err != nil {
		return form.Frame{}, err
	}
	return form.ParseFrame(body)
}

func content(t testing.TB, f form.Frame) []byte {
	t.Helper()
	data, err := f.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func topic(text string) []form.Option {
	return []form.Option{{Type: form.OptTopic, Value: []byte(text)}}
}

// TestListener_AnswersByVerbAndFault: what a frame gets, by its verb and what is wrong with it.
func TestListener_AnswersByVerbAndFault(t *testing.T) {
	t.Parallel()
	refuse := func(transport.Call) (transport.Answer, error) {
		return transport.Answer{}, &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}
	}
	address := open(t, &handler{exchange: refuse}, wire.Config{})
	for name, tc := range map[string]struct {
		frame form.Frame
		code  uint8
	}{
		"ping":                    {form.Frame{ID: 5}, 0},
		"refused by the pipeline": {form.Frame{Verb: form.Ask, ID: 5, Options: topic(form.TopicSend), Payload: []byte("hi")}, 0x42},
		"observe":                 {form.Frame{Verb: form.Observe, ID: 5, Options: topic("a/#")}, 0x42},
		"observe a list":          {form.Frame{Verb: form.Observe, ID: 5, Options: topic(form.TopicList)}, 0x44},
		"exactly once":            {form.Frame{Verb: form.Ask, QoS: 2, ID: 5, Options: topic("a")}, 0x81},
		"unserved topic":          {form.Frame{Verb: form.Ask, ID: 5, Options: topic("/a2a/tasks/push")}, 0x44},
		"no topic":                {form.Frame{Verb: form.Ask, ID: 5}, 0x40},
		"evidence of numbers":     {form.Frame{Verb: form.Ask, ID: 5, Options: append(topic(form.TopicSend), form.Option{Type: form.OptContentType, Value: []byte{0, 0, 0, 1}}), Payload: []byte(`{"body":"x","aepb":{"ect":[1]}}`)}, 0x40},
	} {
		l := connect(t, address)
		l.send(content(t, tc.frame))
		got, err := l.receive()
		if err != nil || got.Code != tc.code || got.Answers(5) == form.MatchNone {
			t.Errorf("%s: got code %x, %v; want %x", name, got.Code, err, tc.code)
		}
	}
}

// TestListener_FrameWithoutIDEndsTheConnection: what has no id to answer under.
func TestListener_FrameWithoutIDEndsTheConnection(t *testing.T) {
	t.Parallel()
	address := open(t, &handler{exchange: echo}, wire.Config{})
	for name, data := range map[string][]byte{
		"length zero":    {0, 0},
		"no frame":       {0, 3, 1, 2, 3},
		"the other uACP": append([]byte{0, 8}, 1, 0, 0, 0, 42, 0, 0, 1),
	} {
		l := connect(t, address)
		if _, err := l.conn.Write(data); err != nil {
			t.Fatal(err)
		}
		if f, err := l.receive(); err == nil {
			t.Errorf("%s: answered %+v", name, f)
		}
	}
}

// TestListener_ConcurrentRequests: a slow request does not hold up a fast one, and a notice
// gets no answer.
func TestListener_ConcurrentRequests(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := &handler{exchange: func(call transport.Call) (transport.Answer, error) {
		if strings.HasSuffix(string(call.Wire.Body), "slow") {
			<-release
		}
		return echo(call)
	}}
	l := connect(t, open(t, r, wire.Config{}))
	ask := func(id uint32, text string) {
		l.send(content(t, form.Frame{Verb: form.Ask, ID: id, Options: topic(form.TopicSend), Payload: []byte(text)}))
	}
	ask(1, "slow")
	l.send(content(t, form.Frame{Verb: form.Tell, ID: 9, Options: topic("a"), Payload: []byte("notice")}))
	ask(2, "fast")
	if got, err := l.receive(); err != nil || got.Answers(2) == form.MatchNone {
		t.Errorf("first: %+v %v", got, err)
	}
	close(release)
	if got, err := l.receive(); err != nil || got.Answers(1) == form.MatchNone {
		t.Errorf("second: %+v %v", got, err)
	}
}

// TestListener_OnlyTLS13WithALPN: nothing older, and nothing without the protocol's name.
func TestListener_OnlyTLS13WithALPN(t *testing.T) {
	t.Parallel()
	address := open(t, &handler{exchange: echo}, wire.Config{})
	if conn, err := (network{version: tls.VersionTLS12}).DialTLS(t.Context(), address, "", wire.Protocol); err == nil {
		_ = conn.Close()
		t.Error("TLS 1.2 was accepted")
	}
	if conn, err := (network{}).DialTLS(t.Context(), address, "", "h2"); err == nil {
		_ = conn.Close()
		t.Error("another protocol was accepted")
	}
}

// TestListener_TooManyConnections: one more than allowed is told so, and closed, while the other
// is answered; one on which nothing is under way gives way to the next.
func TestListener_TooManyConnections(t *testing.T) {
	t.Parallel()
	request, answers := make(chan struct{}), make(chan struct{})
	waiting := func(call transport.Call) (transport.Answer, error) {
		request <- struct{}{}
		<-answers
		return echo(call)
	}
	address := open(t, &handler{exchange: waiting}, wire.Config{Connections: 1})
	first := connect(t, address)
	first.send(content(t, form.Frame{Verb: form.Ask, ID: 5, Options: topic(form.TopicSend), Payload: []byte("hi")}))
	<-request
	second := connect(t, address)
	second.send(content(t, form.Frame{ID: 6}))
	if got, err := second.receive(); err != nil || got.Code != 0x83 || got.ID != 6 {
		t.Errorf("the second connection hears %+v, %v", got, err)
	}
	if got, err := second.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("and then %+v, %v", got, err)
	}
	close(answers)
	if _, err := first.receive(); err != nil {
		t.Errorf("the first connection: %v", err)
	}
	var err error
	for range 100 { // until it is noticed that nothing is under way
		third := connect(t, address)
		third.send(content(t, form.Frame{ID: 7}))
		if got, wrong := third.receive(); wrong != nil || got.Code != 0x83 {
			err = wrong
			break
		}
	}
	if err != nil {
		t.Errorf("a third connection, while nothing is under way on the first: %v", err)
	}
	closedWithin(t, first.conn, 4*time.Second)
}

// agent is a peer that answers a frame as a test says; nil closes.
func agent(t testing.TB, answers func(form.Frame) [][]byte) string {
	t.Helper()
	config := serverTLS(t)
	config.NextProtos = []string{wire.Protocol}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() {
				defer func() { _ = conn.Close() }()
				l := line{t, conn.(*tls.Conn)}
				f, err := l.receive()
				if err != nil {
					return
				}
				for _, answer := range answers(f) {
					_, _ = conn.Write(answer)
				}
				_, _ = io.Copy(io.Discard, conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		group.Wait()
	})
	return listener.Addr().String()
}

func framed(data []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(data))), data...)
}

// TestDial_Failures: what each way of not answering is.
func TestDial_Failures(t *testing.T) {
	t.Parallel()
	bad, late := as[*transport.BadReplyError], as[*transport.TimeoutError]
	gone, denied := as[*transport.UnreachableError], as[*egress.DeniedError]
	stray := framed(content(t, form.Frame{Verb: form.Ask, ID: 99}))
	many := make([][]byte, 20)
	for i := range many {
		many[i] = stray
	}
	for name, tc := range map[string]struct {
		answers [][]byte
		url     string
		network network
		lasts   bool // until its time is over
		is      func(error) bool
	}{
		"no frame":         {answers: [][]byte{{0, 3, 1, 2, 3}}, is: bad},
		"length zero":      {answers: [][]byte{{0, 0}}, is: bad},
		"only strays":      {answers: many, is: bad},
		"silence":          {lasts: true, is: late},
		"strays, silence":  {answers: [][]byte{stray}, lasts: true, is: late},
		"half a frame":     {answers: [][]byte{{0, 20, 0x64}}, lasts: true, is: late},
		"bad evidence":     {answers: [][]byte{evil(t, `"a.b.c"`)}, is: bad},
		"no evidence":      {answers: [][]byte{evil(t, `["a b"]`)}, is: bad},
		"not reached":      {network: network{err: errors.New("refused")}, is: gone},
		"refused outright": {network: network{err: &egress.DeniedError{Host: "x", Reason: egress.ReasonNotListed}}, is: denied},
		"another scheme":   {url: "https://127.0.0.1:1", is: denied},
		"with credentials": {url: "uacps://user@127.0.0.1:1", is: denied},
		"with a path":      {url: "uacps://127.0.0.1:1/agent", is: denied},
		"no host":          {url: "uacps://", is: denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ep := endpoint(agent(t, func(form.Frame) [][]byte { return tc.answers }))
			ep.Timeout = time.Minute
			if tc.lasts {
				ep.Timeout = 300 * time.Millisecond
			}
			if tc.url != "" {
				ep.URL = tc.url
			}
			sealed, _ := seal(t, message(form.FormBare))
			_, err := dialer(t, tc.network).Dial(t.Context(), ep, sealed)
			if !tc.is(err) {
				t.Errorf("got %T %v", err, err)
			}
		})
	}
}

// as reports whether an error is of a type.
func as[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// evil answers the request of message with evidence that is none.
func evil(t testing.TB, tokens string) []byte {
	t.Helper()
	request, err := form.ParseFrame(message(form.FormBare).Body)
	if err != nil {
		t.Fatal(err)
	}
	return framed(content(t, form.Frame{
		Verb: form.Ask, ID: request.ID, Options: []form.Option{{Type: form.OptContentType, Value: []byte{0, 0, 0, 1}}},
		Payload: []byte(`{"body":"x","aepb":{"ect":` + tokens + `}}`),
	}))
}

// TestDial_RepliesOfReferenceImplementations: replies as both reference implementations pair them.
func TestDial_RepliesOfReferenceImplementations(t *testing.T) {
	t.Parallel()
	for name, reply := range map[string]func(form.Frame) form.Frame{
		"C++": func(f form.Frame) form.Frame {
			return form.Frame{Verb: f.Verb, QoS: f.QoS, ID: f.ID, Payload: []byte("ok")}
		},
		"Python": func(f form.Frame) form.Frame {
			options := append(f.Options, form.Option{Type: form.OptCorrelation, Value: binary.BigEndian.AppendUint32(nil, f.ID)})
			return form.Frame{Verb: f.Verb, QoS: f.QoS, ID: (f.ID + 1_000_000) & (1<<24 - 1), Options: options, Payload: []byte("ok")}
		},
		"a tell, correlated": func(f form.Frame) form.Frame {
			return form.Frame{Verb: form.Tell, ID: 1, Payload: []byte("ok"), Options: []form.Option{{Type: form.OptCorrelation, Value: binary.BigEndian.AppendUint32(nil, f.ID)}}}
		},
	} {
		address := agent(t, func(f form.Frame) [][]byte { return [][]byte{framed(content(t, reply(f)))} })
		sealed, _ := seal(t, message(form.FormBare))
		got, err := dialer(t, network{}).Dial(t.Context(), endpoint(address), sealed)
		if err != nil || !strings.HasSuffix(string(got.Wire.Body), "ok") {
			t.Errorf("%s: got %q, %v", name, got.Wire.Body, err)
		}
	}
}

func TestNew_IncompleteDeps(t *testing.T) {
	t.Parallel()
	if _, err := wire.NewListener(wire.ListenerDeps{}); err == nil {
		t.Error("a listener of nothing")
	}
	if _, err := wire.NewDialer(wire.DialerDeps{}); err == nil {
		t.Error("a dialer of nothing")
	}
	if _, err := dialer(t, network{}).Dial(t.Context(), transport.Endpoint{}, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("unsealed: got %v", err)
	}
}

// TestListener_LimitThenPermissionThenForm: the limit first, then permission, then form.
func TestListener_LimitThenPermissionThenForm(t *testing.T) {
	t.Parallel()
	limited := func(transport.CallInfo) error {
		return &canonical.Error{Code: canonical.CodeRateLimited, Message: "slow down"}
	}
	forbidden := &canonical.Error{Code: canonical.CodeForbidden, Message: "no"}
	ping := form.Frame{ID: 5}
	unserved := form.Frame{Verb: form.Ask, ID: 5, Options: topic("/a2a/tasks/push")}
	for name, tc := range map[string]struct {
		handler *handler
		frame   form.Frame
		code    uint8
	}{
		"limited":               {&handler{limit: limited}, ping, 0x83},
		"ping, forbidden":       {&handler{refusal: forbidden}, ping, 0x42},
		"unreadable, forbidden": {&handler{refusal: forbidden}, unserved, 0x42},
		"unreadable":            {&handler{}, unserved, 0x44},
	} {
		l := connect(t, open(t, tc.handler, wire.Config{}))
		l.send(content(t, tc.frame))
		if got, err := l.receive(); err != nil || got.Code != tc.code {
			t.Errorf("%s: got code %x, %v; want %x", name, got.Code, err, tc.code)
		}
	}
}

// TestListener_HandshakeWithoutCertificate: without a certificate the handshake fails where it is needed.
func TestListener_HandshakeWithoutCertificate(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := wire.NewListener(wire.ListenerDeps{Form: form.New(translators.Config{}), TLS: serverTLS(t), Net: plain, Agent: "chef"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Serve(ctx, &handler{exchange: echo}) }()
	c := connect(t, plain.Addr().String())
	if got, err := c.receive(); err == nil || !strings.Contains(err.Error(), "certificate required") {
		t.Errorf("got %+v, %v; want a handshake that fails", got, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}
