package uacp_test

import (
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	wire "github.com/aepb/aepb-gateway/gateway/transport/uacp"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// packets is a socket on which a test sends and listens, in the time of a bubble.
type packets struct {
	in   chan packet
	out  chan packet
	late chan struct{}
	once sync.Once
}

type packet struct {
	body []byte
	at   net.Addr
	when time.Time
}

func newPackets() *packets {
	return &packets{in: make(chan packet, 64), out: make(chan packet, 4096), late: make(chan struct{})}
}

func (p *packets) ReadFrom(space []byte) (int, net.Addr, error) {
	select {
	case got := <-p.in:
		return copy(space, got.body), got.at, nil
	case <-p.late:
		return 0, nil, os.ErrDeadlineExceeded
	}
}

func (p *packets) WriteTo(body []byte, at net.Addr) (int, error) {
	p.out <- packet{append([]byte(nil), body...), at, time.Now()}
	return len(body), nil
}

func (p *packets) SetReadDeadline(time.Time) error  { p.once.Do(func() { close(p.late) }); return nil }
func (p *packets) SetWriteDeadline(time.Time) error { return nil }
func (p *packets) SetDeadline(time.Time) error      { return nil }
func (p *packets) Close() error                     { return nil }
func (p *packets) LocalAddr() net.Addr              { return from("127.0.0.1", 1) }

func from(host string, port int) net.Addr { return &net.UDPAddr{IP: net.ParseIP(host), Port: port} }

// sent is the frames that went out.
func (p *packets) sent(t *testing.T) (out []form.Frame, when []time.Time) {
	t.Helper()
	for {
		select {
		case got := <-p.out:
			f, err := form.ParseFrame(got.body)
			if err != nil {
				t.Fatal(err)
			}
			out, when = append(out, f), append(when, got.when)
		default:
			return out, when
		}
	}
}

// serve serves datagrams for the length of a test.
func (p *packets) serve(t *testing.T, r *handler, config wire.Config) (stop func()) {
	t.Helper()
	d, err := wire.NewDatagrams(wire.DatagramDeps{
		Form: form.New(translators.Config{}), Conn: p, Agent: "chef", Anonymous: anonymous, Config: config,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, r) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (p *packets) send(body []byte, at net.Addr) {
	p.in <- packet{body: body, at: at}
	synctest.Wait()
}

// TestDatagram_Answered, and what is not to be heard is not.
func TestDatagram_Answered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := newPackets(), &handler{exchange: echo}
		defer p.serve(t, r, wire.Config{})()
		ask := content(t, form.Frame{Verb: form.Ask, QoS: 1, ID: 7, Options: topic(form.TopicSend), Payload: []byte("hi")})
		me := from("127.0.0.1", 5000)
		p.send(ask, me)
		if got, _ := p.sent(t); len(got) != 1 || got[0].Answers(7) == form.MatchNone || string(got[0].Payload) != "hi" {
			t.Fatalf("got %+v", got)
		}
		p.send(ask, me)
		if got, _ := p.sent(t); len(got) != 1 || len(r.seen()) != 1 {
			t.Errorf("the same again: %d answers, %d calls", len(got), len(r.seen()))
		}
		time.Sleep(31 * time.Second)
		p.send(ask, me)
		if got, _ := p.sent(t); len(got) != 1 || len(r.seen()) != 2 {
			t.Errorf("the same, much later: %d answers, %d calls", len(got), len(r.seen()))
		}
		before := len(r.seen())
		for name, c := range map[string]struct {
			body []byte
			at   net.Addr
		}{
			"from elsewhere":           {ask, from("192.0.2.7", 5000)},
			"from everywhere":          {ask, from("0.0.0.0", 5000)},
			"longer than is read":      {append(content(t, form.Frame{Verb: form.Ask, ID: 8, Options: topic(form.TopicSend)}), make([]byte, wire.MaxDatagram)...), me},
			"no frame":                 {[]byte("hello there"), me},
			"nothing":                  {nil, me},
			"an acknowledgement":       {content(t, form.Frame{Verb: form.Tell, QoS: 1, Code: 2, ID: 9}), me},
			"a TELL that nobody wants": {content(t, form.Frame{Verb: form.Tell, ID: 9, Options: topic("a")}), me},
		} {
			p.send(c.body, c.at)
			if got, _ := p.sent(t); len(got) != 0 || len(r.seen()) != before {
				t.Errorf("%s: %d answers, %d calls", name, len(got), len(r.seen())-before)
			}
		}
	})
}

