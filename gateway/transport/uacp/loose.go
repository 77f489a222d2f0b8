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

// datagramConn is an agent at the other end of datagrams, for development: each frame is
// one, none is ever cut into several, and any may be lost. So the request, if it
// has quality of service 1, is said again after 2, 4 and 8 s, until something of
// the agent's follows it. An agent that does not know it again then does twice
// what it asks: at least once is all that this quality promises.
type datagramConn struct {
	conn    net.Conn
	begun   bool
	request form.Frame
	list    []byte    // the request, for as long as it is said again; nil: it need not be
	times   int       // that it was
	next    time.Time // when it is

	mu  sync.Mutex
	end bool
}

// write sends a frame. The first is the request.
func (l *datagramConn) write(body []byte) error {
	f, err := form.ParseFrame(body)
	if err != nil {
		return err
	}
	if len(body) > MaxDatagram {
		return &translators.TooLongError{Reason: "the message does not fit a µACP datagram of 16384 bytes"}
	}
	if !l.begun {
		if l.begun, l.request = true, f; f.QoS > 0 {
			l.list, l.next = body, time.Now().Add(firstWait)
		}
	}
	_, err = l.conn.Write(body)
	return err
}

// read waits for a frame, and says the request again meanwhile.
func (l *datagramConn) read() ([]byte, error) {
	buffer := make([]byte, datagramMax)
	for {
		if err := l.arm(); err != nil {
			return nil, err
		}
		n, err := l.conn.Read(buffer)
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
			f, err := form.ParseFrame(buffer[:n])
			if err != nil || !f.Follows(l.request) {
				return buffer[:n], nil //nolint:nilerr // what is wrong with it, the codec says
			}
			if l.list = nil; !l.acknowledges(f) {
				return buffer[:n], nil
			}
		}
	}
}

// acknowledges reports whether a frame only confirms that an ASK or OBSERVE arrived; the
// answer comes later. A TELL has no other answer.
func (l *datagramConn) acknowledges(f form.Frame) bool {
	return f.IsAck() && f.Code == form.Ack(f).Code && len(f.Payload) == 0 && l.request.Verb != form.Tell
}

// repeat says the request again, as often as it may be said.
func (l *datagramConn) repeat() error {
	if l.list == nil {
		return os.ErrDeadlineExceeded // it was interrupted
	}
	body := l.list
	l.times++
	if l.next = l.next.Add(firstWait << l.times); l.times == repeats {
		l.list = nil
	}
	_, err := l.conn.Write(body)
	return err
}

// arm says until when to wait.
func (l *datagramConn) arm() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.end {
		return os.ErrDeadlineExceeded
	}
	until := time.Time{}
	if l.list != nil {
		until = l.next
	}
	return l.conn.SetReadDeadline(until)
}

// interrupt ends what waits, and everything after it.
func (l *datagramConn) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.end = true
	_ = l.conn.SetDeadline(time.Unix(1, 0))
}

func (l *datagramConn) close() { _ = l.conn.Close() }
