package channel

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"

	exact "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// The fields of a session, as Streamable HTTP has them.
const (
	headerSession = "Mcp-Session-Id"
	headerVersion = "Mcp-Protocol-Version"
)

// Channel is a way to one server and back. Send and Use may be called by several at once,
// Receive by one, which calls it until it fails.
type Channel interface {
	// Send sends one message. [Header] of ctx is that of the request it came with.
	Send(ctx context.Context, message []byte) error
	// Receive waits for the next message. After an error there is nothing more to come.
	Receive() ([]byte, error)
	// Note takes what the server sent and what is no message.
	Note(text []byte)
	// Close has the channel ended, without waiting: Receive then fails.
	Close()
	Busy
}

// Busy counts what a channel is used for.
type Busy interface {
	// Use counts one more use; false: the channel is about to end.
	Use() bool
	// Rest ends one use.
	Rest()
}

// Yielding is a channel that may give way to another while its uses only listen.
type Yielding interface {
	// Listen says that one use only listens, until Work.
	Listen()
	Work()
}

// Open opens a channel, which is in use.
type Open func(ctx context.Context) (Channel, error)

// Key says whose channel it is. Agent and URL are the server's.
type Key struct {
	Agent, URL string
	Caller     ect.Identity // whose work is done there; of a shared one empty
	Shared     bool         // all callers use one
}

var (
	errTwice = errors.New("a request of this id is under way")
	errTaken = errors.New("a stream that listens is open")
	errGone  = errors.New("the channel is over")
	errEmpty = errors.New("a request without a message")
)

// Servers are the open channels. The zero value is ready; it is safe for concurrent use.
type Servers struct {
	mu       sync.Mutex
	sessions map[string]*conn // by id
	places   map[Key]*place   // of channels that a key finds: shared ones, and those of revisions without sessions
	work     sync.WaitGroup
}

// place holds the channel of a key. The goroutine that has the turn may open one.
type place struct {
	turn  chan struct{}
	conn  *conn
	users int
}

type headerKey struct{}

// Header is the header of the request of Streamable HTTP that a message came with; nil: the
// message is this package's own.
func Header(ctx context.Context) http.Header {
	header, _ := ctx.Value(headerKey{}).(http.Header)
	return header
}

// Do answers one request of Streamable HTTP. The caller closes the response's body.
func (s *Servers) Do(request *http.Request, key Key, open Open) (*http.Response, error) {
	ctx, id := context.WithValue(request.Context(), headerKey{}, request.Header), request.Header.Get(headerSession)
	switch request.Method {
	case http.MethodDelete:
		if c := s.find(key, id); c != nil && !key.Shared {
			c.channel.Close()
		}
		return response(http.StatusNoContent, http.Header{}, http.NoBody, 0), nil
	case http.MethodGet:
		return s.find(key, id).listen(ctx)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	env, ok := mcp.Skim(body)
	switch {
	case !ok:
		return nil, errEmpty
	case env.Method == mcp.MethodInitialize:
		return s.initialize(ctx, key, env, body, open)
	case id == "" && request.Header.Get(headerVersion) == mcp.Modern:
		return s.sessionless(ctx, key, env, body, open)
	}
	return s.find(key, id).do(ctx, env, body)
}

func gone() *http.Response { return response(http.StatusNotFound, http.Header{}, http.NoBody, 0) }

// do sends a message of any kind.
func (c *conn) do(ctx context.Context, env mcp.Envelope, body []byte) (*http.Response, error) {
	if c == nil {
		return gone(), nil
	}
	if env.Method != "" && len(env.ID) > 0 {
		answer, err := c.request(ctx, env, body)
		if errors.Is(err, errGone) {
			return gone(), nil
		}
		return answer, err
	}
	if err := c.tell(ctx, env, body); err != nil {
		return nil, err
	}
	return response(http.StatusAccepted, http.Header{}, http.NoBody, 0), nil
}

// find is the channel of a session that belongs to the key; nil: there is none.
func (s *Servers) find(key Key, id string) *conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.sessions[id]; c != nil && c.key == key {
		return c
	}
	return nil
}

// begin opens a channel.
func (s *Servers) begin(ctx context.Context, key Key, open Open, renames bool) (*conn, error) {
	channel, err := open(ctx)
	if err != nil {
		return nil, err
	}
	c := &conn{servers: s, key: key, id: rand.Text(), channel: channel, renames: renames, calls: map[string]*call{}, questions: map[string]*call{}}
	s.mu.Lock()
	if s.sessions == nil {
		s.sessions = map[string]*conn{}
	}
	s.sessions[c.id] = c
	s.mu.Unlock()
	s.work.Go(c.receive)
	return c, nil
}

// forget takes a channel out that is over.
func (s *Servers) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, c.id)
	if at := s.places[c.key]; at != nil && at.conn == c {
		if at.conn = nil; at.users == 0 {
			delete(s.places, c.key)
		}
	}
}

