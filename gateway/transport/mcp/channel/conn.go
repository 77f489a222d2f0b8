package channel

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"

	exact "github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/translators/mcp"
)

// The methods that this package treats in a way of their own.
const (
	methodTaskResult   = "tasks/result"
	methodSubscribe    = "resources/subscribe"
	methodListen       = "subscriptions/listen"
	metaSubscription   = "io.modelcontextprotocol/subscriptionId"
	noticeCancelled    = "notifications/cancelled"
	noticeProgress     = "notifications/progress"
	noticeMessage      = "notifications/message"
	noticeUpdated      = "notifications/resources/updated"
	noticeInitialized  = mcp.MethodInitialized
	codeInternal       = "-32603"
	codeMethodNotFound = "-32601"
)

// maxID bounds the id of what a server asks, which is remembered until it has its answer.
const maxID = 1 << 10

// asking are the requests in the middle of which a server asks something.
var asking = []string{mcp.MethodCall, methodTaskResult, "prompts/get", "resources/read"}

// subject is what the parameters of a message say it is about.
type subject struct {
	ProgressToken json.RawMessage `json:"progressToken"`
	RequestID     json.RawMessage `json:"requestId"`
	TaskID        string          `json:"taskId"`
	Meta          struct {
		ProgressToken json.RawMessage `json:"progressToken"`
		Subscription  json.RawMessage `json:"io.modelcontextprotocol/subscriptionId"`
		Task          struct {
			ID string `json:"taskId"`
		} `json:"io.modelcontextprotocol/related-task"`
	} `json:"_meta"`
}

// subjectOf reads what it can: what a member of another type hides, is not there.
func subjectOf(params json.RawMessage) subject {
	var s subject
	if len(params) > 0 && exact.Unmarshal(params, &s) != nil {
		return subject{}
	}
	return s
}

// conn is one open channel.
type conn struct {
	servers *Servers
	key     Key
	id      string // of its session
	channel Channel
	renames bool // several clients use it, who may have given two requests one id

	mu        sync.Mutex
	calls     map[string]*call // under way, by id: those without a reply
	number    uint64           // of the latest
	questions map[string]*call // that the server asked and that have no answer, by id
	listeners []*call
	err       error           // why nothing more comes
	abandoned bool            // of a shared channel: a request was given up, and may have a reply without an id yet
	own       [][]byte        // what this package says of itself and did not send yet
	ownSize   int             // of it, in bytes
	sending   bool            // a goroutine sends it
	answer    json.RawMessage // of a shared channel: the result of initialize; for the holder of the turn
}

// receive hands on what comes, until nothing more does.
func (c *conn) receive() {
	for {
		message, err := c.channel.Receive()
		if err != nil {
			c.end(err)
			return
		}
		env, ok := mcp.Skim(message)
		switch {
		case !ok || env.Version != "2.0":
			c.channel.Note(message)
		case env.Method == "":
			c.replied(env, message)
		case len(env.ID) > maxID:
			c.channel.Note(message)
		case len(env.ID) > 0:
			c.asks(env, message)
		default:
			c.notifies(env, message)
		}
	}
}

// blaming is the end of a server that callers share: an error for each of them.
type blaming interface {
	error
	// Blame says whose call was under way first.
	Blame(first context.Context)
	// For is the error for the caller of a context.
	For(ctx context.Context) error
}

// earliest is the request that is under way for the longest; nil: there is none.
func (c *conn) earliest() (first *call) {
	for _, one := range c.calls {
		if one.method != methodListen && (first == nil || one.number < first.number) {
			first = one
		}
	}
	return first
}

// end ends everything that waits for the channel.
func (c *conn) end(err error) {
	c.servers.forget(c)
	c.mu.Lock()
	c.err = err
	if ended, ok := err.(blaming); ok { //nolint:errorlint // it is the channel's own
		if first := c.earliest(); first != nil {
			ended.Blame(first.asker)
		}
	}
	for _, one := range c.calls {
		one.fail(err)
	}
	for _, one := range c.listeners {
		one.fail(err)
	}
	c.mu.Unlock()
}

