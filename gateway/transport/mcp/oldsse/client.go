package oldsse

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Bounds of the streams to servers.
const (
	maxStreams   = 256              // at once
	perCaller    = maxStreams / 16  // of one caller
	idleFor      = 5 * time.Minute  // a stream that is not used ends
	opensWithin  = 10 * time.Second // from the GET to the endpoint event
	maxEvents    = 1 << 20          // of one stream
	DefaultTotal = 256 << 20        // bytes of one stream
	maxBefore    = 16               // events before the endpoint event
	maxEndpoints = 64 << 10         // bytes of one event before it
)

// ErrNoStream reports that the URL answers GET with no stream of events.
var ErrNoStream = errors.New("the URL serves no event stream, expected one in answer to GET")

// Why a stream was ended.
var (
	errClosed = errors.New("the stream is closed")
	errLate   = errors.New("no endpoint event came in time")
)

// ClientDeps is what a Client is built from.
type ClientDeps struct {
	Client    transport.Client
	BodyLimit int // of one message, in bytes
	Total     int // of one stream, in bytes; zero: DefaultTotal
}

// Client opens streams to servers. It is safe for concurrent use.
type Client struct {
	deps   ClientDeps
	places *quota.Places
	posts  sync.WaitGroup
}

// NewClient makes a Client without streams.
func NewClient(deps ClientDeps) (*Client, error) {
	if deps.Client == nil || deps.BodyLimit <= 0 {
		return nil, errors.New("oldsse: a client needs a guarded client and a bound of messages")
	}
	if deps.Total <= 0 {
		deps.Total = max(DefaultTotal, 2*deps.BodyLimit)
	}
	places, err := quota.NewPlaces(quota.Config{Resource: "open streams to MCP servers of 2024-11-05", Total: maxStreams, PerHolder: perCaller})
	if err != nil {
		return nil, err
	}
	return &Client{deps: deps, places: places}, nil
}

// Wait waits for the messages that are being posted. Their streams must have ended.
func (c *Client) Wait() { c.posts.Wait() }

// Usage says how many streams there are.
func (c *Client) Usage() quota.Usage { return c.places.Usage() }

// Owner is whose stream it is.
type Owner struct {
	Agent  string       // directory name
	Caller ect.Identity // for whom it is; empty: the gateway itself asks
	Server ect.Identity // who is expected there; empty: judged by its TLS name
}

// Open opens a stream, which is in use. ctx bounds the opening alone; its header (see
// [channel.Header]) goes with the GET. Errors: *quota.ExceededError, *transport.BadReplyError (of
// [ErrNoStream] where there is no stream), or why the server cannot be reached.
func (c *Client) Open(ctx context.Context, owner Owner, address string) (*Stream, error) {
	base, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	s := &Stream{client: c, owner: owner, stirred: make(chan struct{})}
	s.life, s.end = context.WithCancelCause(context.WithoutCancel(ctx))
	if s.place, err = c.places.Take(string(owner.Caller), true, s.Close); err != nil {
		s.Close()
		return nil, err
	}
	s.count = 1
	if err = s.open(ctx, base); err != nil {
		s.finish(err)
		return nil, err
	}
	return s, nil
}

// open sends the GET and waits for the endpoint event.
func (s *Stream) open(ctx context.Context, base *url.URL) error {
	stop := context.AfterFunc(ctx, func() { s.end(ctx.Err()) })
	defer stop()
	late := time.AfterFunc(opensWithin, func() { s.end(errLate) })
	defer late.Stop()
	request, err := http.NewRequestWithContext(s.life, http.MethodGet, base.String(), http.NoBody) //nolint:contextcheck // the stream outlives the request that opens it
	if err != nil {
		return err
	}
	carry(request.Header, channel.Header(ctx))
	request.Header.Set("Accept", sse.Media)
	response, err := s.client.deps.Client.DoAs(request, s.owner.Server)
	if err != nil {
		return s.why(err)
	}
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Encoding") != "" || media(response) != sse.Media {
		_ = response.Body.Close()
		reason := "it opens no event stream: HTTP status " + strconv.Itoa(response.StatusCode)
		return &transport.BadReplyError{Agent: s.owner.Agent, Reason: reason, Err: ErrNoStream}
	}
	s.body = response.Body
	limit := s.client.deps.BodyLimit
	s.in = sse.NewReader(response.Body, sse.Limits{Event: limit, Events: maxEvents, Total: s.client.deps.Total})
	for range maxBefore {
		event, err := s.in.Next()
		switch {
		case err != nil:
			return s.unopened(err)
		case event.Type != "endpoint" && len(event.Data) > maxEndpoints:
			return s.unopened(errEndpoint)
		case event.Type != "endpoint":
			continue
		}
		if s.to, err = Endpoint(base, event.Data); err != nil {
			return &transport.BadReplyError{Agent: s.owner.Agent, Reason: err.Error(), Err: err}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = time.AfterFunc(idleFor, s.rested)
		return nil
	}
	return s.unopened(errEndpoint)
}

// unopened is why a stream that began has no endpoint event.
func (s *Stream) unopened(err error) error {
	if cause := context.Cause(s.life); cause != nil && !errors.Is(cause, errLate) {
		return cause
	}
	return &transport.BadReplyError{Agent: s.owner.Agent, Reason: "its event stream does not begin with an endpoint event", Err: limitOf(err)}
}

// limitOf is the bound that an error says was passed; nil: none.
func limitOf(err error) error {
	if limit, ok := errors.AsType[*sse.LimitError](err); ok {
		return limit
	}
	return nil
}

func media(response *http.Response) string {
	parsed, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return parsed
}

// carry copies what the request of Streamable HTTP says beside its message, but for what
// belongs to its session there and to its form.
func carry(to, from http.Header) {
	for name, values := range from {
		switch {
		case name == "Mcp-Session-Id", name == "Accept", strings.HasPrefix(name, "Content-"):
		default:
			to[name] = values
		}
	}
}
