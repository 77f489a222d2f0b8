package uacp_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/transporttest"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// happenings is a stream of texts, with the evidence that closes it.
type happenings struct {
	mu       sync.Mutex
	texts    []string
	form     string
	end      error // in place of an end; context.Canceled: it stays open
	requests int
	closed   chan struct{}
	once     sync.Once
	ended    bool
}

func (h *happenings) Next(ctx context.Context) (transport.Event, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	if len(h.texts) > 0 {
		text := h.texts[0]
		h.texts = h.texts[1:]
		w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseEvent, Correlation: canonical.Correlation{WireID: []byte("5")},
			Body: &canonical.Event{Artifact: &canonical.ArtifactUpdate{Artifact: canonical.Artifact{
				ID: "a", Parts: []canonical.Part{{Kind: canonical.KindText, Text: text}},
			}}},
		}, translators.Target{Form: h.form})
		return transport.Event{Wire: w}, err
	}
	switch {
	case errors.Is(h.end, context.Canceled):
		<-ctx.Done()
		return transport.Event{}, ctx.Err()
	case h.end != nil:
		return transport.Event{}, h.end
	case !h.ended:
		h.ended = true
		return transport.Event{Evidence: []string{"clo.si.ng"}}, nil
	default:
		return transport.Event{}, io.EOF
	}
}

func (h *happenings) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *happenings) gone(t *testing.T) {
	t.Helper()
	select {
	case <-h.closed:
	case <-time.After(5 * time.Second):
		t.Error("the stream was not given back")
	}
}

// watched is a road on which everything can be observed.
func watched(h *happenings) *handler {
	h.closed = make(chan struct{})
	return &handler{exchange: func(call transport.Call) (transport.Answer, error) {
		h.form = call.Wire.Form
		return transporttest.Stream(h, "o.pen.ing"), nil
	}}
}

func observing(carriage string) translators.Wire {
	m := &canonical.Message{
		Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: []byte("5")},
		Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: "hi"}}}},
	}
	m.Preferences.Stream = true
	w, _, err := form.New(translators.Config{}).Encode(m, translators.Target{Form: carriage, Stream: true})
	if err != nil {
		return translators.Wire{}
	}
	return w
}

// TestObserve_FramesInOrder: the frames that an OBSERVE is answered with, in order.
func TestObserve_FramesInOrder(t *testing.T) {
	t.Parallel()
	for _, carriage := range []string{form.FormEnveloped, form.FormBare} {
		h := &happenings{texts: []string{"one", "two", "three"}}
		l := connect(t, open(t, watched(h), wire.Config{}))
		l.send(observing(carriage).Body)
		for i, want := range []struct {
			verb  form.Verb
			code  uint8
			id    uint32
			text  string
			token string
		}{
			{form.Observe, 2, 5, "", "o.pen.ing"},
			{form.Tell, 0, 6, "one", ""},
			{form.Tell, 0, 7, "two", ""},
			{form.Tell, 0, 8, "three", ""},
			{form.Observe, 3, 5, "", "clo.si.ng"},
		} {
			f, err := l.receive()
			if err != nil {
				t.Fatalf("%s, frame %d: %v", carriage, i, err)
			}
			if f.Verb != want.verb || f.Code != want.code || f.ID != want.id || f.Answers(5) == form.MatchNone ||
				!strings.Contains(string(f.Payload), want.text) || f.Verb == form.Tell && f.Topic() != form.TopicSend {
				t.Errorf("%s, frame %d: got verb %d, code %x, id %d, topic %q: %s", carriage, i, f.Verb, f.Code, f.ID, f.Topic(), f.Payload)
			}
			if strings.Contains(string(f.Payload), want.token) != (carriage == form.FormEnveloped || want.token == "") {
				t.Errorf("%s, frame %d: its evidence is %s", carriage, i, f.Payload)
			}
		}
		h.gone(t)
	}
}

