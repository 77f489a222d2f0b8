package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"

	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
	"github.com/aepb/aepb-gateway/translators/uacp"
)

const (
	callEvery  = 20 * time.Millisecond // 50 calls a second
	probeEvery = time.Second           // for each of the other kinds
	callTime   = 15 * time.Second      // a call that takes longer is lost
	mostAtOnce = 1000                  // calls under way: more than callTime lets gather
	askers     = 8                     // ask for evidence at once
	askEvery   = 4 * time.Millisecond  // about the next call, with some four requests
	maxReply   = 4 << 20
)

// The kinds of good calls. Evidence is asked for of the first two, which are the 50
// calls a second.
const (
	kindTools    = "a2a > mcp agent"
	kindWorker   = "mcp > a2a agent"
	kindQuestion = "a2a question"
	kindSession  = "mcp session"
	kindUACP     = "uacp > mcp agent"
	kindSocket   = "ainp socket"
)

// kinds are all of them.
func kinds() []string {
	return []string{kindTools, kindWorker, kindQuestion, kindSession, kindUACP, kindSocket}
}

// call is one good call as its caller saw it.
type call struct {
	kind, key, workflow string
	tokens              []string // its own ECT, and those of the answer
	took                time.Duration
	lost                error    // nil: it got its own answer
	missing             []string // evidence that its caller cannot get afterwards
}

// caller is the one who does nothing wrong.
type caller struct {
	rig    *rig
	http   *http.Client
	minter *devgateway.Minter

	mu    sync.Mutex
	calls []call
}

func newCaller(r *rig) (*caller, error) {
	minter, err := r.trust.NewMinter()
	return &caller{rig: r, http: r.trust.Client(r.trust.ClientSVID()), minter: minter}, err
}

// load makes calls until ctx ends; those that have begun are finished.
func (c *caller) load(ctx context.Context) []call {
	c.calls = nil
	var all sync.WaitGroup
	all.Go(func() { c.every(ctx, callEvery, kindTools, kindWorker) })
	for _, kind := range kinds()[2:] {
		all.Go(func() { c.every(ctx, probeEvery, kind) })
	}
	all.Wait()
	return c.calls
}

// every makes a call of one kind after the other at a pace, whether or not those
// before it are answered.
func (c *caller) every(ctx context.Context, pace time.Duration, kinds ...string) {
	places := make(chan struct{}, mostAtOnce)
	var all sync.WaitGroup
	defer all.Wait()
	paced(ctx, pace, func(n int) {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			made := c.once(context.WithoutCancel(ctx), kinds[n%len(kinds)])
			c.mu.Lock()
			defer c.mu.Unlock()
			c.calls = append(c.calls, made)
		})
	})
}

// once makes one call.
func (c *caller) once(ctx context.Context, kind string) call {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	made := call{kind: kind, key: uuid.NewString(), workflow: uuid.NewString()}
	start := time.Now()
	switch kind {
	case kindTools:
		made.tokens, made.lost = c.attested(ctx, made, "/agents/"+toolAgent+"/a2a", toolMessage(made.key, howQuick, ""), a2aHeader())
	case kindWorker:
		made.tokens, made.lost = c.attested(ctx, made, "/agents/"+skillAgent+"/mcp", skillCall(made.key), modernHeader(work))
	case kindQuestion:
		_, made.lost = c.answered(ctx, "/agents/"+toolAgent+"/a2a", textMessage(made.key, ""), a2aHeader(), "TASK_STATE_INPUT_REQUIRED")
	case kindSession:
		made.lost = c.session(ctx)
	case kindUACP:
		made.lost = c.frame(ctx, made.key)
	case kindSocket:
		made.lost = c.socket(ctx)
	}
	made.took = time.Since(start)
	return made
}

// attested makes a call with an ECT for it; the answer must have ECTs too.
func (c *caller) attested(ctx context.Context, made call, path, body string, header http.Header) ([]string, error) {
	token, err := c.minter.Mint(body, made.workflow, time.Hour)
	if err != nil {
		return nil, err
	}
	header.Set(ectHeader, token)
	got, err := c.answered(ctx, path, body, header, answerTo(made.key))
	tokens := got.Values(ectHeader)
	if err == nil && len(tokens) == 0 {
		err = errors.New("the answer has no ECT")
	}
	return append([]string{token}, tokens...), err
}

// answered posts a message and looks for what the answer must say.
func (c *caller) answered(ctx context.Context, path, body string, header http.Header, want string) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.rig.front+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = header
	got, text, err := c.do(req)
	if err == nil && !strings.Contains(text, want) {
		err = fmt.Errorf("another answer: %.300s", text)
	}
	return got, err
}

func (c *caller) do(req *http.Request) (http.Header, string, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %.300s", resp.Status, bytes.TrimSpace(text))
	}
	return resp.Header, string(text), err
}