// initialize begins a session on a channel of its own, or on the one that callers share.
func (s *Servers) initialize(ctx context.Context, key Key, env mcp.Envelope, body []byte, open Open) (*http.Response, error) {
	if key.Shared {
		return s.share(ctx, key, env, open)
	}
	c, err := s.begin(ctx, key, open, false)
	if err != nil {
		return nil, err
	}
	defer c.channel.Rest()
	answer, err := c.request(ctx, env, body)
	if err != nil {
		c.channel.Close()
		return nil, err
	}
	answer.Header.Set(headerSession, c.id)
	return answer, nil
}

// share begins a session on the channel that callers share. The first one begins it in
// truth; the others get the same answer. If that fails, a channel which others may use
// already, in a revision without sessions, stays open.
func (s *Servers) share(ctx context.Context, key Key, env mcp.Envelope, open Open) (*http.Response, error) {
	c, fresh, done, err := s.at(ctx, key, open)
	if err != nil {
		return nil, err
	}
	defer done()
	defer c.channel.Rest()
	if c.answer == nil {
		refusal, err := c.first(ctx, env)
		if err != nil && fresh {
			c.channel.Close()
		}
		if err != nil {
			return nil, err
		}
		if refusal != nil {
			return response(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, newBytes(refusal), len(refusal)), nil
		}
	}
	again := bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), env.ID, []byte(`,"result":`), c.answer, []byte(`}`)}, nil)
	header := http.Header{"Content-Type": {"application/json"}, headerSession: {c.id}}
	return response(http.StatusOK, header, newBytes(again), len(again)), nil
}

// first sends the initialize of a shared channel, whose client can be asked nothing, and the
// end of that handshake: who comes next must not speak before it. It sets answer, or gives
// the reply of a server that refuses.
func (c *conn) first(ctx context.Context, env mcp.Envelope) (refusal []byte, err error) {
	params := map[string]json.RawMessage{}
	if err := exact.Unmarshal(env.Params, &params); err != nil {
		return nil, err
	}
	params["capabilities"] = json.RawMessage(`{}`)
	written, err := exact.Marshal(params, exact.Deterministic(true))
	if err != nil {
		return nil, err
	}
	body := bytes.Join([][]byte{[]byte(`{"jsonrpc":"2.0","id":`), env.ID, []byte(`,"method":"` + mcp.MethodInitialize + `","params":`), written, []byte(`}`)}, nil)
	message, err := c.ask(ctx, env, body)
	if err != nil {
		return nil, err
	}
	reply, _ := mcp.Skim(message)
	if reply.Result == nil {
		return message, nil
	}
	if err := c.channel.Send(context.WithoutCancel(ctx), []byte(`{"jsonrpc":"2.0","method":"`+noticeInitialized+`"}`)); err != nil {
		return nil, err
	}
	c.answer = bytes.Clone(reply.Result)
	return nil, nil
}

// ask sends a request and waits for its reply alone.
func (c *conn) ask(ctx context.Context, env mcp.Envelope, body []byte) (reply []byte, err error) {
	one := newCall(ctx, c, env.ID, env.Method)
	if err := c.join(one); err != nil {
		return nil, err
	}
	defer one.release() //nolint:contextcheck // what ends is told apart from who asked
	if err := c.channel.Send(ctx, body); err != nil {
		return nil, err
	}
	for {
		message, last, err := one.next(ctx)
		if err != nil || last {
			return message, err
		}
	}
}

// sessionless sends a message of a revision without sessions, on the one channel that a
// caller has for that, or that all share.
func (s *Servers) sessionless(ctx context.Context, key Key, env mcp.Envelope, body []byte, open Open) (*http.Response, error) {
	c, _, done, err := s.at(ctx, key, open)
	if err != nil {
		return nil, err
	}
	done()
	defer c.channel.Rest()
	return c.do(ctx, env, body)
}

// at returns the channel of a key, marked as in use. It opens one if none can be used. done
// releases the turn, for which all other goroutines wait. fresh: the channel was opened.
func (s *Servers) at(ctx context.Context, key Key, open Open) (c *conn, fresh bool, done func(), err error) {
	s.mu.Lock()
	if s.places == nil {
		s.places = map[Key]*place{}
	}
	at := s.places[key]
	if at == nil {
		at = &place{turn: make(chan struct{}, 1)}
		s.places[key] = at
	}
	at.users++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at.users--; at.users == 0 && at.conn == nil {
			delete(s.places, key)
		}
	}
	select {
	case at.turn <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, false, nil, ctx.Err()
	}
	done = func() { <-at.turn; leave() }
	s.mu.Lock()
	c = at.conn
	s.mu.Unlock()
	if c != nil && c.channel.Use() {
		return c, false, done, nil
	}
	if c, err = s.begin(ctx, key, open, true); err != nil {
		done()
		return nil, false, nil, err
	}
	s.mu.Lock()
	at.conn = nil              // that one is about to end
	if s.sessions[c.id] == c { // it is not over already
		at.conn = c
	}
	s.mu.Unlock()
	return c, true, done, nil
}

// Close ends all channels and waits for their ends.
func (s *Servers) Close() {
	s.mu.Lock()
	for _, c := range s.sessions {
		c.channel.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// response is one of an HTTP server.
func response(status int, header http.Header, body io.ReadCloser, length int) *http.Response {
	return &http.Response{StatusCode: status, Header: header, Body: body, ContentLength: int64(length), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}
}

func newBytes(body []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