// TestObserve_EndsEarly: whoever cancels, leaves or is told of a failure.
func TestObserve_EndsEarly(t *testing.T) {
	t.Parallel()
	start := func(end error) (line, *happenings) {
		h := &happenings{texts: []string{"one"}, end: end}
		l := connect(t, open(t, watched(h), wire.Config{}))
		l.send(observing(form.FormEnveloped).Body)
		for range 2 {
			if _, err := l.receive(); err != nil {
				t.Fatal(err)
			}
		}
		return l, h
	}
	l, h := start(context.Canceled)
	request, err := form.ParseFrame(observing(form.FormEnveloped).Body)
	if err != nil {
		t.Fatal(err)
	}
	other := request
	other.ID++
	l.send(content(t, form.Cancel(other)))
	l.send(content(t, form.Frame{ID: 9}))
	if f, err := l.receive(); err != nil || f.Verb != form.Ping {
		t.Fatalf("another's cancel: got %+v, %v", f, err)
	}
	l.send(content(t, form.Cancel(request)))
	if f, err := l.receive(); err != nil || f.Verb != form.Observe || f.Code != 3 {
		t.Errorf("canceled: got %+v, %v", f, err)
	}
	h.gone(t)

	l, h = start(context.Canceled)
	_ = l.conn.Close()
	h.gone(t)

	l, h = start(&transport.UnreachableError{Agent: "chef"})
	if f, err := l.receive(); err != nil || f.Verb != form.Observe || f.Code != 0x83 || f.ID != 5 {
		t.Errorf("a failure: got %+v, %v", f, err)
	}
	h.gone(t)
}

// TestObserve_SlowReaderStopsTheSource: no more is asked for than was taken.
func TestObserve_SlowReaderStopsTheSource(t *testing.T) {
	t.Parallel()
	const all = 2000
	h := &happenings{}
	for range all {
		h.texts = append(h.texts, strings.Repeat("x", 60_000))
	}
	l := connect(t, open(t, watched(h), wire.Config{Write: 200 * time.Millisecond}))
	l.send(observing(form.FormBare).Body)
	h.gone(t)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests >= all {
		t.Error("everything was asked for, and nothing taken")
	}
	_ = l.conn.Close()
}

// TestObserve_DialerWithListener: both faces against each other.
func TestObserve_DialerWithListener(t *testing.T) {
	t.Parallel()
	for _, carriage := range []string{form.FormEnveloped, form.FormBare} {
		h := &happenings{texts: []string{"one", "two"}}
		sealed, _ := seal(t, observing(carriage))
		reply, err := dialer(t, network{}).Dial(t.Context(), endpoint(open(t, watched(h), wire.Config{})), sealed)
		if err != nil {
			t.Fatal(err)
		}
		if carriage == form.FormEnveloped && strings.Join(reply.Evidence, " ") != "o.pen.ing" {
			t.Errorf("opened with %v", reply.Evidence)
		}
		var texts, tokens []string
		for {
			event, err := reply.Events.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			tokens = append(tokens, event.Evidence...)
			if len(event.Wire.Body) == 0 {
				continue
			}
			m, err := form.New(translators.Config{}).Decode(event.Wire)
			if err != nil {
				t.Fatal(err)
			}
			switch e := m.Body.(*canonical.Event); {
			case e.Artifact != nil:
				texts = append(texts, e.Artifact.Artifact.Parts[0].Text)
			case e.Status != nil:
				texts = append(texts, string(e.Status.State))
			}
		}
		want, token := "one two", "clo.si.ng"
		if carriage == form.FormBare {
			want, token = "one two completed", ""
		}
		if strings.Join(texts, " ") != want || strings.Join(tokens, " ") != token {
			t.Errorf("%s: heard %v, with %v", carriage, texts, tokens)
		}
		if err := reply.Events.Close(); err != nil {
			t.Error(err)
		}
		h.gone(t)
	}
}