// replied gives a reply to its request. One without an id is for the only one, if it is, and
// if there was no other of another caller.
func (c *conn) replied(env mcp.Envelope, message []byte) {
	c.mu.Lock()
	one := c.calls[plain(env.ID)]
	if one == nil && (len(env.ID) == 0 || string(env.ID) == "null") && len(c.calls) == 1 && !c.abandoned {
		one = slices.Collect(maps.Values(c.calls))[0]
	}
	if one != nil { // what comes from now on is about others, whether or not its caller has read all
		one.granted = one.granted || env.Result != nil
		delete(c.calls, one.id)
	}
	c.mu.Unlock()
	if one == nil {
		return
	}
	if one.callers != nil && len(env.ID) > 0 && string(env.ID) != "null" {
		message = with(message, one.callers, "id")
		if one.method == methodListen {
			message = with(message, one.callers, "result", "_meta", metaSubscription)
		}
	}
	one.put(message, true)
}

// asks hands on what the server asks, or refuses it.
func (c *conn) asks(env mcp.Envelope, message []byte) {
	if env.Method == mcp.MethodPing {
		c.say([]byte(`{"jsonrpc":"2.0","id":` + string(env.ID) + `,"result":{}}`))
		return
	}
	c.mu.Lock()
	var to *call
	if !c.key.Shared && len(c.questions) < maxWaitingCount {
		if to = c.only(subjectOf(env.Params).Meta.Task.ID); to == nil {
			to = c.free()
		}
		if to == nil && len(c.listeners) > 0 {
			to = c.listeners[0]
		}
		if to != nil {
			c.questions[plain(env.ID)] = to
		}
	}
	c.mu.Unlock()
	if to == nil {
		c.say(failure(env.ID, codeInternal, "no caller can be asked: expected one request under way and a server that callers do not share"))
		return
	}
	to.put(message, false)
}

// say sends a message that needs no reply, in a goroutine of its own: the receiver must go on,
// since a server may read nothing before what it writes is read. A server that takes too
// little of it loses its channel.
func (c *conn) say(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		return
	case len(c.own) >= maxWaitingCount || c.ownSize+len(message) > maxWaiting:
		c.channel.Close()
		return
	}
	c.own, c.ownSize = append(c.own, message), c.ownSize+len(message)
	if !c.sending {
		c.sending = true
		c.servers.work.Go(c.sendOwn)
	}
}

// sendOwn sends what say left, until there is no more of it.
func (c *conn) sendOwn() {
	for {
		c.mu.Lock()
		if len(c.own) == 0 || c.err != nil {
			c.own, c.ownSize, c.sending = nil, 0, false
			c.mu.Unlock()
			return
		}
		message := c.own[0]
		c.own, c.ownSize = c.own[1:], c.ownSize-len(message)
		c.mu.Unlock()
		_ = c.channel.Send(context.Background(), message) // if it fails, the receiver fails too
	}
}

// only is the one request in the middle of which the server asks, or whose log it writes:
// that about the task, if there is one.
func (c *conn) only(task string) *call {
	var found *call
	for _, one := range c.calls {
		switch {
		case !one.mayAsk:
		case task != "" && one.task == task:
			return one
		case found != nil:
			return nil
		default:
			found = one
		}
	}
	return found
}

// free is the only request in the middle of which the server may ask and that does not wait
// for an answer already.
func (c *conn) free() *call {
	var found *call
	for _, one := range c.calls {
		if !one.mayAsk || slices.Contains(slices.Collect(maps.Values(c.questions)), one) {
			continue
		}
		if found != nil {
			return nil
		}
		found = one
	}
	return found
}

// notifies hands on what the server says without being asked.
func (c *conn) notifies(env mcp.Envelope, message []byte) {
	about := subjectOf(env.Params)
	c.mu.Lock()
	defer c.mu.Unlock()
	if id := about.Meta.Subscription; len(id) > 0 {
		if one := c.calls[plain(id)]; one != nil {
			if one.callers != nil {
				message = with(message, one.callers, "params", "_meta", metaSubscription)
			}
			one.put(message, false)
		}
		return
	}
	switch env.Method {
	case noticeProgress:
		if one := c.watches(plain(about.ProgressToken)); one != nil {
			if len(one.watched) > 0 {
				message = with(message, one.watched, "params", "progressToken")
			}
			one.put(message, false)
		}
		return
	case noticeMessage, noticeCancelled:
		if c.key.Shared {
			return
		}
		if one := c.only(""); one != nil {
			one.put(message, false)
			return
		}
	case noticeUpdated:
		if c.key.Shared {
			return
		}
	}
	for i, one := range c.listeners {
		if i == 0 || c.key.Shared {
			one.put(message, false)
		}
	}
}

// watches is the request that wants progress under a token.
func (c *conn) watches(token string) *call {
	var found *call
	for _, one := range c.calls {
		if token == "" || one.token != token {
			continue
		}
		if found != nil {
			return nil
		}
		found = one
	}
	return found
}