// session begins a session of MCP and ends it.
func (c *caller) session(ctx context.Context) error {
	header := sessionHeader()
	got, err := c.answered(ctx, "/agents/"+skillAgent+"/mcp", initialize(), header, legacyMCP)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, "https://"+c.rig.front+"/agents/"+skillAgent+"/mcp", http.NoBody)
	if err != nil {
		return err
	}
	req.Header.Set("Mcp-Session-Id", got.Get("Mcp-Session-Id"))
	req.Header.Set("Mcp-Protocol-Version", legacyMCP)
	_, _, err = c.do(req)
	return err
}

// frame makes a call over a µACP connection of its own.
func (c *caller) frame(ctx context.Context, key string) error {
	conn, err := dialUACP(ctx, c.rig.uacp[0], &tls.Config{RootCAs: c.rig.trust.Roots(), Certificates: []tls.Certificate{c.rig.trust.ClientSVID()}}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(callTime)); err != nil {
		return err
	}
	payload := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"work","arguments":{"key":"` + key + `","how":"quick"}}}`
	body, err := askFrame(uacp.TopicCall, payload)
	if err != nil {
		return err
	}
	reply, err := exchangeFrame(conn, body)
	if err == nil && !strings.Contains(string(reply.Payload), answerTo(key)) {
		err = fmt.Errorf("another answer: %x %.300s", reply.Code, reply.Payload)
	}
	return err
}

// socket opens a WebSocket of AINP and ends it.
func (c *caller) socket(ctx context.Context) error {
	conn, _, err := websocket.Dial(ctx, "wss://"+c.rig.front+"/agents/"+toolAgent+"/ainp", &websocket.DialOptions{HTTPClient: c.http})
	if err == nil {
		_ = conn.CloseNow()
	}
	return err
}

// verify asks for the evidence of every call that was answered.
func (c *caller) verify(ctx context.Context, calls []call) {
	var all sync.WaitGroup
	next := make(chan *call)
	for range askers {
		all.Go(func() {
			for made := range next {
				made.missing = c.missing(ctx, *made)
			}
		})
	}
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for i := range calls {
		if calls[i].lost == nil && len(calls[i].tokens) > 0 {
			next <- &calls[i]
			<-tick.C
		}
	}
	close(next)
	all.Wait()
}

// missing names the evidence of a call that its caller does not get.
func (c *caller) missing(ctx context.Context, made call) []string {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var out []string
	var flow struct {
		ECTs []string `json:"ects"`
	}
	text, err := c.get(ctx, "/workflows/"+made.workflow)
	if err == nil {
		err = json.Unmarshal([]byte(text), &flow)
	}
	if err != nil {
		out = append(out, fmt.Sprintf("the workflow: %v", err))
	}
	for i, token := range made.tokens {
		if err == nil && !slices.Contains(flow.ECTs, token) {
			out = append(out, fmt.Sprintf("token %d is not in the workflow", i))
		}
		jti, wrong := idOf(token)
		if wrong == nil {
			text, wrong = c.get(ctx, "/ects/"+jti)
		}
		if wrong != nil || text != token {
			out = append(out, fmt.Sprintf("token %d: %v %.100s", i, wrong, text))
		}
	}
	return out
}

func (c *caller) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+c.rig.front+path, http.NoBody)
	if err != nil {
		return "", err
	}
	_, text, err := c.do(req)
	return text, err
}

// idOf reads the jti of a token.
func idOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("not a token")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		ID string `json:"jti"`
	}
	if err == nil {
		err = json.Unmarshal(payload, &claims)
	}
	return claims.ID, err
}

// ready makes one call of each kind, so that the agents are known before any is
// counted.
func (c *caller) ready(ctx context.Context) error {
	var last error
	err := wait.Until(ctx, "the gateway serves every kind of call", func() bool {
		for _, kind := range kinds() {
			if last = c.once(ctx, kind).lost; last != nil {
				last = fmt.Errorf("%s: %w", kind, last)
				return false
			}
		}
		return true
	})
	return errors.Join(err, last)
}

// place makes a call for the attackers to know of.
func (c *caller) place(ctx context.Context) (place, error) {
	made := c.once(ctx, kindTools)
	if made.lost != nil {
		return place{}, made.lost
	}
	token, err := idOf(made.tokens[len(made.tokens)-1])
	return place{made.workflow, token}, err
}

// hook registers a callback for human approval in a workflow.
func (c *caller) hook(ctx context.Context, workflow string) error {
	_, err := c.answered(ctx, "/hitl/callbacks", `{"wid":"`+workflow+`","uri":"https://caller.invalid/decided"}`, jsonHeader(), workflow)
	return err
}

// askFrame is a µACP request for a topic.
func askFrame(topic, payload string) ([]byte, error) {
	const asJSON = 1
	return uacp.Frame{Verb: uacp.Ask, QoS: 1, ID: 42, Payload: []byte(payload), Options: []uacp.Option{
		{Type: uacp.OptTopic, Value: []byte(topic)}, {Type: uacp.OptContentType, Value: binary.BigEndian.AppendUint32(nil, asJSON)},
	}}.Bytes()
}
