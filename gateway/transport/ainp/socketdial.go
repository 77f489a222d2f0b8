package ainp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/ainp"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// maxTold bounds the messages of one conversation whose ids are remembered.
const maxTold = 1 << 16

// errEnded reports that the agent closed the connection before its last message.
var errEnded = errors.New("ainp: the connection ended before the last message")

// overSocket reports whether the endpoint is a WebSocket.
func overSocket(url string) bool {
	return strings.HasPrefix(url, "wss://") || strings.HasPrefix(url, "ws://")
}

// talk is one conversation with an agent over a connection of its own: what was
// sent, and what comes in answer. It is read by one goroutine at a time.
type talk struct {
	d    *Dialer
	ep   transport.Endpoint
	peer Peer
	sent ainp.Head // of what was sent
	re   canonical.Op
	conn *websocket.Conn
	seen *Memory

	first   *transport.Event // read before the stream was handed on
	over    bool
	trailer []string // evidence for the whole stream, which its last message held
	open    []string // ids of questions that may be answered here
	close   sync.Once
}

var _ transport.Events = (*talk)(nil)

// talks are the conversations that wait for an answer of ours, by the id of the
// question.
type talks struct {
	mu   sync.Mutex
	open map[string]*talk
}

func (t *talks) find(id string) *talk {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

func (t *talks) add(id string, in *talk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[string]*talk{}
	}
	t.open[id] = in
}

func (t *talks) remove(in *talk) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, id := range in.open {
		if t.open[id] == in {
			delete(t.open, id)
		}
	}
}

// converse sends a message over a connection of its own. One message in answer
// is the reply; anything else is a stream, which the caller closes.
func (t *talk) converse(ctx context.Context, signed []byte, evidence []string) (_ transport.Reply, err error) {
	if t.conn, err = t.d.open(ctx, t.ep, evidence); err != nil {
		return transport.Reply{}, failed(ctx, t.ep, err)
	}
	if err := t.conn.Write(ctx, websocket.MessageText, signed); err != nil {
		return transport.Reply{}, errors.Join(failed(ctx, t.ep, err), t.Close())
	}
	first, err := t.read(ctx)
	if err != nil {
		return transport.Reply{}, errors.Join(err, t.Close())
	}
	if t.over && t.trailer == nil {
		first.Wire.Event = false
		return transport.Reply{Wire: first.Wire, Evidence: first.Evidence}, t.Close()
	}
	t.first = &first
	return transport.Reply{Events: t, Evidence: first.Evidence}, nil
}

// open dials through the same guard as a POST would.
func (d *Dialer) open(ctx context.Context, ep transport.Endpoint, evidence []string) (*websocket.Conn, error) {
	header := http.Header{}
	transport.AddEvidence(header, evidence)
	conn, response, err := websocket.Dial(ctx, ep.URL, &websocket.DialOptions{ //nolint:bodyclose // Dial closes it
		HTTPClient: egress.Over(func(r *http.Request) (*http.Response, error) { return d.deps.Client.DoAs(r, ep.ID) }),
		HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil && response != nil {
		return nil, transport.BadStatus(ep, "it opens no WebSocket", response.StatusCode, response.Header)
	}
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(int64(d.deps.Form.Info().BodyLimit))
	return conn, nil
}

// read takes the next message and judges it.
func (t *talk) read(ctx context.Context) (transport.Event, error) {
	kind, body, err := t.conn.Read(ctx)
	switch {
	case errors.Is(err, websocket.ErrMessageTooBig), websocket.CloseStatus(err) == websocket.StatusMessageTooBig:
		return transport.Event{}, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "longer than an envelope", Err: transport.ErrTooLong}
	case err == nil && kind != websocket.MessageText:
		return transport.Event{}, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "an envelope is a text"}
	case errors.Is(err, io.EOF) || websocket.CloseStatus(err) >= 0:
		return transport.Event{}, &transport.UnreachableError{Agent: t.ep.Agent, Err: errEnded} // which is no end of a stream
	case err != nil:
		return transport.Event{}, failed(ctx, t.ep, err)
	}
	seen, tokens, err := t.d.judge(ctx, t.ep, t.peer, t.sent, body)
	if err != nil {
		return transport.Event{}, err
	}
	now := t.d.deps.Now()
	if first, err := t.seen.First(ctx, seen.ID, now, now.Add(MaxTTL)); err != nil || !first {
		return transport.Event{}, &transport.BadReplyError{Agent: t.ep.Agent, Reason: "a message that was sent before"}
	}
	if t.over = ainp.Final(body) || t.re != canonical.OpInvoke; !t.over && seen.Kind == ainp.TypeIntent {
		t.open = append(t.open, seen.ID)
		t.d.talks.add(seen.ID, t)
	}
	if t.over && closing(tokens) {
		t.trailer, tokens = tokens, nil
	}
	return transport.Event{Evidence: tokens, Wire: translators.Wire{
		Binding: ainp.Binding, Version: ainp.Version, Form: ainp.FormSocket, Media: ainp.Media, Body: body, Re: t.re, Event: true,
		Hasher: t.d.hasher(seen, body),
	}}, nil
}

// Next is the next message. io.EOF: the one before was the last.
func (t *talk) Next(ctx context.Context) (transport.Event, error) {
	if t.first != nil {
		event := *t.first
		t.first = nil
		return event, nil
	}
	if t.trailer != nil {
		event := transport.Event{Evidence: t.trailer}
		t.trailer = nil
		return event, nil
	}
	if t.over {
		return transport.Event{}, io.EOF
	}
	return t.read(ctx)
}

// closing reports whether a token among these testifies to a whole stream, as a
// gateway's does. It is verified where the stream has been heard.
func closing(tokens []string) bool {
	return slices.ContainsFunc(tokens, func(token string) bool {
		claims, _, err := ect.ParseUnverified(token)
		text, ok := claims.Ext.String(ect.ExtStream)
		return err == nil && ok && text == "close"
	})
}

// Close ends the conversation by closing its connection. An agent that is still at
// work sees by that that the gateway reads no more.
func (t *talk) Close() error {
	t.close.Do(func() {
		t.d.talks.remove(t)
		_ = t.conn.CloseNow()
	})
	return nil
}

// answer brings the decision on a question to the conversation that waits for
// it; false: none does.
func (d *Dialer) answer(ctx context.Context, ep transport.Endpoint, head ainp.Head, signed []byte) (bool, error) {
	if head.Kind != ainp.TypeResult && head.Kind != ainp.TypeError || head.Intent == "" {
		return false, nil
	}
	t := d.talks.find(head.Intent)
	if t == nil || t.ep.Agent != ep.Agent {
		return false, nil
	}
	if err := t.conn.Write(ctx, websocket.MessageText, signed); err != nil {
		return true, failed(ctx, ep, err)
	}
	return true, nil
}
