package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
)

// callTimeout bounds one call; slower is a failure.
const callTimeout = 30 * time.Second

// maxReply bounds what is read of an answer.
const maxReply = 4 << 20

// letter is one request and the only answer that is right.
type letter struct {
	method string // default POST
	path   string
	body   string
	header map[string]string
	via    *http.Client // default: as the development client
	tokens []string
	wid    string // sign an ECT for the body into this workflow

	status int      // default 200
	says   []string // what the body must contain
}

// answer is what came back.
type answer struct {
	header http.Header
	body   string
}

// wrongError is an answer that nobody caused.
type wrongError struct {
	letter letter
	status int
	body   string
}

func (e *wrongError) Error() string {
	return fmt.Sprintf("soak: %s %s was answered %d %.400s; want %d with %q", e.letter.method, e.letter.path, e.status, e.body, e.letter.status, e.letter.says)
}

func (r *rig) send(ctx context.Context, l letter) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := r.finish(&l); err != nil {
		return answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, l.method, r.gateway.Public+l.path, strings.NewReader(l.body))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range l.header {
		req.Header.Set(name, value)
	}
	for _, token := range l.tokens {
		req.Header.Add("Execution-Context", token)
	}
	resp, err := l.via.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return answer{}, err
	}
	for _, text := range append(l.says, "") {
		if resp.StatusCode != l.status || !strings.Contains(string(body), text) {
			return answer{}, &wrongError{l, resp.StatusCode, string(body)}
		}
	}
	return answer{resp.Header, string(body)}, nil
}

// finish fills in what a letter leaves to the default.
func (r *rig) finish(l *letter) (err error) {
	if l.method == "" {
		l.method = http.MethodPost
	}
	if l.via == nil {
		l.via = r.self
	}
	if l.status == 0 {
		l.status = http.StatusOK
	}
	if l.wid != "" {
		var token string
		token, err = r.minter.Mint(l.body, l.wid, r.lifetime)
		l.tokens = append(l.tokens, token)
	}
	return err
}

// turn is what one caller does once; n counts its turns.
type turn func(ctx context.Context, n int) error

// turns are the calls that must succeed.
func (r *rig) turns() map[string]turn {
	return map[string]turn{
		"a2a-1.0":     r.a2a,
		"a2a-rest":    r.a2aREST,
		"a2a-0.3":     r.a2aOld,
		"mcp-modern":  r.mcp,
		"mcp-session": r.mcpSession,
		"translate":   r.translate,
		"discovery":   r.discover,
		"evidence":    r.evidence,
	}
}

// conversation is one of a few.
func conversation(n int) string { return "c" + strconv.Itoa(n%16) }

func echoMessage(n int, said string) string {
	return `{"messageId":"` + uuid.NewString() + `","contextId":"` + conversation(n) + `","role":"ROLE_USER","parts":[{"data":{"skill":"echo","input":{"message":"` +
		said + `"}},"mediaType":"application/json"}]}`
}

func a2aBody(n int, said string) string {
	return `{"jsonrpc":"2.0","id":"1","method":"SendMessage","params":{"message":` + echoMessage(n, said) + `}}`
}

