package main

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport/uacp"
	form "github.com/aepb/aepb-gateway/translators/uacp"
)

// dialUACP opens a µACP connection to the tools' agent; from is the address to come
// from, nil: any. The TLS server name says the agent, so the certificate is judged
// for the address instead.
func dialUACP(ctx context.Context, address string, conf *tls.Config, from net.Addr) (*tls.Conn, error) {
	conf = conf.Clone()
	conf.MinVersion, conf.NextProtos = tls.VersionTLS13, []string{uacp.Protocol}
	conf.ServerName, conf.InsecureSkipVerify = toolAgent+".localhost", true // the name of an agent is in no certificate
	return dialTLS(ctx, address, conf, from)
}

func dialTLS(ctx context.Context, address string, conf *tls.Config, from net.Addr) (*tls.Conn, error) {
	dialer := tls.Dialer{NetDialer: &net.Dialer{LocalAddr: from}, Config: conf}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return conn.(*tls.Conn), nil
}

// exchangeFrame sends one frame and reads the next.
func exchangeFrame(conn net.Conn, body []byte) (form.Frame, error) {
	if _, err := conn.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...)); err != nil {
		return form.Frame{}, err
	}
	var head [2]byte
	if _, err := io.ReadFull(conn, head[:]); err != nil {
		return form.Frame{}, err
	}
	reply := make([]byte, binary.BigEndian.Uint16(head[:]))
	if _, err := io.ReadFull(conn, reply); err != nil {
		return form.Frame{}, err
	}
	return form.ParseFrame(reply)
}

// listenFor is how long the other side may take to end a connection that it does
// not want.
const listenFor = 250 * time.Millisecond

// stays reports whether a connection is still open when the other side has had the
// time to end it.
func stays(conn net.Conn) bool {
	if conn.SetReadDeadline(time.Now().Add(listenFor)) != nil {
		return false
	}
	_, err := conn.Read(make([]byte, 1))
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

// holder keeps connections open, the newest ones.
type holder struct {
	most int

	mu   sync.Mutex
	held []func()
}

// hold keeps one, whose end is release, and lets the oldest go if there are too many.
func (h *holder) hold(release func()) {
	h.mu.Lock()
	h.held = append(h.held, release)
	var oldest func()
	if len(h.held) > h.most {
		oldest, h.held = h.held[0], h.held[1:]
	}
	h.mu.Unlock()
	if oldest != nil {
		oldest()
	}
}

// release lets all go.
func (h *holder) release() {
	h.mu.Lock()
	held := h.held
	h.held = nil
	h.mu.Unlock()
	for _, release := range held {
		release()
	}
}

// client speaks HTTP/2, or HTTP/1.1 if old, from an address; nil: from any.
func client(conf *tls.Config, from net.Addr, old bool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{LocalAddr: from}).DialContext, TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: !old,
			MaxIdleConnsPerHost: mostWorkers,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
