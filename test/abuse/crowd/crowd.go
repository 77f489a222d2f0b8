package crowd

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// Where the strangers are.
const (
	surfacePublic  = "public"
	surfaceMetrics = "metrics"
)

// publicPath may be asked for without an identity, as often as one likes.
const publicPath = "/.well-known/aepb"

const (
	strangers        = 4096
	metricsStrangers = 512                    // eight for each place
	comePace         = 800 * time.Microsecond // until each stranger has come once
	stayPace         = 2 * time.Millisecond   // afterwards: in the 5 s that an idle one has, more than there are places
	metricsPace      = 5 * time.Millisecond
	atOnce           = 64               // come at once: what a busy machine cannot take is not wasted on it
	askTime          = 10 * time.Second // to come in and be answered
	spareFiles       = 256              // beside the connections
)

// Stretch is how many times its length a round lasts at most. It is over when its length
// is, and half of that has passed since the last stranger came: on a busy machine they
// take longer to come.
const Stretch = 4

// Order is what the strangers are told.
type Order struct {
	Seconds   float64 `json:"seconds"`   // the length of the round
	Addresses int     `json:"addresses"` // from which they come
	Public    string  `json:"public"`    // host:port
	Metrics   string  `json:"metrics"`
	Roots     []byte  `json:"roots"` // PEM
}

// Counts are what came of the strangers' connections, by surface.
type Counts map[string]Tally

// Tally is what came of the connections to one surface.
type Tally struct {
	Tried    int `json:"tried"`
	CameIn   int `json:"came_in"`   // and were answered, if they asked
	Ended    int `json:"ended"`     // by the gateway, after they came in
	MostHeld int `json:"most_held"` // at once
}

// Address is one from which strangers come; n is at least 0.
func Address(n int) net.IP { return net.IPv4(127, 0, 8, byte(1+n)) }

// Attack reads an order, does it, and writes the counts.
func Attack(ctx context.Context, in io.Reader, out io.Writer) error {
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(o.Roots) {
		return errors.New("crowd: the order has no roots, want them as PEM")
	}
	files, err := openFiles()
	if err = errors.Join(err, enoughFiles(files)); err != nil {
		return err
	}
	length := time.Duration(o.Seconds * float64(time.Second))
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, Stretch*length)
	defer cancel()
	conf := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13}
	public := &surface{size: strangers, came: make(chan struct{}), come: comePace, stay: stayPace, connect: func(ctx context.Context, n int) (net.Conn, error) {
		dialer := tls.Dialer{NetDialer: o.dialer(n, strangers), Config: conf}
		return visit(ctx, dialer.DialContext, o.Public, publicPath)
	}}
	metrics := &surface{size: metricsStrangers, came: make(chan struct{}), come: metricsPace, stay: metricsPace, connect: func(ctx context.Context, n int) (net.Conn, error) {
		path := "" // says nothing
		if n%2 == 0 {
			path = "/healthz"
		}
		return visit(ctx, o.dialer(n, metricsStrangers).DialContext, o.Metrics, path)
	}}
	var group sync.WaitGroup
	group.Go(func() { public.run(ctx) })
	group.Go(func() { metrics.run(ctx) })
	select {
	case <-public.came:
		wait.Pause(ctx, max(length/2, time.Until(began.Add(length))))
		cancel()
	case <-ctx.Done():
	}
	group.Wait()
	return json.NewEncoder(out).Encode(Counts{surfacePublic: public.tally, surfaceMetrics: metrics.tally})
}

// openFiles is how many files this process may have open. It is the hard limit: a Go
// program raises its own to that when it starts.
func openFiles() (uint64, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return limit.Cur, err
}

// enoughFiles refuses to begin with fewer connections than are meant.
func enoughFiles(most uint64) error {
	if want := uint64(strangers + metricsStrangers + spareFiles); most < want {
		return fmt.Errorf("crowd: a process may have %d files open, want %d: raise the hard limit (ulimit -Hn)", most, want)
	}
	return nil
}

// dialer dials as the n-th of so many strangers. Three quarters come first, from a
// quarter of the addresses, which so take all places that they may; then come the others
// for the places that are kept for addresses with few.
func (o Order) dialer(n, all int) *net.Dialer {
	i, busy := 0, o.Addresses/4
	switch {
	case busy > 0 && n < all-all/4:
		i = n % busy
	case busy > 0:
		i = busy + n%(o.Addresses-busy)
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: Address(i)}}
}

// visit opens a connection and asks for a path on it, unless that is empty. An answer
// other than 200 is an error.
func visit(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error), address, path string) (net.Conn, error) {
	conn, err := dial(ctx, "tcp", address)
	if err != nil || path == "" {
		return conn, err
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := ask(conn, path); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func ask(conn net.Conn, path string) error {
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("crowd: %s is answered with %s, want 200", path, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// surface is a listener that strangers fill.
type surface struct {
	size       int
	come, stay time.Duration // between one connection and the next, the first time and afterwards
	came       chan struct{} // closed when each stranger has come
	connect    func(ctx context.Context, n int) (net.Conn, error)

	mu    sync.Mutex
	tally Tally
	held  int
}

// run has every stranger come in turn and stay until ctx ends. One whose connection has
// ended waits to open the next.
func (s *surface) run(ctx context.Context) {
	coming, again := make(chan struct{}, atOnce), make(chan struct{})
	var group sync.WaitGroup
	defer group.Wait()
	next := time.Now()
	for n := 0; wait.Pause(ctx, time.Until(next)); n++ {
		select {
		case coming <- struct{}{}:
		case <-ctx.Done():
			return
		}
		if n < s.size {
			group.Go(func() { s.stranger(ctx, n, coming, again) })
			next = next.Add(s.come)
			continue
		}
		if n == s.size {
			close(s.came)
		}
		select {
		case again <- struct{}{}:
		case <-ctx.Done():
		}
		if next = next.Add(s.stay); time.Since(next) > time.Second { // what is long overdue would come all at once
			next = time.Now()
		}
	}
}

// stranger opens one connection after the other, each but the first when it may.
func (s *surface) stranger(ctx context.Context, n int, coming, again <-chan struct{}) {
	for {
		limited, cancel := context.WithTimeout(ctx, askTime)
		conn, err := s.connect(limited, n)
		cancel()
		<-coming
		if err == nil {
			s.keep(ctx, conn)
		} else {
			s.count(ctx, func(t *Tally) { t.Tried++ })
		}
		select {
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// keep stays until the other side ends the connection.
func (s *surface) keep(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	s.mu.Lock()
	s.tally.Tried++
	s.tally.CameIn++
	s.held++
	s.tally.MostHeld = max(s.tally.MostHeld, s.held)
	s.mu.Unlock()
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })()
	_, _ = io.Copy(io.Discard, conn)
	s.count(ctx, func(t *Tally) { t.Ended++ })
	s.mu.Lock()
	s.held--
	s.mu.Unlock()
}

// count changes the tally, unless the time is up: what is broken off then says nothing.
func (s *surface) count(ctx context.Context, change func(*Tally)) {
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.tally)
}
