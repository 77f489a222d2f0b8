package crowd

import (
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestSurface_StrangersStayAndComeAgain: each comes once at the first pace; one whose
// connection is ended opens the next at the second.
func TestSurface_StrangersStayAndComeAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 99*time.Millisecond)
		defer cancel()
		s := &surface{size: 8, came: make(chan struct{}), come: time.Millisecond, stay: 10 * time.Millisecond, connect: func(_ context.Context, n int) (net.Conn, error) {
			if n == 7 {
				return nil, errors.New("refused")
			}
			here, there := net.Pipe()
			if n < 2 {
				time.AfterFunc(5*time.Millisecond, func() { _ = there.Close() })
			}
			context.AfterFunc(ctx, func() { _ = there.Close() })
			return here, nil
		}}
		s.run(ctx)
		<-s.came
		got := s.tally
		if got.Tried < 16 || got.Tried > 18 { // 8, and one in every 10 ms of the other 92
			t.Errorf("%d tried, want about 17", got.Tried)
		}
		if got.CameIn < 7 || got.Ended != got.CameIn-5 && got.Ended != got.CameIn-6 || got.MostHeld > 7 || got.MostHeld < 5 {
			t.Errorf("%+v, want that five stay, two come again and one is refused", got)
		}
	})
}

// TestVisit_AsksAndStays: an answer other than 200 is no coming in, and a connection on
// which nothing is asked is.
func TestVisit_AsksAndStays(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/good" {
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	for path, want := range map[string]bool{"/good": true, "/bad": false, "": true} {
		conn, err := visit(t.Context(), Order{Addresses: 12}.dialer(1, strangers).DialContext, server.Listener.Addr().String(), path)
		if (err == nil) != want {
			t.Errorf("%q: %v", path, err)
			continue
		}
		if err != nil {
			continue
		}
		if at := conn.LocalAddr().String(); !strings.HasPrefix(at, "127.0.8.2:") {
			t.Errorf("%q comes from %s", path, at)
		}
		_ = conn.Close()
	}
}

// TestDialer_FewAddressesAreFull: three of twelve have three quarters of the strangers.
func TestDialer_FewAddressesAreFull(t *testing.T) {
	t.Parallel()
	for addresses, want := range map[int]map[int]int{1: {4096: 1}, 12: {1024: 3, 113: 2, 114: 7}} {
		from, sizes := map[string]int{}, map[int]int{}
		for n := range strangers {
			from[Order{Addresses: addresses}.dialer(n, strangers).LocalAddr.String()]++
		}
		for _, size := range from {
			sizes[size]++
		}
		if !maps.Equal(sizes, want) {
			t.Errorf("%d addresses have %v, want %v", addresses, sizes, want)
		}
	}
}

func TestEnoughFiles_Limits(t *testing.T) {
	t.Parallel()
	for most, want := range map[uint64]bool{1024: false, strangers: false, 2 * strangers: true} {
		if err := enoughFiles(most); (err == nil) != want {
			t.Errorf("%d: %v", most, err)
		}
	}
}

// TestVisits_EachIsANewConnection: from one address for each visitor, the callers' with a
// certificate, and an answer other than 200 is lost.
func TestVisits_EachIsANewConnection(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	seen, opened := map[string]int{}, map[string]bool{}
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		mu.Lock()
		defer mu.Unlock()
		seen[r.URL.Path+" "+host]++
		if opened[r.RemoteAddr] {
			t.Errorf("%s asks twice on one connection", r.URL.Path)
		}
		opened[r.RemoteAddr] = true
		if known := r.TLS != nil && len(r.TLS.PeerCertificates) > 0; known != (r.URL.Path == "/call") {
			t.Errorf("%s comes with a certificate: %t", r.URL.Path, known)
		}
		if r.URL.Path == "/metrics" {
			http.Error(w, "no", http.StatusServiceUnavailable)
		}
	})
	admin, metrics := httptest.NewUnstartedServer(handler), httptest.NewServer(handler)
	admin.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS13}
	admin.StartTLS()
	defer admin.Close()
	defer metrics.Close()
	conf := admin.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	conf.Certificates = admin.TLS.Certificates
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	visits := Visits(ctx, Deps{TLS: conf, Public: admin.URL, Admin: admin.URL, Metrics: metrics.URL, Call: func(ctx context.Context, via *http.Client) error {
		return get(ctx, via, admin.URL+"/call")
	}})
	for _, v := range visits {
		if (v.Lost != nil) != (v.Name == visitMetrics) {
			t.Errorf("%s: %v", v.Name, v.Lost)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"/call 127.0.7.1", "/call 127.0.8.1", "/.well-known/aepb 127.0.7.5", "/readyz 127.0.7.2", "/readyz 127.0.7.3", "/metrics 127.0.7.4"} {
		if seen[want] == 0 {
			t.Errorf("no %s in %v", want, seen)
		}
	}
}