// TestObserve_CloseCancelsAtTheAgent tells the agent, and ends the connection.
func TestObserve_CloseCancelsAtTheAgent(t *testing.T) {
	t.Parallel()
	h := &happenings{texts: []string{"one"}, end: context.Canceled}
	sealed, _ := seal(t, observing(form.FormEnveloped))
	reply, err := dialer(t, network{}).Dial(t.Context(), endpoint(open(t, watched(h), wire.Config{})), sealed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := reply.Events.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = reply.Events.Close()
	_ = reply.Events.Close()
	h.gone(t)
	ctx, cancel := context.WithCancel(t.Context())
	h = &happenings{end: context.Canceled}
	if reply, err = dialer(t, network{}).Dial(t.Context(), endpoint(open(t, watched(h), wire.Config{})), sealed); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := reply.Events.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader who leaves: %v", err)
	}
	_ = reply.Events.Close()
	h.gone(t)
}

// TestObserve_MisbehavingAgents: what comes of each, exactly.
func TestObserve_MisbehavingAgents(t *testing.T) {
	t.Parallel()
	request, err := form.ParseFrame(observing(form.FormBare).Body)
	if err != nil {
		t.Fatal(err)
	}
	open := content(t, form.Marker(form.MarkOpen, form.FormBare, request))
	tell := func(id uint32, text string) []byte {
		return content(t, form.Frame{Verb: form.Tell, QoS: 1, ID: id, Payload: []byte(text)}.ReplyTo(request, id))
	}
	stray := content(t, form.Frame{Verb: form.Ask, ID: 99})
	fault := content(t, form.Frame{Verb: form.Observe, Code: 0x80, ID: 5, Payload: []byte("no more")})
	broken, bad, late := as[*transport.UnreachableError], as[*transport.BadReplyError], as[*transport.TimeoutError]
	for name, c := range map[string]struct {
		frames   [][]byte
		raw      string // behind them
		stays    bool
		received string
		as       func(error) bool // nil: it ends well
	}{
		"breaks off before anything":   {as: broken},
		"breaks off after it began":    {frames: [][]byte{open, tell(6, "a")}, received: "a ", as: broken},
		"breaks off within a frame":    {frames: [][]byte{open, tell(6, "a")}, raw: "\x00\x10abc", received: "a ", as: broken},
		"never takes it":               {stays: true, as: late},
		"says what is no frame":        {frames: [][]byte{open}, raw: "\x00\x03abc", as: bad},
		"says what is no length":       {frames: [][]byte{open}, raw: "\x00\x00", as: bad},
		"talks of other things":        {frames: append([][]byte{open}, manyOf(stray, 17)...), as: bad},
		"says the same again":          {frames: [][]byte{open, tell(6, "a"), tell(6, "a"), tell(7, "b"), fault}, received: "a b err "},
		"does not say that it took it": {frames: [][]byte{tell(6, "a"), fault}, received: "a err "},
		"answers once":                 {frames: [][]byte{content(t, form.Frame{Verb: form.Observe, ID: 5, Payload: []byte("one")})}, received: "once "},
		"refuses":                      {frames: [][]byte{fault}, received: "once "},
		"ends it properly":             {frames: [][]byte{open, tell(6, "a"), content(t, form.Marker(form.MarkEnd, form.FormBare, request))}, received: "a end "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, release := protocol(t, c.frames, c.raw, c.stays)
			defer release()
			ep := endpoint(address)
			if ep.Timeout = 5 * time.Second; c.stays {
				ep.Timeout = 100 * time.Millisecond
			}
			sealed, _ := seal(t, observing(form.FormBare))
			received, err := listenTo(t, ep, sealed)
			if received != c.received || (err == nil) != (c.as == nil) || err != nil && !c.as(err) {
				t.Errorf("heard %q, then %v", received, err)
			}
		})
	}
}

func manyOf(frame []byte, n int) (out [][]byte) {
	for range n {
		out = append(out, frame)
	}
	return out
}

