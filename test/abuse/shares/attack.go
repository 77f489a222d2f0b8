package shares

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// Identity is one attacker.
type Identity struct {
	Certificate []byte `json:"certificate"` // PEM
	Key         []byte `json:"key"`
}

// IdentityOf is what an attacker is told of its certificate.
func IdentityOf(svid tls.Certificate) (Identity, error) {
	key, err := x509.MarshalPKCS8PrivateKey(svid.PrivateKey)
	return Identity{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: svid.Certificate[0]}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
	}, err
}

// Order is what the attackers are told.
type Order struct {
	Seconds    float64             `json:"seconds"`
	Public     []string            `json:"public"` // host:port of each gateway
	Gateway    string              `json:"gateway"`
	Tool       string              `json:"tool"`   // an MCP agent that all may call, behind [Agent]
	Worker     string              `json:"worker"` // an A2A agent, likewise
	Skill      string              `json:"skill"`  // of both
	Roots      []byte              `json:"roots"`  // PEM
	Identities map[string]Identity `json:"identities"`
}

// Counts are the tries by attack and by what came of them: the status, or why there was none.
type Counts map[string]map[string]int

// attacker is one identity that attacks.
type attacker struct {
	order  Order
	name   string
	modern []*http.Client // HTTP/2 to each gateway
	old    *http.Client   // HTTP/1.1
	minter *devgateway.Minter
	count  func(what string)
}

// Attack reads an order, does it, and writes the counts.
func Attack(ctx context.Context, in io.Reader, out io.Writer) error {
	var o Order
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(o.Seconds*float64(time.Second)))
	defer cancel()
	counts, mu := Counts{}, sync.Mutex{}
	var all []func()
	for i, h := range hostile() {
		identity, ok := o.Identities[h.name]
		if !ok {
			continue
		}
		a, err := newAttacker(o, h.name, identity, Address(i))
		if err != nil {
			return err
		}
		a.count = func(what string) {
			mu.Lock()
			defer mu.Unlock()
			if counts[h.name] == nil {
				counts[h.name] = map[string]int{}
			}
			counts[h.name][what]++
		}
		all = append(all, func() { h.attack(ctx, a) })
		defer a.close()
	}
	var group sync.WaitGroup
	for _, attack := range all {
		group.Go(attack)
	}
	group.Wait()
	return json.NewEncoder(out).Encode(counts)
}

// Address is that of the n-th identity: connections that are not made yet count by address.
func Address(n int) net.IP { return net.IPv4(127, 0, 16, byte(1+n)) }

func newAttacker(o Order, name string, identity Identity, from net.IP) (*attacker, error) {
	pair, err := tls.X509KeyPair(identity.Certificate, identity.Key)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(o.Roots) {
		return nil, errors.New("shares: the order has no roots, want them as PEM")
	}
	conf := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}
	client := func(modern bool) *http.Client {
		return &http.Client{Transport: &http.Transport{
			DialContext: dialFrom(from), TLSClientConfig: conf.Clone(), ForceAttemptHTTP2: modern, MaxIdleConnsPerHost: streams,
		}}
	}
	a := &attacker{order: o, name: name, old: client(false)}
	for range o.Public {
		a.modern = append(a.modern, client(true))
	}
	a.minter, err = devgateway.NewMinterOf(pair, o.Gateway)
	return a, err
}

// dialFrom dials from an address, with little space for what is not read.
func dialFrom(from net.IP) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: from}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return conn, conn.(*net.TCPConn).SetReadBuffer(unreadBytes)
	}
}

const unreadBytes = 32 << 10

func (a *attacker) close() {
	for _, c := range append(a.modern, a.old) {
		c.CloseIdleConnections()
	}
}

// request is one request.
type request struct {
	path   string
	body   io.Reader
	length int64 // of the body; 0: as net/http sees it
	tokens []string
	old    bool // over HTTP/1.1
	handle func(body io.Reader)
}

// send makes the n-th request and counts what came of it. It returns how long the gateway
// asks to wait; zero: it does not.
func (a *attacker) send(ctx context.Context, n int, l request) (retry time.Duration) {
	what := "no request"
	defer func() {
		if ctx.Err() != nil {
			what = "held until the end"
		}
		a.count(what)
	}()
	i := n % len(a.order.Public)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+a.order.Public[i]+l.path, l.body)
	if err != nil {
		return 0
	}
	req.Header = http.Header{"Content-Type": {"application/json"}, "A2a-Version": {"1.0"}, "Execution-Context": l.tokens}
	if l.length > 0 {
		req.ContentLength = l.length
	}
	via := a.modern[i]
	if l.old {
		via = a.old
	}
	resp, err := via.Do(req)
	if err != nil {
		what = why(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	what = strconv.Itoa(resp.StatusCode)
	if l.handle != nil && resp.StatusCode == http.StatusOK {
		l.handle(resp.Body)
	} else if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		what = fmt.Sprintf("%d, broken", resp.StatusCode)
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	return time.Duration(seconds) * time.Second
}

// why is the reason for which there was no answer.
func why(err error) string {
	switch text := err.Error(); {
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection ended"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case strings.Contains(text, "stream error"):
		return "stream reset"
	default:
		return "no answer"
	}
}

// together has so many do something again and again until ctx ends, each with its own number and with a pause
// between two times. They begin one after the other: connections that are not made yet have a bound.
func together(ctx context.Context, size int, pause time.Duration, do func(ctx context.Context, n int)) {
	var group sync.WaitGroup
	for n := range size {
		group.Go(func() {
			for more := wait.Pause(ctx, time.Duration(n)*beginEvery); more; more = wait.Pause(ctx, pause) {
				do(ctx, n)
			}
		})
	}
	group.Wait()
}

const beginEvery = 15 * time.Millisecond

// paced does something so often in a second, by as many at once as keep up.
func paced(ctx context.Context, perSecond int, do func(ctx context.Context, n int)) {
	const atOnce = 32
	start, places := time.Now(), make(chan struct{}, atOnce)
	var group sync.WaitGroup
	defer group.Wait()
	for n := 0; wait.Pause(ctx, time.Until(start.Add(time.Duration(n)*time.Second/time.Duration(perSecond)))); n++ {
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		group.Go(func() {
			defer func() { <-places }()
			do(ctx, n)
		})
	}
}