func mcpBody(said string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"talk","arguments":{"message":"` + said +
		`"},"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernMCP + `","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

func mcpHeader() map[string]string {
	return map[string]string{
		"Accept": "application/json, text/event-stream", "Mcp-Protocol-Version": modernMCP,
		"Mcp-Method": "tools/call", "Mcp-Name": "talk",
	}
}

// word is one that no other call says.
func word() string { return "hello " + uuid.NewString() }

// a2a is attested every other time.
func (r *rig) a2a(ctx context.Context, n int) error {
	said := word()
	l := letter{path: "/agents/tool/a2a", body: a2aBody(n, said), header: map[string]string{"A2A-Version": "1.0"}, says: []string{said, "TASK_STATE_COMPLETED"}}
	if n%2 == 0 {
		l.wid = uuid.NewString()
	}
	_, err := r.send(ctx, l)
	return err
}

func (r *rig) a2aREST(ctx context.Context, n int) error {
	said := word()
	_, err := r.send(ctx, letter{
		path: "/agents/tool/a2a/message:send", body: `{"message":` + echoMessage(n, said) + `}`,
		header: map[string]string{"A2A-Version": "1.0", "Content-Type": "application/a2a+json"}, says: []string{said, "TASK_STATE_COMPLETED"},
	})
	return err
}

func (r *rig) a2aOld(ctx context.Context, n int) error {
	said := word()
	_, err := r.send(ctx, letter{
		path: "/agents/tool/a2a", says: []string{said, `"completed"`},
		body: `{"jsonrpc":"2.0","id":"1","method":"message/send","params":{"message":{"kind":"message","messageId":"` + uuid.NewString() + `","contextId":"` +
			conversation(n) + `","role":"user","parts":[{"kind":"data","data":{"skill":"echo","input":{"message":"` + said + `"}}}]}}}`,
	})
	return err
}

func (r *rig) mcp(ctx context.Context, _ int) error {
	said := word()
	_, err := r.send(ctx, letter{path: "/agents/talker/mcp", body: mcpBody(said), header: mcpHeader(), says: []string{said}})
	return err
}

// mcpSession is the whole life of a client of 2025-11-25.
func (r *rig) mcpSession(ctx context.Context, _ int) error {
	said, version := word(), "2025-11-25"
	header := map[string]string{"Accept": "application/json, text/event-stream"}
	step := func(body string, status int, says ...string) error {
		_, err := r.send(ctx, letter{path: "/agents/talker/mcp", body: body, header: header, status: status, says: says})
		return err
	}
	begun, err := r.send(ctx, letter{path: "/agents/talker/mcp", header: header, status: http.StatusOK, says: []string{version}, body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`})
	if err != nil {
		return err
	}
	header["Mcp-Protocol-Version"], header["Mcp-Session-Id"] = version, begun.header.Get("Mcp-Session-Id")
	if err := step(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, http.StatusAccepted); err != nil {
		return err
	}
	if err := step(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`, http.StatusOK, `"talk"`); err != nil {
		return err
	}
	if err := step(`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"talk","arguments":{"message":"`+said+`"}}}`, http.StatusOK, said); err != nil {
		return err
	}
	_, err = r.send(ctx, letter{method: http.MethodDelete, path: "/agents/talker/mcp", header: header, status: http.StatusNoContent})
	return err
}

// translate goes to the tool, or nowhere and back, by both names of the endpoint.
func (r *rig) translate(ctx context.Context, n int) error {
	said := word()
	l := letter{path: "/aepb/translate?from=a2a-v1&dest=tool", body: a2aBody(n, said), wid: uuid.NewString(), says: []string{said}}
	if n%2 == 1 {
		l.path = "/cpat/translate?from=a2a-v1&to=mcp-v1"
	}
	_, err := r.send(ctx, l)
	return err
}

func (r *rig) discover(ctx context.Context, n int) error {
	for path, says := range map[string]string{
		"/.well-known/aepb":                                               `"aepb_version"`,
		"/.well-known/cpat/gateway":                                       `"pairs"`,
		"/.well-known/aepb/gateway?from=a2a-v1&to=mcp-v1":                 `"mcp-v1"`,
		"/agents/tool/a2a/.well-known/agent-card.json":                    `"echo"`,
		"/agents/talker/.well-known/agent-card.json?" + strconv.Itoa(n%2): `"Talker"`,
	} {
		if _, err := r.send(ctx, letter{method: http.MethodGet, path: path, says: []string{says}}); err != nil {
			return err
		}
	}
	return nil
}

// evidence reads back what a call left.
func (r *rig) evidence(ctx context.Context, n int) error {
	wid := uuid.NewString()
	said := word()
	got, err := r.send(ctx, letter{path: "/aepb/translate?from=a2a-v1&dest=tool", body: a2aBody(n, said), wid: wid, says: []string{said}})
	if err != nil {
		return err
	}
	issued := got.header.Values("Execution-Context")
	if len(issued) == 0 {
		return &wrongError{letter{path: "an exchange"}, 0, "no ECT"}
	}
	jti, err := jtiOf(issued[len(issued)-1])
	if err != nil {
		return err
	}
	if _, err := r.send(ctx, letter{method: http.MethodGet, path: "/ects/" + jti, says: []string{issued[len(issued)-1]}}); err != nil {
		return err
	}
	_, err = r.send(ctx, letter{method: http.MethodGet, path: "/workflows/" + wid, says: []string{wid, issued[0]}})
	return err
}

func jtiOf(compact string) (string, error) {
	_, rest, _ := strings.Cut(compact, ".")
	payload, _, _ := strings.Cut(rest, ".")
	text, err := base64.RawURLEncoding.DecodeString(payload)
	var c struct{ JTI string }
	if err == nil {
		err = json.Unmarshal(text, &c)
	}
	return c.JTI, err
}