// protocol is an agent that says its piece to the first who asks.
func protocol(t *testing.T, frames [][]byte, raw string, stays bool) (address string, release func()) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		conn, err := plain.Accept()
		if err != nil {
			return
		}
		l := accepted(t, conn)
		defer func() { _ = l.conn.Close() }()
		if _, err := l.receive(); err != nil {
			return
		}
		defer func() {
			_ = l.conn.CloseWrite()
			for err := error(nil); err == nil && !stays; { // or what was said might not arrive
				_, err = l.receive()
			}
		}()
		for _, frame := range frames {
			l.send(frame)
		}
		_, _ = l.conn.Write([]byte(raw))
		if stays {
			<-done
		}
	}()
	return plain.Addr().String(), func() {
		close(done)
		_ = plain.Close()
		<-gone
	}
}

// listenTo hears an agent until it says no more.
func listenTo(t *testing.T, ep transport.Endpoint, sealed transport.Sealed) (string, error) {
	t.Helper()
	reply, err := dialer(t, network{}).Dial(t.Context(), ep, sealed)
	if err != nil {
		return "", err
	}
	if reply.Events == nil {
		return "once ", nil
	}
	defer func() { _ = reply.Events.Close() }()
	received := ""
	for {
		event, err := reply.Events.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return received, nil
		}
		if err != nil {
			return received, err
		}
		if len(event.Wire.Body) == 0 {
			continue
		}
		m, err := form.New(translators.Config{}).Decode(event.Wire)
		if err != nil {
			return received, err
		}
		switch e := m.Body.(type) {
		case *canonical.Error:
			received += "err "
		case *canonical.Event:
			if e.Status != nil {
				received += "end "
			} else {
				received += e.Artifact.Artifact.Parts[0].Text + " "
			}
		}
	}
}

// TestListener_DuplicatesByQoS: a frame with quality of service 1 is taken once, and
// answered as often as it comes; one without is taken as often.
func TestListener_DuplicatesByQoS(t *testing.T) {
	t.Parallel()
	r := &handler{exchange: echo}
	l := connect(t, open(t, r, wire.Config{}))
	ask := func(qos uint8, id uint32) string {
		l.send(content(t, form.Frame{Verb: form.Ask, QoS: qos, ID: id, Options: topic(form.TopicSend), Payload: []byte("n" + strconv.Itoa(int(id)))}))
		f, err := l.receive()
		if err != nil {
			t.Fatal(err)
		}
		return string(content(t, f))
	}
	if first, again := ask(1, 7), ask(1, 7); first != again || len(r.seen()) != 1 {
		t.Errorf("%d calls for one request: %q, %q", len(r.seen()), first, again)
	}
	ask(1, 8)
	ask(0, 7)
	ask(0, 7)
	if n := len(r.seen()); n != 4 {
		t.Errorf("%d calls", n)
	}
	for qos, want := range map[uint8]form.Verb{0: form.Ping, 1: form.Tell} {
		l.send(content(t, form.Frame{Verb: form.Tell, QoS: qos, ID: 20, Options: topic("a"), Payload: []byte("x")}))
		if qos == 0 {
			l.send(content(t, form.Frame{ID: 21}))
		}
		f, err := l.receive()
		if err != nil || f.Verb != want || want == form.Tell && (!f.IsAck() || f.ID != 20) {
			t.Errorf("a TELL with quality of service %d: got %+v, %v", qos, f, err)
		}
	}
	l.send(content(t, form.Frame{Verb: form.Tell, QoS: 1, Code: 2, ID: 6})) // nobody answers an acknowledgement
	if f := ask(0, 9); f == "" {
		t.Error("nothing after an acknowledgement")
	}
}

// accepted is the other end of a connection.
func accepted(t *testing.T, conn net.Conn) line {
	t.Helper()
	config := serverTLS(t)
	config.NextProtos = []string{wire.Protocol}
	return line{t, tls.Server(conn, config)}
}
