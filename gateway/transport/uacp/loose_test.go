package uacp_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// inDatagrams serves datagrams on a socket for the length of a test.
func inDatagrams(t *testing.T, r *handler) transport.Endpoint {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d, err := wire.NewDatagrams(wire.DatagramDeps{Form: form.New(translators.Config{}), Conn: conn, Agent: "chef", Anonymous: anonymous})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, r) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	ep := endpoint("")
	ep.URL = "uacp://" + conn.LocalAddr().String()
	return ep
}

// TestDatagram_DialerWithListener: both faces against each other on real sockets: a
// question and its answer, a description, and what is observed.
func TestDatagram_DialerWithListener(t *testing.T) {
	t.Parallel()
	for _, carriage := range []string{form.FormEnveloped, form.FormBare} {
		r := &handler{exchange: echo}
		ep := inDatagrams(t, r)
		sealed, token := seal(t, message(carriage))
		reply, err := dialer(t, network{}).Dial(t.Context(), ep, sealed)
		if err != nil {
			t.Fatal(err)
		}
		if m := understood(t, reply.Wire); !strings.Contains(string(m), `"hi"`) {
			t.Errorf("%s: answered %s", carriage, m)
		}
		evidence := strings.Join(append(r.seen()[0].Evidence, reply.Evidence...), " ")
		if want := token + " an.cest.or our.own.token an.older.one"; carriage == form.FormEnveloped && evidence != want {
			t.Errorf("evidence %s, want %s", evidence, want)
		}
		if d, _, err := dialer(t, network{}).Describe(t.Context(), ep); err != nil || d.Name != "chef" || len(d.Capabilities) != 1 {
			t.Errorf("%s: described as %+v, %v", carriage, d, err)
		}
		h := &happenings{texts: []string{"one", "two"}}
		sealed, _ = seal(t, observing(carriage))
		if received, err := listenTo(t, inDatagrams(t, watched(h)), sealed); err != nil || !strings.HasPrefix(received, "one two ") {
			t.Errorf("%s: heard %q, %v", carriage, received, err)
		}
		h.gone(t)
	}
}

