package egress

import (
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// counting shows tokens with a number, a new one after each refusal.
type counting struct {
	n       atomic.Int64
	most    int64 // that there are
	failure error
	shown   *tls.Certificate
}

func (c *counting) For(*http.Request) (Credential, error) {
	if c.shown != nil {
		return Credential{Certificate: c.shown, CertificateID: "other"}, nil
	}
	if n := c.n.Load(); n > 0 && c.failure != nil {
		return Credential{}, c.failure
	}
	return Credential{Field: "authorization", Value: "Bearer " + strconv.FormatInt(c.n.Load(), 10)}, nil
}

func (c *counting) Refused(_ *http.Request, shown Credential) bool {
	n := c.n.Load()
	return n < c.most && shown.Value == "Bearer "+strconv.FormatInt(n, 10) && c.n.CompareAndSwap(n, n+1)
}

func (w *world) showing(t *testing.T, c Credentials) *Guard {
	t.Helper()
	g, err := New(Deps{TLS: w.source, Config: Config{AllowPrivate: []string{"127.0.0.1"}}, Credentials: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.CloseIdle)
	return g
}

// takes is a server that admits one token and repeats the body of the request.
func takes(token string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = io.Copy(w, r.Body)
	}
}

func post(t *testing.T, at string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, at, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer of-the-caller")
	return r
}

func TestCredentials_AfterRefusalOnceMore(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		admits   string
		most     int64
		body     io.Reader
		status   int
		requests int64
	}{
		"at once":              {"0", 9, strings.NewReader("work"), 200, 1},
		"with a newer one":     {"1", 9, strings.NewReader("work"), 200, 2},
		"a large body":         {"1", 9, strings.NewReader(strings.Repeat("x", 100<<10)), 200, 2},
		"no third time":        {"2", 9, strings.NewReader("work"), 401, 2},
		"nothing newer":        {"1", 0, strings.NewReader("work"), 401, 1},
		"a body that is a one": {"1", 9, io.MultiReader(strings.NewReader("work")), 401, 1},
		"no body":              {"1", 9, http.NoBody, 200, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, takes(tc.admits))
			g := w.showing(t, &counting{most: tc.most})
			response, err := g.DoAs(post(t, w.server.URL, tc.body), agentID)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(response.Body)
			if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != tc.status || w.requests.Load() != tc.requests {
				t.Errorf("%d after %d requests: %v", response.StatusCode, w.requests.Load(), err)
			}
			if tc.status == 200 && tc.body != http.NoBody && len(got) == 0 {
				t.Error("the body is not that of the request")
			}
		})
	}
}

// TestCredentials_RefusedOverGRPC: UNAUTHENTICATED without a message is gRPC's 401.
func TestCredentials_RefusedOverGRPC(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.Header().Set("Content-Type", "application/grpc")
		rw.Header().Set("Grpc-Status", "0")
		if r.Header.Get("Authorization") != "Bearer 1" {
			rw.Header().Set("Grpc-Status", "16")
		}
	})
	response, err := w.showing(t, &counting{most: 9}).DoAs(post(t, w.server.URL, strings.NewReader("work")), agentID)
	if err != nil || response.Header.Get("Grpc-Status") != "0" || w.requests.Load() != 2 {
		t.Fatalf("%d requests: %v", w.requests.Load(), err)
	}
	_ = response.Body.Close()
}

// TestCredentials_NoneToBeHad: nothing is sent, and the error is that of the credentials.
func TestCredentials_NoneToBeHad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, takes("1"))
	c := &counting{most: 9, failure: errors.New("no token")}
	g := w.showing(t, c)
	if response, err := g.DoAs(post(t, w.server.URL, strings.NewReader("x")), agentID); !errors.Is(err, c.failure) {
		t.Errorf("%v %v", response, err)
	}
	before := w.requests.Load()
	if _, err := g.DoAs(post(t, w.server.URL, strings.NewReader("x")), agentID); !errors.Is(err, c.failure) || w.requests.Load() != before {
		t.Errorf("%v", err)
	}
}

// TestCredentials_EndMidStream: a stream goes on when the token with which it began is refused elsewhere.
func TestCredentials_EndMidStream(t *testing.T) {
	t.Parallel()
	goOn := make(chan struct{})
	var valid atomic.Value
	valid.Store("0")
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+valid.Load().(string) { //nolint:forcetypeassert // always text
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/stream" {
			_, _ = io.WriteString(rw, "begin ")
			_ = http.NewResponseController(rw).Flush()
			<-goOn
			_, _ = io.WriteString(rw, "end")
		}
	})
	g := w.showing(t, &counting{most: 9})
	stream, err := g.DoAs(get(t, w.server.URL+"/stream"), agentID)
	if err != nil {
		t.Fatal(err)
	}
	valid.Store("1")
	other, err := g.DoAs(post(t, w.server.URL, strings.NewReader("x")), agentID)
	if err != nil || other.StatusCode != http.StatusOK {
		t.Errorf("%v", err)
	}
	_ = other.Body.Close()
	close(goOn)
	text, err := io.ReadAll(stream.Body)
	if err = errors.Join(err, stream.Body.Close()); err != nil || string(text) != "begin end" {
		t.Errorf("%q %v", text, err)
	}
}

// TestCredentials_CertificateOfItsOwn: connections that show another certificate are not those of others.
func TestCredentials_CertificateOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, r.TLS.PeerCertificates[0].URIs[0].Path)
	})
	other, err := w.party(t, "/other").ClientConfig("").GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{}
	g := w.showing(t, c)
	for _, want := range []string{"/gateway", "/other", "/gateway", "/other"} {
		if c.shown = nil; want == "/other" {
			c.shown = other
		}
		response, err := g.DoAs(get(t, w.server.URL), agentID)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		if err = errors.Join(err, response.Body.Close()); err != nil || string(text) != want {
			t.Errorf("shown %q, want %q: %v", text, want, err)
		}
	}
}

func TestGuard_PlainWhereTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	g, err := New(Deps{TLS: w.source, Config: Config{AllowPrivate: []string{"127.0.0.1", "10.0.0.0/8"}}, Plain: func(at string) bool {
		return at == "127.0.0.1:1" || at == "10.0.0.1:80" || at == "agent.test:80"
	}})
	if err != nil {
		t.Fatal(err)
	}
	for at, denied := range map[string]bool{"http://127.0.0.1:1/": false, "http://127.0.0.1:2/": true, "http://10.0.0.1/": true, "http://agent.test/": true} {
		_, err := g.DoAs(get(t, at), "")
		if err == nil || errors.As(err, new(*DeniedError)) != denied {
			t.Errorf("%s: %v", at, err)
		}
	}
}