// TestDatagram_AnswerTooLong: an answer that does not fit is an error in its place.
func TestDatagram_AnswerTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := newPackets(), &happenings{texts: []string{strings.Repeat("x", 20_000)}}
		defer p.serve(t, watched(h), wire.Config{})()
		p.send(observing(form.FormBare).Body, from("127.0.0.1", 5000))
		got, _ := p.sent(t)
		if last := got[len(got)-1]; last.Code != 0x4A || last.Verb != form.Observe || last.ID != 5 {
			t.Errorf("got %+v", last)
		}
		h.gone(t)
	})
}

// TestDatagram_EventsRepeatedUntilAcknowledged: after 2, 4 and 8 seconds, and
// no more; the next is asked for when the last was heard.
func TestDatagram_EventsRepeatedUntilAcknowledged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, h := newPackets(), &happenings{texts: []string{"one", "two"}}
		defer p.serve(t, watched(h), wire.Config{})()
		me := from("127.0.0.1", 5000)
		began := time.Now()
		p.send(observing(form.FormBare).Body, me)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		got, when := p.sent(t)
		if len(got) != 3 || got[1].ID != 6 || got[2].ID != 6 || when[2].Sub(began) != 2*time.Second {
			t.Fatalf("got %+v at %v", got, when)
		}
		p.send(content(t, form.Ack(form.Frame{Verb: form.Tell, QoS: 1, ID: 99})), me)
		if got, _ := p.sent(t); len(got) != 0 {
			t.Errorf("another's acknowledgement: %+v", got)
		}
		p.send(content(t, form.Ack(got[1])), me)
		if got, _ := p.sent(t); len(got) != 1 || got[0].ID != 7 {
			t.Errorf("acknowledged: %+v", got)
		}
		began = time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		got, when = p.sent(t)
		if len(got) != 3 || when[0].Sub(began) != 2*time.Second || when[1].Sub(began) != 6*time.Second || when[2].Sub(began) != 14*time.Second {
			t.Errorf("never acknowledged: %d more, at %v", len(got), when)
		}
		h.gone(t)
	})
}

// TestDatagram_SendersAreBounded: no more of them are known than that, and a request
// too many from one of them is dropped.
func TestDatagram_SendersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, r := newPackets(), &handler{exchange: echo}
		defer p.serve(t, r, wire.Config{})()
		ask := content(t, form.Frame{Verb: form.Ask, QoS: 1, ID: 7, Options: topic(form.TopicSend), Payload: []byte("hi")})
		for port := range 300 {
			p.send(ask, from("127.0.0.1", 5000+port))
			time.Sleep(time.Millisecond)
		}
		calls := len(r.seen())
		p.send(ask, from("127.0.0.1", 5299))
		if n := len(r.seen()); n != calls {
			t.Error("the latest is not known any more")
		}
		p.send(ask, from("127.0.0.1", 5000))
		if n := len(r.seen()); n != calls+1 {
			t.Error("the first is still known")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		p, h := newPackets(), &happenings{end: context.Canceled}
		stop := p.serve(t, watched(h), wire.Config{InFlight: 1})
		p.send(observing(form.FormBare).Body, from("127.0.0.1", 5000))
		p.send(content(t, form.Frame{Verb: form.Ask, ID: 8, Options: topic(form.TopicSend)}), from("127.0.0.1", 5000))
		if got, _ := p.sent(t); len(got) != 1 {
			t.Errorf("%d answers", len(got))
		}
		stop()
		h.gone(t)
	})
}