// understood is what a reply says.
func understood(t *testing.T, w translators.Wire) []byte {
	t.Helper()
	m, err := form.New(translators.Config{}).Decode(w)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(m.Body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// silent is an agent in datagrams, in the time of a bubble, that says what a test
// wants it to and notes when it hears what.
type silent struct {
	conn   net.Conn
	mu     sync.Mutex
	answer []form.Frame
	when   []time.Duration
	done   chan struct{}
}

// quiet gives an agent, and a dialer that reaches it and no other.
func quiet(t *testing.T) (*silent, *wire.Dialer) {
	t.Helper()
	here, there := net.Pipe()
	s, began := &silent{conn: there, done: make(chan struct{})}, time.Now()
	go func() {
		defer close(s.done)
		space := make([]byte, form.MaxFrame)
		for {
			n, err := there.Read(space)
			if err != nil {
				return
			}
			f, err := form.ParseFrame(append([]byte(nil), space[:n]...))
			if err != nil {
				return
			}
			s.mu.Lock()
			s.answer, s.when = append(s.answer, f), append(s.when, time.Since(began))
			s.mu.Unlock()
		}
	}()
	return s, dialer(t, network{datagrams: here})
}

// received is what came, and when; the agent is gone after it.
func (s *silent) received() ([]form.Frame, []time.Duration) {
	_ = s.conn.Close()
	<-s.done
	return s.answer, s.when
}

// says sends a frame after a while.
func (s *silent) says(after time.Duration, data []byte) {
	go func() {
		time.Sleep(after)
		_, _ = s.conn.Write(data)
	}()
}

func datagram() transport.Endpoint {
	ep := endpoint("")
	ep.URL, ep.Timeout = "uacp://127.0.0.1:1", time.Minute
	return ep
}

// TestDatagram_RequestsRepeatedAtQoS1: with quality of service 1 after 2, 4 and 8 seconds and
// no more, until something follows; the answer is waited for all the same.
func TestDatagram_RequestsRepeatedAtQoS1(t *testing.T) {
	t.Parallel()
	request, err := form.ParseFrame(message(form.FormBare).Body)
	if err != nil {
		t.Fatal(err)
	}
	answer := content(t, form.Frame{Verb: form.Ask, QoS: 1, ID: request.ID, Payload: []byte("ok")})
	once := request
	once.QoS = 0
	for name, tc := range map[string]struct {
		qos   uint8
		ack   time.Duration // when it says that it has come; zero: it does not
		stray bool          // says something else meanwhile
		after time.Duration // when it answers; zero: it does not
		want  []time.Duration
	}{
		"answered at once":    {qos: 1, after: time.Millisecond, want: seconds(0)},
		"answered at last":    {qos: 1, after: 50 * time.Second, want: seconds(0, 2, 6, 14)},
		"never answered":      {qos: 1, want: seconds(0, 2, 6, 14)},
		"acknowledged":        {qos: 1, ack: 3 * time.Second, after: 50 * time.Second, want: seconds(0, 2)},
		"talks of others":     {qos: 1, stray: true, after: 50 * time.Second, want: seconds(0, 2, 6, 14)},
		"once is enough":      {qos: 0, after: 50 * time.Second, want: seconds(0)},
		"lost, and no second": {qos: 0, want: seconds(0)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				agent, d := quiet(t)
				if tc.ack > 0 {
					agent.says(tc.ack, content(t, form.Ack(request)))
				}
				if tc.stray {
					agent.says(time.Second, content(t, form.Frame{Verb: form.Ask, ID: request.ID + 7}))
				}
				if tc.after > 0 {
					agent.says(tc.after, answer)
				}
				w := message(form.FormBare)
				if tc.qos == 0 {
					w.Body = content(t, once)
				}
				sealed, _ := seal(t, w)
				reply, err := d.Dial(t.Context(), datagram(), sealed)
				received, when := agent.received()
				if len(when) != len(tc.want) {
					t.Fatalf("said at %v, want %v", when, tc.want)
				}
				for i := range when {
					if when[i] != tc.want[i] || string(content(t, received[i])) != string(w.Body) {
						t.Errorf("said at %v, want %v", when, tc.want)
					}
				}
				if tc.after == 0 {
					if _, late := errors.AsType[*transport.TimeoutError](err); !late {
						t.Errorf("got %v", err)
					}
				} else if err != nil || !strings.HasSuffix(string(reply.Wire.Body), "ok") {
					t.Errorf("got %q, %v", reply.Wire.Body, err)
				}
			})
		})
	}
}

func seconds(list ...int) (out []time.Duration) {
	for _, n := range list {
		out = append(out, time.Duration(n)*time.Second)
	}
	return out
}

// TestDatagram_LateEventsAcknowledgedAndDropped: what came before is acknowledged again and
// taken no second time, in whatever order it comes.
func TestDatagram_LateEventsAcknowledgedAndDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		agent, d := quiet(t)
		request, err := form.ParseFrame(observing(form.FormBare).Body)
		if err != nil {
			t.Fatal(err)
		}
		tell := func(id uint32, text string) []byte {
			return content(t, form.Frame{Verb: form.Tell, QoS: 1, ID: id, Payload: []byte(text)}.ReplyTo(request, id))
		}
		for i, frame := range [][]byte{
			content(t, form.Marker(form.MarkOpen, form.FormBare, request)), tell(6, "a"), tell(7, "b"), tell(6, "a"), tell(8, "c"),
			content(t, form.Marker(form.MarkEnd, form.FormBare, request)),
		} {
			agent.says(time.Duration(i+1)*time.Second, frame)
		}
		sealed, _ := seal(t, observing(form.FormBare))
		reply, err := d.Dial(t.Context(), datagram(), sealed)
		if err != nil || reply.Events == nil {
			t.Fatalf("got %+v, %v", reply, err)
		}
		var received []string
		for {
			event, err := reply.Events.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if f, err := form.ParseFrame(event.Wire.Body); err == nil && f.Verb == form.Tell {
				received = append(received, string(f.Payload))
			}
		}
		_ = reply.Events.Close()
		answer, _ := agent.received()
		acks := 0
		for _, f := range answer {
			if f.IsAck() {
				acks++
			}
		}
		if strings.Join(received, " ") != "a b c" || acks != 4 || len(answer) != 5 {
			t.Errorf("heard %v, %d of %d frames are acknowledgements", received, acks, len(answer))
		}
	})
}

