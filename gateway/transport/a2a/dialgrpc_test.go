package a2a

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/a2a/frame"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// framed puts gRPC's frame before a message.
func framed(body string) string {
	var head [frameHead]byte
	binary.BigEndian.PutUint32(head[1:], uint32(len(body)))
	return string(head[:]) + body
}

// speaks is a server of HTTP/2 that answers with these bytes and this trailer.
func speaks(t *testing.T, h http.HandlerFunc) (*Dialer, transport.Endpoint) {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	d := newDialer(t, &wireTo{through: server.Client().Transport})
	return d, transport.Endpoint{Agent: "bob", URL: server.URL, Form: form.FormGRPC, Version: form.Version, Timeout: time.Minute}
}

func answers(body string, trailer ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Execution-Context", "a.b.c")
		_, _ = io.WriteString(w, body)
		w.(http.Flusher).Flush()
		for i := 0; i < len(trailer); i += 2 {
			w.Header().Add(http.TrailerPrefix+trailer[i], trailer[i+1])
		}
	}
}

func overGRPC(t *testing.T, method, body string) transport.Sealed {
	t.Helper()
	return sealWire(t, translators.Wire{Binding: form.Binding, Version: form.Version, Form: form.FormGRPC, Path: form.ServiceGRPC + method, Body: []byte(body), Header: http.Header{}})
}

