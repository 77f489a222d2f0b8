package main

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

// conduct is how a fake agent answers. good is the right answer, which it may
// send, spoil or withhold.
type conduct func(w http.ResponseWriter, r *http.Request, good []byte)

// fake is an agent that says properly who it is and then behaves as it likes.
type fake struct {
	conduct conduct
	silly   conduct // of discovery; nil: it answers well
	calls   atomic.Int32
	done    chan struct{} // closed at the test's end: whoever waits stops waiting
}

// host is where and how a fake is served. The zero value: TLS 1.3, a good
// certificate, judged by host name, and the gateway's own time limit.
type host struct {
	tls     *tls.Config
	plain   bool // no TLS at all
	http2   bool
	id      ect.Identity // that the directory demands
	timeout time.Duration
	path    string // of the URL, beyond the protocol's own
}

// serve starts a server for the fake and lists it under a name.
func (b *bed) serve(t *testing.T, name string, binding canonical.Binding, f *fake, h host) string {
	t.Helper()
	f.done = make(chan struct{})
	handler := http.HandlerFunc(f.speakMCP)
	if binding == "a2a-v1" {
		handler = f.speakA2A
	}
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.EnableHTTP2 = h.http2
	if h.tls == nil {
		h.tls = serving(b.svid(t, "/fake"))
	}
	server.TLS = h.tls
	if h.plain {
		server.Start()
	} else {
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(f.done) })
	at := strings.Replace(server.URL, "http://", "https://", 1) + h.path
	b.list(t, name, binding, at, h)
	return at
}

// list puts an agent into the directory, open to everybody.
func (b *bed) list(t *testing.T, name string, binding canonical.Binding, at string, h host) {
	t.Helper()
	must(t, b.directory.Put(directory.Agent{
		Name: name, ID: h.id, Timeout: h.timeout, Rules: policy.Rules{Open: true},
		Endpoints: []directory.Endpoint{{Binding: binding, URL: at}},
	}))
}

// speakMCP is a server of 2026-07-28 with the tools add and echo.
func (f *fake) speakMCP(w http.ResponseWriter, r *http.Request) {
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
		well(w, r, []byte(`{"jsonrpc":"2.0","id":`+string(request.ID)+`,"error":{"code":-32601,"message":"no such method"}}`))
	}
}

// speakA2A is an agent of A2A 1.0 with the skill "fake".
func (f *fake) speakA2A(w http.ResponseWriter, r *http.Request) {
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

func (f *fake) introduce(w http.ResponseWriter, r *http.Request, good []byte) {
	if f.silly == nil {
		well(w, r, good)
		return
	}
	f.silly(w, r, good)
}

func (f *fake) act(w http.ResponseWriter, r *http.Request, good []byte) {
	f.calls.Add(1)
	f.conduct(w, r, good)
}

// well is how an agent should answer.
func well(w http.ResponseWriter, _ *http.Request, good []byte) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(good)
}

// saying answers with something else, as JSON.
func saying(change func(good []byte) []byte) conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) { well(w, r, change(good)) }
}

// replacing spoils one thing in the good answer.
func replacing(old, now string) conduct {
	return saying(func(good []byte) []byte { return bytes.Replace(good, []byte(old), []byte(now), 1) })
}

// calling answers with a status, a media type and a body.
func calling(status int, media, body string) conduct {
	return func(w http.ResponseWriter, _ *http.Request, _ []byte) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// marked is a good answer with one more header field.
func marked(name, value string) conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) {
		w.Header().Set(name, value)
		well(w, r, good)
	}
}

// silent never answers; beginning sends the first half and then nothing.
func (f *fake) silent(_ http.ResponseWriter, r *http.Request, _ []byte) { f.wait(r) }

func (f *fake) beginning(w http.ResponseWriter, r *http.Request, good []byte) {
	well(w, r, good[:len(good)/2])
	_ = http.NewResponseController(w).Flush()
	f.wait(r)
}

func (f *fake) wait(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-f.done:
	}
}

// held answers well, but not before it is told to. entered says that it was asked.
func held(entered chan<- struct{}, release <-chan struct{}) conduct {
	return func(w http.ResponseWriter, r *http.Request, good []byte) {
		entered <- struct{}{}
		<-release
		well(w, r, good)
	}
}

// hangsUp breaks the connection before a word is said.
func hangsUp(http.ResponseWriter, *http.Request, []byte) { panic(http.ErrAbortHandler) }

// breaksOff promises more than it sends.
func breaksOff(w http.ResponseWriter, _ *http.Request, good []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", "100000")
	_, _ = w.Write(good)
	_ = http.NewResponseController(w).Flush()
	panic(http.ErrAbortHandler)
}

// endless never stops talking.
func endless(w http.ResponseWriter, _ *http.Request, _ []byte) {
	w.Header().Set("Content-Type", "application/json")
	chunk := bytes.Repeat([]byte(" "), 64<<10)
	for {
		if _, err := w.Write(chunk); err != nil {
			return
		}
	}
}

// tooLong is a good answer with 17 MiB of blanks before it.
func tooLong(w http.ResponseWriter, r *http.Request, good []byte) {
	well(w, r, append(bytes.Repeat([]byte(" "), 17<<20), good...))
}

// tls12 is a server that does not know TLS 1.3.
func tls12(s *identity.SVID) *tls.Config {
	conf := serving(s)
	conf.MinVersion, conf.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	return conf
}
