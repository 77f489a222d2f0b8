package attacks

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/gateway/config"
	gatewaytest "github.com/aepb/aepb-gateway/test/harness/gateway"
)

// stays asks one thing on a new connection of a stranger and keeps the connection;
// false: it was not to be had.
func (a listenAttacker) stays(t *testing.T, at, path string) (net.Conn, bool) {
	t.Helper()
	conn, err := a.open(t, at)
	if err != nil {
		return nil, false
	}
	_, err = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
	return conn, err == nil && connStatus(conn, listenWait) != 0
}

// comesIn is a caller with a certificate that makes new connections, each for one call.
func comesIn(t *testing.T, b *gatewaytest.Fixture, from string, times int) {
	t.Helper()
	conf := listenAttackerFixture(t, b, "/victim", from).conf
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: listenWait}
	via := &http.Client{Timeout: listenWait, Transport: &http.Transport{TLSClientConfig: conf, DisableKeepAlives: true, DialContext: dialer.DialContext}}
	for i := range times {
		got, err := b.Try(t, toMembers(b, via))
		if err != nil || got.Status != http.StatusOK {
			t.Errorf("new connection %d of %d from %s: %d, %v", i+1, times, from, got.Status, err)
		}
	}
}

// TestAttack_StrangersThatAskHoldAllConnections: N1. Every new connection needed a place
// among those without an identity, and one that had asked something kept it for good:
// twelve addresses with one GET on each connection locked out every new connection.
// Now such connections compete with each other alone, the longest idle one of the address
// with most gives way, and an idle one ends after seconds.
func TestAttack_StrangersThatAskHoldAllConnections(t *testing.T) {
	t.Parallel()
	none := 0
	for name, perAddress := range map[string]*int{"with a limit for each address": nil, "behind a load balancer": &none} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Connections: 128, ConnectionsPerAddress: perAddress}}})
			for i := range 12 {
				stranger := listenAttackerFixture(t, b, "", "127.0.1."+strconv.Itoa(i+1))
				for range 12 {
					if _, ok := stranger.stays(t, b.At.Public, "/.well-known/aepb"); !ok {
						t.Error("a new stranger finds no place, where others are idle")
					}
					if _, ok := stranger.stays(t, b.At.Admin, "/readyz"); !ok {
						t.Error("a new stranger finds no place at the admin listener")
					}
				}
			}
			comesIn(t, b, "127.0.0.1", 10)
			comesIn(t, b, "127.0.1.1", 10) // also from an attacker's address
			if got := b.Send(t, b.Operator(http.MethodGet, "/readyz", "", nil)); got.Status != http.StatusOK {
				t.Errorf("readiness: %d", got.Status)
			}
			if open := b.Strangers(); open > 32 {
				t.Errorf("strangers hold %d connections, want at most a quarter of 128", open)
			}
			if !gatewaytest.SoonIn(t.Context(), 2*listenWait, func() bool { return b.Strangers() == 0 }) {
				t.Error("idle connections of strangers stay open")
			}
		})
	}
}

// TestAttack_RefusedConnectionsEndHandshakes: N5. A connection that was refused ended the
// oldest handshake of others before. Floods of silent connections, from addresses that
// hold many already, end only their own.
func TestAttack_RefusedConnectionsEndHandshakes(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Connections: 128}}})
	host := strings.TrimPrefix(b.At.Public, "https://")
	var ordinary net.Dialer
	victim, err := ordinary.DialContext(t.Context(), "tcp", host)
	gatewaytest.Must(t, err)
	defer func() { _ = victim.Close() }()
	for i := range 400 {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(fmt.Sprintf("127.0.2.%d", i%20+1))}, Timeout: listenWait}
		flood, err := dialer.DialContext(t.Context(), "tcp", host)
		gatewaytest.Must(t, err)
		t.Cleanup(func() { _ = flood.Close() })
	}
	conf := listenAttackerFixture(t, b, "/victim", "127.0.0.1").conf
	if err := tls.Client(victim, conf).HandshakeContext(t.Context()); err != nil {
		t.Errorf("a slow handshake, during a flood from twenty other addresses: %v", err)
	}
	comesIn(t, b, "127.0.0.1", 5)
}

// TestAttack_MetricsListenerIsHeldShut: N6. Eleven addresses that kept their connections
// open took all places of listen.metrics, and a failing liveness probe restarts the pod.
// Now a connection there has one request.
func TestAttack_MetricsListenerIsHeldShut(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{})
	host := strings.TrimPrefix(b.At.Metrics, "http://")
	for i := range 12 {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP("127.0.3." + strconv.Itoa(i+1))}, Timeout: listenWait}
		for j := range 16 {
			conn, err := dialer.DialContext(t.Context(), "tcp", host)
			gatewaytest.Must(t, err)
			t.Cleanup(func() { _ = conn.Close() })
			if j%2 == 0 { // the others are silent
				_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
				if got := connStatus(conn, listenWait); got != http.StatusOK || !connEnded(conn, time.Second) {
					t.Errorf("a probe: %d, or its connection stays open", got)
				}
			}
		}
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		if status, _ := b.Monitor(t, path, ""); status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
	}
	if _, text := b.Monitor(t, "/metrics", ""); !strings.Contains(text, `aepb_connections{kind="identified"}`) {
		t.Error("no metric tells how many connections are open")
	}
}

// TestLimits_OneIdentityIsAWholeDeployment: 300 processes of one SPIFFE id, each with
// streams of its own and a connection for each, meet no default, and plain calls of the
// same deployment go on when it has as many streams as it may.
func TestLimits_OneIdentityIsAWholeDeployment(t *testing.T) {
	t.Parallel()
	b := gatewaytest.NewFixture(t, gatewaytest.Plan{Serve: true, Config: config.Config{Limits: config.Limits{Rate: 1e5, Burst: 1e5, Streams: 40, Requests: 40}}})
	endlessAgent(t, b)
	agent, ok := b.Directory().Find("slow")
	if !ok {
		t.Fatal("no agent")
	}
	agent.Rules.Open, agent.Timeout = true, time.Minute
	gatewaytest.Must(t, b.Directory().Put(agent))
	conf := b.ClientTLS(t, b.SVID(t, "/deployment"))
	conf.NextProtos = []string{"http/1.1"}
	via := b.Dialing(t, conf)
	codes := map[int]int{}
	for range 14 {
		response, err := via.Do(b.Request(t, forever(via)))
		gatewaytest.Must(t, err)
		t.Cleanup(func() { _ = response.Body.Close() })
		codes[response.StatusCode]++
	}
	if codes[http.StatusOK] != 10 || codes[http.StatusTooManyRequests] != 4 {
		t.Errorf("14 streams where a caller may have 10: %v", codes)
	}
	for range 20 {
		b.Right(t, b.Send(t, toMembers(b, via)), `"sum":`)
	}
	large := config.Config{Limits: config.Limits{MemoryMiB: 8192}} // what a gateway of such a deployment is given
	bounds, accepts := large.InFlight(), large.Accept(false)
	const pods = 300
	if bounds.StreamsPerCaller < 3*pods || bounds.RequestsPerCaller < 3*pods || accepts.PerIdentity < 6*pods {
		t.Errorf("%d processes of one identity meet a bound: %+v, %+v", pods, bounds, accepts)
	}
}
