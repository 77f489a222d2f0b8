package lasting

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// talker is an A2A agent whose answer is a stream: "fast N" sends N events as fast
// as they are taken, "paced N" one every few milliseconds, "hold" one and then
// nothing until the end. Every event carries when it was sent.
type talker struct {
	once sync.Once
	end  chan struct{}
}

const pacing = 5 * time.Millisecond

func (a *talker) finish() { a.once.Do(func() { close(a.end) }) }

// ServeHTTP is the agent.
func (a *talker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"name":"Talker","description":"Talks.","version":"1.0.0","supportedInterfaces":[{"url":"https://`+r.Host+
			`","protocolBinding":"JSONRPC","protocolVersion":"1.0"}],"capabilities":{"streaming":true},`+
			`"defaultInputModes":["text/plain"],"defaultOutputModes":["text/plain"],`+
			`"skills":[{"id":"talk","name":"Talk","description":"Talks.","tags":["talk"]}]}`)
		return
	}
	var m struct {
		ID     json.RawMessage
		Params struct {
			Message struct{ Parts []struct{ Text string } }
		}
	}
	if json.NewDecoder(r.Body).Decode(&m) != nil || len(m.Params.Message.Parts) == 0 {
		http.Error(w, "a message was expected", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	a.talk(w, r, string(m.ID), m.Params.Message.Parts[0].Text)
}

func (a *talker) talk(w http.ResponseWriter, r *http.Request, id, what string) {
	how, number, _ := strings.Cut(what, " ")
	n, _ := strconv.Atoi(number)
	task := `"t` + strconv.FormatInt(time.Now().UnixNano(), 36) + `"`
	say := func(result string) {
		_, _ = io.WriteString(w, `data: {"jsonrpc":"2.0","id":`+id+`,"result":{`+result+"}}\n\n")
		_ = http.NewResponseController(w).Flush()
	}
	say(`"task":{"id":` + task + `,"contextId":"c","status":{"state":"TASK_STATE_WORKING"}}`)
	for range n {
		if how == "paced" {
			select {
			case <-time.After(pacing):
			case <-r.Context().Done():
				return
			}
		}
		say(`"statusUpdate":{"taskId":` + task + `,"contextId":"c","status":{"state":"TASK_STATE_WORKING","message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"at=` +
			strconv.FormatInt(time.Now().UnixNano(), 10) + `="}]}}}`)
	}
	if how == "hold" {
		select {
		case <-a.end:
		case <-r.Context().Done():
			return
		}
	}
	say(`"statusUpdate":{"taskId":` + task + `,"contextId":"c","status":{"state":"TASK_STATE_COMPLETED"}}`)
}

// way is one way to the talker.
type way struct {
	name, url string
	header    map[string]string
	body      func(what string) string
}

func (b *bed) ways(proxy string) []way {
	a2a := func(what string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"SendStreamingMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"` + what + `"}]}}}`
	}
	accept := map[string]string{"A2A-Version": "1.0", "Accept": "text/event-stream"}
	return []way{
		{"floor", proxy, accept, a2a},
		{"A2A to A2A", b.Public + "/agents/talker/a2a", accept, a2a},
		{"A2A to MCP", b.Public + "/agents/talker/mcp", map[string]string{
			"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "talk",
		}, func(what string) string {
			return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"talk","arguments":{"message":"` + what +
				`"},"_meta":{"progressToken":"p","io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
		}},
	}
}

// rounds of every way, in turns.
const rounds = 5

// stream measures how fast events pass, and how late.
func stream(ctx context.Context, b *bed, s Scale) ([]Figure, error) {
	proxy, err := b.proxy()
	if err != nil {
		return nil, err
	}
	defer proxy.Close()
	defer proxy.CloseClientConnections()
	ways := b.ways(proxy.URL)
	speed, delay := make([][]float64, len(ways)), make([][]float64, len(ways))
	for range rounds {
		for i, w := range ways {
			fast, err := b.hear(ctx, w, "fast "+strconv.Itoa(s.Events/rounds))
			if err != nil {
				return nil, err
			}
			paced, err := b.hear(ctx, w, "paced "+strconv.Itoa(min(s.Events/rounds, 200)))
			if err != nil {
				return nil, err
			}
			speed[i], delay[i] = append(speed[i], fast.speed), append(delay[i], median(paced.delays))
		}
	}
	var all []Figure
	for i, w := range ways {
		late := median(delay[i])
		all = append(all,
			Figure{Name: "stream", Case: w.name, Value: median(speed[i]), Unit: "events/s"},
			Figure{Name: "stream", Case: w.name, Value: late, Unit: "us/event"})
		if i > 0 {
			all = append(all, Figure{Name: "stream", Case: w.name, Value: late - median(delay[0]), Unit: "us/event added"})
		}
	}
	return all, nil
}

// proxy is the least that stands between.
func (b *bed) proxy() (*httptest.Server, error) {
	target, err := url.Parse(b.server.URL)
	if err != nil {
		return nil, err
	}
	conf, err := b.PeerTLS("proxy")
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(devgateway.Front(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: b.client.Transport, FlushInterval: -1,
	}))
	server.TLS = conf
	server.StartTLS()
	return server, nil
}

// heard is a stream that was read to its end.
type heard struct {
	speed  float64   // events per second
	delays []float64 // of each event, in microseconds
}

var errStream = errors.New("bench: the stream was not as expected")

func (b *bed) hear(ctx context.Context, w way, what string) (h heard, err error) {
	resp, err := post(ctx, b.client, w.url, w.body(what), w.header)
	if err != nil {
		return h, err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var began time.Time
	events, ended := 0, false
	for lines.Scan() {
		line, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			continue
		}
		if events++; events == 1 {
			began = time.Now()
		}
		if _, after, ok := bytes.Cut(line, []byte("at=")); ok {
			at, _, _ := bytes.Cut(after, []byte("="))
			sent, err := strconv.ParseInt(string(at), 10, 64)
			if err == nil {
				h.delays = append(h.delays, float64(time.Now().UnixNano()-sent)/1e3)
			}
		}
		ended = bytes.Contains(line, []byte("COMPLETED")) || bytes.Contains(line, []byte(`"content"`))
	}
	if err := lines.Err(); err != nil || !ended || len(h.delays) == 0 {
		return h, fmt.Errorf("%w: %s, %s: %d events, ended %t, %w", errStream, w.name, what, events, ended, err)
	}
	h.speed = float64(events-1) / time.Since(began).Seconds()
	return h, nil
}
