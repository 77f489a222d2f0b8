package uacp

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// MaxDatagram is the longest datagram that is read or written, in bytes.
const MaxDatagram = 16 << 10

// The bounds of repetition, as the reference has them: within 30 s, at most
// three times.
const (
	repeats   = 3
	firstWait = 2 * time.Second // for an acknowledgement; then twice as long each time
)

const (
	maxSenders  = 256 // that are known at once; then the one longest silent is forgotten
	tooLarge    = 0x4A
	maxUnacked  = 16 // acknowledgements that are not read yet
	datagramMax = MaxDatagram + 1
)

var (
	errUnacked = errors.New("uacp: the receiver did not acknowledge the datagram")
	errTooLong = errors.New("uacp: longer than a datagram may be")
)

// DatagramDeps is what Datagrams need.
type DatagramDeps struct {
	Form        translators.Translator // the µACP codec
	Conn        net.PacketConn         // Serve closes it
	Agent       string                 // directory name of the agent: a datagram names none
	Anonymous   ect.Identity           // who callers are: a datagram shows nothing
	Limits      ect.Limits             // of the evidence of one request; zero: the defaults
	Config      Config                 // InFlight is for each sender; what does not fit is dropped
	ByReference func(Reason)           // as ListenerDeps has it
}

// Datagrams take µACP traffic in without protection, for development: AEPB
// demands TLS 1.3, so they read from addresses of this machine alone and send to
// no other. A datagram with a forged source address therefore makes no other machine
// receive a reply.
type Datagrams struct {
	deps    DatagramDeps
	l       *Listener
	senders map[netip.AddrPort]*sender
	all     *worker.Pool
}

var _ transport.Listener = (*Datagrams)(nil)

// NewDatagrams checks its dependencies.
func NewDatagrams(deps DatagramDeps) (*Datagrams, error) {
	if deps.Form == nil || deps.Form.Info().Binding != form.Binding || deps.Conn == nil || deps.Anonymous == "" {
		return nil, errors.New("uacp: incomplete DatagramDeps")
	}
	l := &Listener{deps: ListenerDeps{
		Form: deps.Form, Agent: deps.Agent, Anonymous: deps.Anonymous, Limits: deps.Limits, Config: deps.Config.withDefaults(), ByReference: deps.ByReference,
	}}
	return &Datagrams{deps: deps, l: l, all: worker.NewPool(idleWorkers), senders: map[netip.AddrPort]*sender{}}, nil
}

// Serve takes datagrams in until ctx ends. What is too long, or comes from
// elsewhere, is dropped.
func (d *Datagrams) Serve(ctx context.Context, handler transport.Handler) error {
	stop := context.AfterFunc(ctx, func() { _ = d.deps.Conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	inner, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		d.all.Wait()
		_ = d.deps.Conn.Close()
	}()
	buffer := make([]byte, datagramMax)
	for {
		n, from, err := d.deps.Conn.ReadFrom(buffer)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		at, ok := local(from)
		if !ok || n == 0 || n > MaxDatagram {
			continue
		}
		s := d.sender(inner, handler, at, from)
		s.guest.take(s.ctx, bytes.Clone(buffer[:n]), false) //nolint:contextcheck // the sender's own, made of this one
	}
}

// local reads an address of this machine; false: it is none.
func local(from net.Addr) (netip.AddrPort, bool) {
	at, err := netip.ParseAddrPort(from.String())
	return at, err == nil && at.Addr().Unmap().IsLoopback()
}

// sender is the peer that sends from one address.
type sender struct {
	guest        *session
	conn         net.PacketConn
	to           net.Addr
	ctx          context.Context //nolint:containedctx // ends when it is forgotten
	end          context.CancelFunc
	acks         chan uint32
	lastReceived time.Time
}

func (d *Datagrams) sender(ctx context.Context, handler transport.Handler, at netip.AddrPort, from net.Addr) *sender {
	s, ok := d.senders[at]
	if !ok {
		d.forget()
		s = &sender{conn: d.deps.Conn, to: from, acks: make(chan uint32, maxUnacked)}
		s.ctx, s.end = context.WithCancel(d.l.anonymous(ctx, at.Addr().String()))
		s.guest = d.l.guest(handler, s, d.deps.Agent, d.all)
		s.guest.most = MaxDatagram
		d.senders[at] = s
	}
	s.lastReceived = time.Now()
	return s
}

// forget removes idle senders, or the one longest silent if there are too many.
func (d *Datagrams) forget() {
	var oldest netip.AddrPort
	for at, s := range d.senders {
		if time.Since(s.lastReceived) > d.l.deps.Config.Idle && s.guest.observers.none() {
			s.end()
			delete(d.senders, at)
		} else if old, ok := d.senders[oldest]; !ok || s.lastReceived.Before(old.lastReceived) {
			oldest = at
		}
	}
	if len(d.senders) >= maxSenders {
		d.senders[oldest].end()
		delete(d.senders, oldest)
	}
}

// write sends a frame. A TELL with quality of service 1 is sent again until it
// is acknowledged, three times at most; so no more is sent than is received.
func (s *sender) write(body []byte) error {
	f, err := form.ParseFrame(body)
	if err != nil {
		return err
	}
	if len(body) > MaxDatagram {
		return s.refuse(f)
	}
	if f.Verb != form.Tell || f.QoS == 0 || f.IsAck() {
		return s.post(body)
	}
	wait := firstWait
	for try := 0; ; try++ {
		if err := s.post(body); err != nil {
			return err
		}
		if s.heardOf(f.ID, wait) {
			return nil
		}
		if try == repeats || s.ctx.Err() != nil {
			return errUnacked
		}
		wait *= 2
	}
}

// heardOf waits for the acknowledgement of a frame.
func (s *sender) heardOf(id uint32, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		select {
		case acked := <-s.acks:
			if acked == id {
				return true
			}
		case <-timer.C:
			return false
		case <-s.ctx.Done():
			return false
		}
	}
}

// refuse says that the answer does not fit.
func (s *sender) refuse(f form.Frame) error {
	f.Code, f.Payload, f.QoS = tooLarge, []byte("the answer does not fit a datagram"), 0
	if f.Verb == form.Tell {
		f.Verb = form.Observe
	}
	f.Options = slices.DeleteFunc(slices.Clone(f.Options), func(o form.Option) bool {
		return o.Type != form.OptCorrelation && o.Type != form.OptConversation
	})
	if named, ok := f.Correlation(); ok {
		f.ID = named
	}
	out, err := f.Bytes()
	if err == nil {
		err = s.post(out)
	}
	return errors.Join(errTooLong, err)
}

func (s *sender) post(body []byte) error {
	_, err := s.conn.WriteTo(body, s.to)
	return err
}

func (s *sender) acked(id uint32) {
	select {
	case s.acks <- id:
	default: // no call waits for it
	}
}

// close gives nothing back: there is no connection.
func (s *sender) close() {}