// request sends a request and gives the response to it.
func (c *conn) request(ctx context.Context, env mcp.Envelope, body []byte) (*http.Response, error) {
	if c.key.Shared && env.Method == methodSubscribe {
		body := failure(env.ID, codeMethodNotFound, "subscriptions are refused: all callers share this server")
		return response(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, newBytes(body), len(body)), nil
	}
	about := subjectOf(env.Params)
	id, token := env.ID, about.Meta.ProgressToken
	rename := c.renames // two clients may use the same, and one may come back late
	if rename {
		id = json.RawMessage(`"` + rand.Text() + `"`)
		body = with(body, id, "id")
	}
	if rename && len(token) > 0 {
		token = id
		body = with(body, id, "params", "_meta", "progressToken")
	}
	one := newCall(ctx, c, id, env.Method)
	if rename {
		one.callers, one.watched = env.ID, about.Meta.ProgressToken
	}
	one.token, one.task, one.mayAsk = plain(token), about.TaskID, slices.Contains(asking, env.Method)
	if err := c.join(one); err != nil {
		return nil, err
	}
	if err := c.channel.Send(ctx, body); err != nil {
		one.release() //nolint:contextcheck // the end of a call is told whatever became of its caller
		return nil, err
	}
	return one.respond(ctx, http.Header{})
}

// join counts a call among those under way; errGone: the channel is over, and took nothing.
func (c *conn) join(one *call) error {
	if !c.channel.Use() {
		return errGone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.err != nil:
		c.channel.Rest()
		return errGone
	case one.id == "" && len(c.listeners) > 0 && !c.key.Shared:
		c.channel.Rest()
		return errTaken
	case one.id == "":
		c.listeners = append(c.listeners, one)
	case c.calls[one.id] != nil:
		c.channel.Rest()
		return errTwice
	default:
		c.calls[one.id] = one
		c.number++
		one.number = c.number
	}
	if yielding, ok := c.channel.(Yielding); ok && one.listens() {
		yielding.Listen()
	}
	return nil
}

// leave ends a call. What has no reply yet is canceled, unless the server was told so.
func (c *conn) leave(one *call) {
	one.mu.Lock()
	replied := one.reply
	one.mu.Unlock()
	c.mu.Lock()
	c.listeners = slices.DeleteFunc(c.listeners, func(other *call) bool { return other == one })
	if c.calls[one.id] == one { // after its reply another may have its id
		delete(c.calls, one.id)
	}
	maps.DeleteFunc(c.questions, func(_ string, other *call) bool { return other == one })
	tell := one.id != "" && !replied && !one.canceled && c.err == nil && one.method != mcp.MethodInitialize
	c.abandoned = c.abandoned || c.key.Shared && one.id != "" && !replied
	begun := one.method != mcp.MethodInitialize || one.granted || c.key.Shared
	c.mu.Unlock()
	one.fail(context.Canceled)
	if tell {
		_ = c.channel.Send(context.Background(), []byte(`{"jsonrpc":"2.0","method":"`+noticeCancelled+`","params":{"requestId":`+string(one.written)+`}}`))
	}
	if !begun {
		c.channel.Close() // no client has a session in it
	}
	if yielding, ok := c.channel.(Yielding); ok && one.listens() {
		yielding.Work()
	}
	c.channel.Rest()
}

// tell sends a message that has no reply. A shared server gets no such message: the gateway asks
// no caller for it, so an answer would be one caller's input in the work of another.
func (c *conn) tell(ctx context.Context, env mcp.Envelope, body []byte) error {
	c.mu.Lock()
	drop := c.key.Shared
	switch env.Method {
	case "":
		delete(c.questions, plain(env.ID))
	case noticeCancelled:
		drop = c.renames // a client's name for it is not the server's; who closes a response cancels
		if one := c.calls[plain(subjectOf(env.Params).RequestID)]; one != nil {
			one.canceled = true
		}
	}
	c.mu.Unlock()
	if drop {
		return nil
	}
	return c.channel.Send(ctx, body)
}

// listen is the response to the request for a stream of its own.
func (c *conn) listen(ctx context.Context) (*http.Response, error) {
	if c == nil {
		return gone(), nil
	}
	one := newCall(ctx, c, nil, "")
	switch err := c.join(one); {
	case errors.Is(err, errTaken):
		return response(http.StatusConflict, http.Header{}, http.NoBody, 0), nil
	case err != nil:
		return gone(), nil //nolint:nilerr // as what comes after it
	}
	return one.stream(ctx, http.Header{}, nil), nil
}