func TestDialGRPC_UnaryCall(t *testing.T) {
	t.Parallel()
	const task = "\x0a\x03\x0a\x01x" // SendMessageResponse with the task "x"
	var request *http.Request
	var sent []byte
	d, e := speaks(t, func(w http.ResponseWriter, r *http.Request) {
		request = r
		sent, _ = io.ReadAll(r.Body)
		answers(framed(task), "grpc-status", "0", "execution-context", "d.e.f")(w, httptest.NewRequest(http.MethodPost, "/", http.NoBody))
	})
	reply, err := d.Dial(t.Context(), e, overGRPC(t, "SendMessage", "\x0a\x01t"))
	if err != nil || string(reply.Wire.Body) != task || len(reply.Evidence) != 2 || reply.Wire.Status != 200 || reply.Wire.Form != form.FormGRPC {
		t.Fatalf("got %+v %v", reply, err)
	}
	if string(sent) != framed("\x0a\x01t") || request.URL.Path != "/lf.a2a.v1.A2AService/SendMessage" || request.ProtoMajor != 2 {
		t.Errorf("sent %q to %s", sent, request.URL)
	}
	for name, want := range map[string]string{"Content-Type": "application/grpc", "Te": "trailers", "A2a-Version": "1.0"} {
		if got := request.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
	if len(request.Header.Values("Execution-Context")) == 0 {
		t.Error("no evidence went along")
	}
}

func TestDialGRPC_Stream(t *testing.T) {
	t.Parallel()
	one, two := "\x0a\x03\x0a\x01x", "\x1a\x03\x0a\x01x"
	for name, c := range map[string]struct {
		trailer []string
		status  int
		tokens  int
	}{
		"to its end":   {[]string{"grpc-status", "0"}, 0, 0},
		"with a proof": {[]string{"grpc-status", "0", "execution-context", "d.e.f"}, 0, 1},
		"to a failure": {[]string{"grpc-status", "5", "grpc-message", "no%20such", "execution-context", "d.e.f"}, 404, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e := speaks(t, answers(framed(one)+framed(two), c.trailer...))
			reply, err := d.Dial(t.Context(), e, overGRPC(t, "SendStreamingMessage", ""))
			if err != nil || reply.Events == nil || len(reply.Evidence) != 1 {
				t.Fatalf("%+v %v", reply, err)
			}
			defer func() { _ = reply.Events.Close() }()
			for _, want := range []string{one, two} {
				event, err := reply.Events.Next(t.Context())
				if err != nil || string(event.Wire.Body) != want || !event.Wire.Event {
					t.Fatalf("%+v %v", event, err)
				}
			}
			event, err := reply.Events.Next(t.Context())
			if c.status == 0 && c.tokens == 0 {
				if !errors.Is(err, io.EOF) {
					t.Errorf("%+v %v", event, err)
				}
				return
			}
			if err != nil || event.Wire.Status != c.status || len(event.Evidence) != c.tokens {
				t.Errorf("%+v %v", event, err)
			}
			if _, err := reply.Events.Next(t.Context()); !errors.Is(err, io.EOF) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// Every way in which there is no reply has its own error.
func TestDialGRPC_Failures(t *testing.T) {
	t.Parallel()
	ok := []string{"grpc-status", "0"}
	bare := func(kind string, status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
		}
	}
	for name, c := range map[string]struct {
		h      http.HandlerFunc
		reason string // of a BadReplyError; empty: an UnreachableError
	}{
		"not gRPC":            {bare("application/json", 200), "no gRPC"},
		"another status":      {bare("application/grpc", 503), "HTTP status 503"},
		"a redirect":          {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/", http.StatusFound) }, "a redirect"},
		"no status":           {answers(framed("x")), "without a status"},
		"a status of letters": {answers(framed("x"), "grpc-status", "x"), "without a status"},
		"nothing":             {answers("", ok...), "no message"},
		"two messages":        {answers(framed("x")+framed("y"), ok...), "two messages"},
		"compressed":          {answers("\x01\x00\x00\x00\x01x", ok...), "compressed"},
		"too long":            {answers("\x00\x00\x10\x00\x01x", ok...), "longer than"},
		"cut off":             {answers("\x00\x00\x00\x00\x09x", ok...), ""},
		"a cut frame":         {answers("\x00\x00", ok...), ""},
		"unreadable details":  {answers("", "grpc-status", "5", "grpc-status-details-bin", "***"), "details"},
		"evidence":            {answers(framed("x"), append(ok, "execution-context", strings.Repeat("x", 20<<10))...), "execution context"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e := speaks(t, c.h)
			reply, err := d.Dial(t.Context(), e, overGRPC(t, "SendMessage", ""))
			var bad *transport.BadReplyError
			var gone *transport.UnreachableError
			if c.reason != "" && (!errors.As(err, &bad) || !strings.Contains(bad.Reason, c.reason)) || c.reason == "" && !errors.As(err, &gone) {
				t.Errorf("got %+v %v", reply, err)
			}
		})
	}
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		d, e, _ := serve(t, bare("application/grpc", 200))
		e.Form = form.FormGRPC
		var bad *transport.BadReplyError
		if _, err := d.Dial(t.Context(), e, overGRPC(t, "SendMessage", "")); !errors.As(err, &bad) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("silence", func(t *testing.T) {
		t.Parallel()
		done := make(chan struct{})
		d, e := speaks(t, func(_ http.ResponseWriter, _ *http.Request) { <-done })
		t.Cleanup(func() { close(done) })
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		var late *transport.TimeoutError
		if _, err := d.Dial(ctx, e, overGRPC(t, "SendMessage", "")); !errors.As(err, &late) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a stream that breaks off", func(t *testing.T) {
		t.Parallel()
		d, e := speaks(t, answers(framed("x")))
		reply, err := d.Dial(t.Context(), e, overGRPC(t, "SubscribeToTask", ""))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reply.Events.Close() }()
		_, first := reply.Events.Next(t.Context())
		var bad *transport.BadReplyError
		if _, err := reply.Events.Next(t.Context()); first != nil || !errors.As(err, &bad) {
			t.Errorf("%v, %v", first, err)
		}
	})
}

// An agent's refusal is its reply, in details or without.
func TestDialGRPC_RefusalIsAReply(t *testing.T) {
	t.Parallel()
	d, e := speaks(t, func(w http.ResponseWriter, _ *http.Request) { // nothing but a trailer
		h := w.Header()
		h.Set("Content-Type", "application/grpc")
		h.Set("Grpc-Status", "5")
		h.Set("Grpc-Message", "nothing%20here")
	})
	reply, err := d.Dial(t.Context(), e, overGRPC(t, "GetTask", ""))
	if err != nil || reply.Wire.Status != 404 || string(reply.Wire.Body) != string(frame.Status(codes.NotFound, "nothing here")) {
		t.Fatalf("%+v %v", reply, err)
	}
	reply.Wire.Re = canonical.OpTaskGet
	wire, err := d.Unframe(reply.Wire)
	if err != nil {
		t.Fatal(err)
	}
	m, err := form.New(translators.Config{}).Decode(wire)
	if err != nil || m.Phase != canonical.PhaseError {
		t.Errorf("%+v %v", m, err)
	}
}

func TestPlaceGRPC_Addresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"a.example:1": "https://a.example:1", "dns:///a.example:1": "https://a.example:1", "https://a.example": "https://a.example",
		"https://a.example:1/": "https://a.example:1", "grpc://a.example:1": "https://a.example:1", "grpcs://a.example:1": "https://a.example:1",
		"[::1]:5": "https://[::1]:5", "http://a.example:1": "", "unix:///run/x": "", "https://u:p@a.example": "", "https://a.example/x": "",
		"https://a.example?x": "", "": "", "a b": "", "ftp://a.example": "", "dns://8.8.8.8/a.example:1": "",
	} {
		if got := PlaceGRPC(text, "https"); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := PlaceGRPC("127.0.0.1:1", "http"); got != "http://127.0.0.1:1" {
		t.Errorf("without TLS: %q", got)
	}
}

func TestDescribe_ChoosesGRPC(t *testing.T) {
	t.Parallel()
	card := func(interfaces string) string {
		return `{"name":"n","description":"d","version":"1","capabilities":{},"defaultInputModes":["a/b"],"defaultOutputModes":["a/b"],"skills":[{"id":"s","name":"s","description":"s","tags":["x"]}],"supportedInterfaces":[` + interfaces + `]}`
	}
	over := func(binding, url string) string {
		return `{"url":"` + url + `","protocolBinding":"` + binding + `","protocolVersion":"1.0","tenant":"t"}`
	}
	for name, c := range map[string]struct {
		interfaces, operator string
		url, form            string // empty: the configured one
	}{
		"gRPC alone":          {over("GRPC", "127.0.0.1:7"), "", "https://127.0.0.1:7", form.FormGRPC},
		"gRPC on another":     {over("GRPC", "elsewhere.example:7"), "", "", form.FormGRPC},
		"HTTP first":          {over("GRPC", "127.0.0.1:7") + "," + over("HTTP+JSON", "HERE/x"), "", "HERE/x", form.FormHTTP},
		"JSON-RPC first":      {over("GRPC", "127.0.0.1:7") + "," + over("JSONRPC", "HERE/x"), "", "HERE/x", ""},
		"the operator's word": {over("JSONRPC", "HERE/x"), "127.0.0.1:9", "https://127.0.0.1:9", form.FormGRPC},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, card(strings.ReplaceAll(c.interfaces, "HERE", "https://"+r.Host)))
			})
			e.GRPC = c.operator
			_, got, err := d.Describe(t.Context(), e)
			want := strings.Replace(c.url, "HERE", e.URL, 1)
			if want == "" {
				want = e.URL
			}
			if err != nil || got.URL != want || got.Form != c.form || got.Version != "1.0" {
				t.Errorf("%+v %v", got, err)
			}
		})
	}
}
