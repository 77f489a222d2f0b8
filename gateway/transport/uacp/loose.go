package uacp

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// loose is an agent at the other end of datagrams, for development: each frame is
// one, none is ever cut into several, and any may be lost. So the request, if it
// has quality of service 1, is said again after 2, 4 and 8 s, until something of
// the agent's follows it. An agent that does not know it again then does twice
// what it asks: at least once is all that this quality promises.
type loose struct {
	conn    net.Conn
	begun   bool
	request form.Frame
	said    []byte    // the request, for as long as it is said again; nil: it need not be
	times   int       // that it was
	next    time.Time // when it is

	mu  sync.Mutex
	end bool
}

// write sends a frame. The first is the request.
func (l *loose) write(body []byte) error {
	f, err := form.ParseFrame(body)
	if err != nil {
		return err
	}
	if len(body) > MaxDatagram {
		return &translators.TooLongError{Reason: "the message does not fit a µACP datagram of 16384 octets"}
	}
	if !l.begun {
		if l.begun, l.request = true, f; f.QoS > 0 {
			l.said, l.next = body, time.Now().Add(firstWait)
		}
	}
	_, err = l.conn.Write(body)
	return err
}

// read waits for a frame, and says the request again meanwhile.
func (l *loose) read() ([]byte, error) {
	room := make([]byte, datagramMax)
	for {
		if err := l.arm(); err != nil {
			return nil, err
		}
		n, err := l.conn.Read(room)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := l.repeat(); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case n > MaxDatagram:
			return nil, errTooLong
		case n > 0:
			f, err := form.ParseFrame(room[:n])
			if err != nil || !f.Follows(l.request) {
				return room[:n], nil //nolint:nilerr // what is wrong with it, the codec says
			}
			if l.said = nil; !l.acknowledges(f) {
				return room[:n], nil
			}
		}
	}
}

// acknowledges: a frame says of an ASK or OBSERVE that it has come, and answers
// it later. To a TELL that is all that anybody says.
func (l *loose) acknowledges(f form.Frame) bool {
	return f.IsAck() && f.Code == form.Ack(f).Code && len(f.Payload) == 0 && l.request.Verb != form.Tell
}

// repeat says the request again, as often as it may be said.
func (l *loose) repeat() error {
	if l.said == nil {
		return os.ErrDeadlineExceeded // it was interrupted
	}
	body := l.said
	l.times++
	if l.next = l.next.Add(firstWait << l.times); l.times == repeats {
		l.said = nil
	}
	_, err := l.conn.Write(body)
	return err
}

// arm says until when to wait.
func (l *loose) arm() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end {
		return os.ErrDeadlineExceeded
	}
	until := time.Time{}
	if l.said != nil {
		until = l.next
	}
	return l.conn.SetReadDeadline(until)
}

// interrupt ends what waits, and everything after it.
func (l *loose) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = true
	_ = l.conn.SetDeadline(time.Unix(1, 0))
}

func (l *loose) close() { _ = l.conn.Close() }
