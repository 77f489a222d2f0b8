package coalesce_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/gateway/httpapi/coalesce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the writes of the connections that it accepts.
type counting struct {
	net.Listener
	writes *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	return countingConn{conn, c.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// waiting is a server that lets answers leave whole, and its count of writes.
func waiting(t *testing.T, handler http.HandlerFunc) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	writes := &atomic.Int64{}
	s := httptest.NewUnstartedServer(coalesce.Handler(handler))
	s.Listener = coalesce.Listen(counting{s.Listener, writes})
	s.Config.ConnContext = coalesce.Conn
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, writes
}

// plain is a client of HTTP/1.1.
func plain(t *testing.T, s *httptest.Server) *http.Client {
	t.Helper()
	transport, ok := s.Client().Transport.(*http.Transport)
	if !ok {
		t.Fatal("no transport")
	}
	one := transport.Clone()
	one.Protocols = new(http.Protocols)
	one.Protocols.SetHTTP1(true)
	one.TLSClientConfig.NextProtos = nil
	t.Cleanup(one.CloseIdleConnections)
	return &http.Client{Transport: one}
}

func fetch(t *testing.T, c *http.Client, url string, body io.Reader) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Expect", "100-continue")
	response, err := c.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return summary(response, got)
}

func summary(r *http.Response, body []byte) string {
	return r.Proto + " " + strconv.Itoa(len(r.Header.Get("Execution-Context"))) + " " + strconv.FormatInt(r.ContentLength, 10) + " " + strconv.Itoa(len(body))
}

// answering answers with so many bytes of evidence and body.
func answering(evidence, body int, reported bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Execution-Context", strings.Repeat("e", evidence))
		if reported {
			w.Header().Set("Content-Length", strconv.Itoa(body))
		}
		if body == 0 {
			w.WriteHeader(http.StatusOK)
		}
		_, _ = w.Write(bytes.Repeat([]byte("b"), body))
	}
}

func TestResponse_SentInOneWrite(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		want    string
		writes  int64 // at most, for one answer
	}{
		"small":              {answering(100, 100, true), "HTTP/1.1 100 100 100", 1},
		"with its evidence":  {answering(5000, 600, true), "HTTP/1.1 5000 600 600", 1},
		"large":              {answering(5000, 1<<20, true), "HTTP/1.1 5000 1048576 1048576", 1 << 20},
		"without a length":   {answering(100, 600, false), "HTTP/1.1 100 600 600", 1},
		"of no known length": {answering(5000, 1<<20, false), "HTTP/1.1 5000 -1 1048576", 1 << 20},
		"empty":              {answering(5000, 0, true), "HTTP/1.1 5000 0 0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, writes := waiting(t, c.handler)
			client := plain(t, s)
			for range 3 {
				before := writes.Load()
				if got := fetch(t, client, s.URL, http.NoBody); got != c.want {
					t.Errorf("got %s, want %s", got, c.want)
				}
				if n := writes.Load() - before; before > 0 && n > c.writes {
					t.Errorf("it took %d writes", n)
				}
			}
			if got := fetch(t, client, s.URL, strings.NewReader("asked with a body")); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got, want := fetch(t, s.Client(), s.URL, http.NoBody), strings.Replace(c.want, "HTTP/1.1", "HTTP/2.0", 1); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// A stream is not held back, and one that breaks off is not whole.
func TestStream_IsNotBuffered(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	s, _ := waiting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "12")
		for i, word := range []string{"first,", "second"} {
			_, _ = io.WriteString(w, word)
			if i == 0 {
				_ = http.NewResponseController(w).Flush()
				<-received
			}
		}
	})
	response, err := plain(t, s).Post(s.URL, "", nil) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	first := make([]byte, 6)
	if _, err := io.ReadFull(response.Body, first); err != nil || string(first) != "first," {
		t.Fatalf("%s, %v", first, err)
	}
	close(received)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "second" {
		t.Errorf("%s, %v", rest, err)
	}
}

func TestResponse_AbortedIsNotComplete(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "12")
		_, _ = io.WriteString(w, "half a")
		panic(http.ErrAbortHandler)
	})
	s.Config.ErrorLog = nil
	response, err := plain(t, s).Post(s.URL, "", nil) //nolint:noctx // a test
	if err == nil {
		_, err = io.ReadAll(response.Body)
		_ = response.Body.Close()
	}
	if err == nil {
		t.Error("half an answer passed for the whole")
	}
}

// Who takes the connection over has it as it is.
func TestHijack_ConnectionUnchanged(t *testing.T) {
	t.Parallel()
	s, _ := waiting(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "taken over")
		_ = conn.Close()
	})
	conn, err := tls.Dial("tcp", s.Listener.Addr().String(), &tls.Config{InsecureSkipVerify: true}) //nolint:gosec,noctx,nolintlint // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, _ = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
	if got, err := io.ReadAll(conn); err != nil || string(got) != "taken over" {
		t.Errorf("%q, %v", got, err)
	}
}

// What is more than a connection may hold back goes out before the answer is
// complete.
func TestResponse_BufferIsBounded(t *testing.T) {
	t.Parallel()
	received := make(chan struct{})
	s, _ := waiting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(64<<10))
		_, _ = w.Write(bytes.Repeat([]byte("b"), 48<<10))
		<-received
		_, _ = w.Write(bytes.Repeat([]byte("b"), 16<<10))
	})
	response, err := plain(t, s).Post(s.URL, "", nil) //nolint:noctx // a test
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	_, err = io.ReadFull(response.Body, make([]byte, 40<<10))
	close(received)
	if err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(response.Body); err != nil || len(rest) != 24<<10 {
		t.Errorf("%d bytes, %v", len(rest), err)
	}
}

// What comes before an answer is none, and is not held back.
func TestInformational_IsNotBuffered(t *testing.T) {
	t.Parallel()
	hinted := make(chan struct{})
	s, _ := waiting(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "2")
		w.WriteHeader(http.StatusEarlyHints)
		<-hinted
		_, _ = io.WriteString(w, "ok")
	})
	trace := &httptrace.ClientTrace{Got1xxResponse: func(int, textproto.MIMEHeader) error {
		close(hinted)
		return nil
	}}
	request, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := plain(t, s).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if body, err := io.ReadAll(response.Body); err != nil || string(body) != "ok" {
		t.Errorf("%s, %v", body, err)
	}
}
