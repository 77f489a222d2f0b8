package gatewaytest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/policy"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// Conduct is how a fake agent answers. good is the right answer, which it may
// send, spoil or withhold.
type Conduct func(w http.ResponseWriter, r *http.Request, good []byte)

// Fake is an agent that says properly who it is and then behaves as it likes.
type Fake struct {
	Conduct Conduct
	Silly   Conduct // of discovery; nil: it answers well
	Calls   atomic.Int32
	Done    chan struct{} // closed at the test's end: whoever waits stops waiting
}

// Host is where and how a fake is served. The zero value: TLS 1.3, a good
// certificate, judged by host name, and the gateway's own time limit.
type Host struct {
	TLS     *tls.Config
	Plain   bool // no TLS at all
	HTTP2   bool
	ID      ect.Identity // that the directory demands
	Timeout time.Duration
	Path    string // of the URL, beyond the protocol's own
}

// Serve starts a server for the fake and lists it under a name.
func (b *Fixture) Serve(t *testing.T, name string, binding canonical.Binding, f *Fake, h Host) string {
	t.Helper()
	f.Done = make(chan struct{})
	handler := http.HandlerFunc(f.SpeakMCP)
	if binding == "a2a-v1" {
		handler = f.SpeakA2A
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.EnableHTTP2 = h.HTTP2
	if h.TLS == nil {
		h.TLS = Serving(b.SVID(t, "/fake"))
	}
	server.TLS = h.TLS
	if h.Plain {
		server.Start()
	} else {
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(f.Done) })
	at := strings.Replace(server.URL, "http://", "https://", 1) + h.Path
	b.List(t, name, binding, at, h)
	return at
}

// List puts an agent into the directory, open to everybody.
func (b *Fixture) List(t *testing.T, name string, binding canonical.Binding, at string, h Host) {
	t.Helper()
	Must(t, b.Directory().Put(directory.Agent{
		Name: name, ID: h.ID, Timeout: h.Timeout, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: binding, URL: at}},
	}))
}

// SpeakMCP is a server of 2026-07-28 with the tools add and echo.
func (f *Fake) SpeakMCP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var request struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(body, &request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	answer := func(result string) []byte {
		return []byte(`{"jsonrpc":"2.0","id":` + string(request.ID) + `,"result":{"resultType":"complete",` + result + `}}`)
	}
	switch request.Method {
	case "server/discover":
		f.introduce(w, r, answer(`"ttlMs":1000,"cacheScope":"private","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`))
	case "tools/list":
		f.introduce(w, r, answer(`"ttlMs":1000,"cacheScope":"private","tools":[`+
			`{"name":"add","inputSchema":{"type":"object"}},{"name":"echo","inputSchema":{"type":"object"}}]`))
	case "tools/call":
		f.act(w, r, answer(`"content":[{"type":"text","text":"done"}]`))
	default:
		w.WriteHeader(http.StatusNotFound)
		Well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(request.ID)+`,"error":{"code":-32601,"message":"no such method"}}`))
	}
}

// SpeakA2A is an agent of A2A 1.0 with the skill "fake".
func (f *Fake) SpeakA2A(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		f.introduce(w, r, []byte(`{"name":"Fake","description":"A fake.","version":"1","capabilities":{},"defaultInputModes":["text/plain"],`+
			`"defaultOutputModes":["text/plain"],"supportedInterfaces":[{"url":"https://`+r.Host+`/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],`+
			`"skills":[{"id":"fake","name":"Fake","description":"Does it.","tags":["x"]}]}`))
		return
	}
	var request struct{ ID json.RawMessage }
	if json.NewDecoder(r.Body).Decode(&request) != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	f.act(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(request.ID)+`,"result":{"message":{"messageId":"r","role":"ROLE_AGENT","parts":[{"text":"done"}]}}}`))
}

func (f *Fake) introduce(w http.ResponseWriter, r *http.Request, good []byte) {
	if f.Silly == nil {
		Well(w, r, good)
		return
	}
	f.Silly(w, r, good)
}

func (f *Fake) act(w http.ResponseWriter, r *http.Request, good []byte) {
	f.Calls.Add(1)
	f.Conduct(w, r, good)
}

// Well is how an agent should answer.
func Well(w http.ResponseWriter, _ *http.Request, good []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(good)
}

// Saying answers with something else, as JSON.
func Saying(change func(good []byte) []byte) Conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) { Well(w, r, change(good)) }
}

// Replacing spoils one thing in the good answer.
func Replacing(old, now string) Conduct {
	return Saying(func(good []byte) []byte { return bytes.Replace(good, []byte(old), []byte(now), 1) })
}

// Calling answers with a status, a media type and a body.
func Calling(status int, media, body string) Conduct {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Marked is a good answer with one more header field.
func Marked(name, value string) Conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) {
		w.Header().Set(name, value)
		Well(w, r, good)
	}
}

// Silent never answers: it waits until the request or the test ends.
func (f *Fake) Silent(_ http.ResponseWriter, r *http.Request, _ []byte) { f.Wait(r) }

// Beginning sends the first half of a good answer and then nothing, until the request or the test ends.
func (f *Fake) Beginning(w http.ResponseWriter, r *http.Request, good []byte) {
	Well(w, r, good[:len(good)/2])
	_ = http.NewResponseController(w).Flush()
	f.Wait(r)
}

// Wait returns when the request has ended, or the test.
func (f *Fake) Wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.Done:
	}
}

// Delayed answers well, but not before it is told to. entered says that it was asked.
func Delayed(entered chan<- struct{}, release <-chan struct{}) Conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) {
		entered <- struct{}{}
		<-release
		Well(w, r, good)
	}
}

// HangsUp breaks the connection before a word is said.
func HangsUp(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }

// BreaksOff promises more than it sends.
func BreaksOff(w http.ResponseWriter, _ *http.Request, good []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "100000")
	_, _ = w.Write(good)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// Endless never stops talking.
func Endless(w http.ResponseWriter, _ *http.Request, _ []byte) {
	w.Header().Set("Content-Type", "application/json")
	chunk := bytes.Repeat([]byte(" "), 64<<10)
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// TooLong is a good answer with 17 MiB of blanks before it.
func TooLong(w http.ResponseWriter, r *http.Request, good []byte) {
	Well(w, r, append(bytes.Repeat([]byte(" "), 17<<20), good...))
}

// TLS12 is a server that does not know TLS 1.3.
func TLS12(s *identity.SVID) *tls.Config {
	conf := Serving(s)
	conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	return conf
}
