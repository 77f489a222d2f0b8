package rolling

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
)

const (
	protocolA2A    = "a2a"
	protocolMCP    = "mcp"
	protocolLegacy = "mcp-legacy" // with a session, which all replicas know

	callTime = 15 * time.Second // one call and its second attempt
	fieldECT = "Execution-Context"
)

// received is an ECT, and when it came from which replica.
type received struct {
	token   string
	replica int
	at      time.Time
}

// caller calls the gateways of one fleet as one client, and keeps the evidence.
type caller struct {
	fleet *fleet
	http  *http.Client

	sessions map[string]string // of legacy MCP, by agent

	mu      sync.Mutex
	tokens  []received
	retries int
	turn    int
}

// place is the replica whose turn it is.
func (c *caller) place() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn++
	return c.turn % len(c.fleet.replicas)
}

func (c *caller) retried() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.retries++
}

// evidence keeps the ECTs of an answer.
func (c *caller) evidence(replica int, fields ...http.Header) error {
	var values []string
	for _, h := range fields {
		values = append(values, h.Values(fieldECT)...)
	}
	if len(values) == 0 {
		return nil
	}
	tokens, err := ect.ParseHeader(values, ect.Limits{}.WithDefaults())
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tokens {
		c.tokens = append(c.tokens, received{t, replica, time.Now()})
	}
	return nil
}

// join begins a session of legacy MCP at each agent.
func (c *caller) join(ctx context.Context) error {
	c.sessions = map[string]string{}
	for _, agent := range []string{agentWorker, agentTools} {
		hello := request{agent: agent, protocol: protocolLegacy, method: "initialize", params: map[string]any{
			"protocolVersion": legacy, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "chaos", "version": "1"},
		}}
		resp, err := c.open(ctx, 0, hello)
		if err != nil {
			return err
		}
		c.sessions[agent] = resp.Header.Get("Mcp-Session-Id")
		_, err = io.Copy(io.Discard, resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		ready := request{agent: agent, protocol: protocolLegacy, method: "notifications/initialized", params: map[string]any{}, silent: true}
		if resp, err = c.open(ctx, 0, ready); err != nil {
			return err
		}
		if err := resp.Body.Close(); err != nil {
			return err
		}
	}
	return nil
}

// errRetry: what a client may take to another replica.
var errRetry = errors.New("another replica may be asked")

// errRefused: the answer is an error.
var errRefused = errors.New("refused")

// open sends a request and returns its answer once that has begun. An error that is an
// errRetry may be tried once more.
func (c *caller) open(ctx context.Context, replica int, q request) (*http.Response, error) {
	body, err := q.body()
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"https://"+c.fleet.replicas[replica].address+"/agents/"+q.agent+"/"+strings.TrimSuffix(q.protocol, "-legacy"), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	switch q.protocol {
	case protocolMCP:
		req.Header.Set("Mcp-Protocol-Version", modern)
		req.Header.Set("Mcp-Method", q.method)
		req.Header.Set("Mcp-Name", q.name)
	case protocolLegacy:
		req.Header.Set("Mcp-Protocol-Version", legacy)
		req.Header.Set("Mcp-Session-Id", c.sessions[q.agent])
	default:
		req.Header.Set("A2A-Version", "1.0")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: replica %d: %w", errRetry, replica, err)
	}
	if resp.StatusCode == http.StatusOK || resp.StatusCode == http.StatusAccepted {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	err = errors.Join(err, c.evidence(replica, resp.Header, resp.Trailer))
	refused := fmt.Errorf("%w: replica %d: %d %.300s", errRefused, replica, resp.StatusCode, text)
	if again := resp.Header.Get("Retry-After") != ""; resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable && again {
		refused = fmt.Errorf("%w: %w", errRetry, refused)
	}
	return nil, errors.Join(refused, err)
}

// once asks one replica.
func (c *caller) once(ctx context.Context, replica int, q request) (r reply, err error) {
	resp, err := c.open(ctx, replica, q)
	if err != nil {
		return r, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	if err != nil {
		return r, fmt.Errorf("%w: replica %d: %w", errRetry, replica, err)
	}
	if err := c.evidence(replica, resp.Header, resp.Trailer); err != nil {
		return r, err
	}
	if r, err = replyIn(text); err != nil {
		return r, fmt.Errorf("replica %d: %w: %.300s", replica, err, text)
	}
	if r.Error != nil {
		return r, fmt.Errorf("%w: replica %d: %d %s", errRefused, replica, r.Error.Code, r.Error.Message)
	}
	return r, nil
}

// ask asks one replica, and another one once if it may. at is the one that answered. The
// second attempt is other work: what the first came to is not known.
func (c *caller) ask(ctx context.Context, replica int, build func(attempt int) request) (r reply, at int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	if r, err = c.once(ctx, replica, build(0)); !errors.Is(err, errRetry) {
		return r, replica, err
	}
	c.retried()
	next := c.next(ctx, replica)
	second, err2 := c.once(ctx, next, build(1))
	if err2 != nil {
		return second, next, errors.Join(err2, err)
	}
	return second, next, nil
}

// next is the replica at which what broke is tried once more. Where there is but one, it
// is that one, once it listens again.
func (c *caller) next(ctx context.Context, replica int) int {
	next := c.fleet.other(replica, c.place())
	c.fleet.up(ctx, next)
	return next
}

// same is a request that says the same in both attempts.
func same(q request) func(int) request { return func(int) request { return q } }