// TestDatagram_LimitsOfSizeAndIdentity: what does not fit one is not sent, nor taken; evidence
// that does not fit goes by reference; and nobody is believed to be somebody.
func TestDatagram_LimitsOfSizeAndIdentity(t *testing.T) {
	t.Parallel()
	long := func(n int) translators.Wire {
		w, _, err := form.New(translators.Config{}).Encode(&canonical.Message{
			Op: canonical.OpInvoke, Phase: canonical.PhaseRequest, Correlation: canonical.Correlation{WireID: json.RawMessage(`5`)},
			Body: &canonical.Invoke{Turn: canonical.Content{Role: canonical.RoleCaller, Parts: []canonical.Part{{Kind: canonical.KindText, Text: strings.Repeat("x", n)}}}},
		}, translators.Target{})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	r := &handler{exchange: echo}
	ep := inDatagrams(t, r)
	sealed, _ := seal(t, long(wire.MaxDatagram))
	var unsaid *canonical.Error
	if _, err := dialer(t, network{}).Dial(t.Context(), ep, sealed); !errors.As(err, &unsaid) || unsaid.Code != canonical.CodeBadParams || !strings.Contains(unsaid.Message, "datagram") {
		t.Errorf("too long: %v", err)
	}
	if n := len(r.seen()); n != 0 {
		t.Errorf("what does not fit has come %d times", n)
	}
	sealed, _ = seal(t, long(wire.MaxDatagram-100))
	reply, err := dialer(t, network{}).Dial(t.Context(), ep, sealed)
	if err != nil || len(reply.Wire.Body) > wire.MaxDatagram {
		t.Fatalf("just short enough: %d bytes, %v", len(reply.Wire.Body), err)
	}
	if got := r.seen()[0].Evidence; len(got) != 0 {
		t.Errorf("evidence that did not fit: %v", got)
	}

	named := ep
	named.ID = "spiffe://td/chef"
	var denied *egress.DeniedError
	if _, err := dialer(t, network{}).Dial(t.Context(), named, sealed); !errors.As(err, &denied) || denied.Reason != egress.ReasonScheme {
		t.Errorf("somebody: %v", err)
	}
	if _, err := dialer(t, network{err: &egress.DeniedError{Host: "x", Reason: egress.ReasonScheme}}).Dial(t.Context(), ep, sealed); !errors.As(err, &denied) {
		t.Errorf("outside development: %v", err)
	}

	closed, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	nobody := ep
	nobody.URL = "uacp://" + closed.LocalAddr().String()
	var gone *transport.UnreachableError
	if _, err := dialer(t, network{}).Dial(t.Context(), nobody, sealed); !errors.As(err, &gone) {
		t.Errorf("nobody there: %v", err)
	}
	synctest.Test(t, func(t *testing.T) {
		var bad *transport.BadReplyError
		for name, data := range map[string][]byte{
			"too long": append(content(t, form.Frame{Verb: form.Ask, ID: 5}), make([]byte, wire.MaxDatagram)...),
			"no frame": []byte("hello there"),
			"a byte":   {1},
		} {
			agent, d := quiet(t)
			agent.says(time.Second, data)
			if _, err := d.Dial(t.Context(), datagram(), sealed); !errors.As(err, &bad) {
				t.Errorf("%s: %v", name, err)
			}
			agent.received()
		}
	})
}
