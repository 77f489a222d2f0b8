package oldsse

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/channel"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/policy/quota"
)

// Bounds of what is posted.
const (
	ownWithin   = 5 * time.Second  // to send a message that needs no reply
	postedFor   = 10 * time.Minute // a POST is open
	maxPosts    = 64               // that are open at once on one stream
	maxAccepted = 4 << 10          // bytes that are read of the answer to a POST
)

// errPosts ends the stream of a server that leaves too many messages unanswered.
var errPosts = errors.New("it leaves more than " + strconv.Itoa(maxPosts) + " POSTs without an answer")

// Stream is an open stream and the endpoint that belongs to it.
type Stream struct {
	client *Client
	owner  Owner
	to     *url.URL
	place  *quota.Place
	body   io.ReadCloser // nil: it was not opened
	in     *sse.Reader
	life   context.Context //nolint:containedctx // the connection's
	end    context.CancelCauseFunc
	timer  *time.Timer

	mu      sync.Mutex
	stirred chan struct{} // closed with the next event
	posts   int           // open
	count   int           // uses under way
	latest  time.Time     // when the last use ended
}

var _ channel.Channel = (*Stream)(nil)

// Send posts one message. It comes back once the server has answered the POST, or has said
// anything since.
func (s *Stream) Send(ctx context.Context, message []byte) error {
	header := channel.Header(ctx)
	if header == nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, ownWithin)
		defer cancel()
	}
	stirred, err := s.posting()
	if err != nil {
		return err
	}
	life, cancel := context.WithTimeout(transport.OnBehalf(s.life, ctx), postedFor)
	done, late := make(chan error, 1), &atomic.Bool{}
	s.client.posts.Go(func() {
		defer s.posted()
		defer cancel()
		err := s.post(life, header, message)
		if done <- err; err != nil && late.Load() { // what became of the message is not known
			s.end(err)
		}
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		cancel()
		return ctx.Err()
	case <-stirred:
	}
	late.Store(true)
	select {
	case err := <-done:
		return err
	default:
		return nil
	}
}

// posting counts a POST; the channel is closed with the next event.
func (s *Stream) posting() (stirred <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.Err() != nil {
		return nil, s.why(nil)
	}
	if s.posts >= maxPosts {
		s.end(errPosts)
		return nil, errPosts
	}
	s.posts++
	return s.stirred, nil
}

func (s *Stream) posted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.posts--
}

func (s *Stream) post(ctx context.Context, header http.Header, message []byte) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.to.String(), bytes.NewReader(message))
	if err != nil {
		return err
	}
	carry(request.Header, header)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "*/*")
	response, err := s.client.deps.Client.DoAs(request, s.owner.Server)
	if err != nil {
		return s.why(err)
	}
	_, _ = io.CopyN(io.Discard, response.Body, maxAccepted)
	_ = response.Body.Close()
	if response.StatusCode >= http.StatusMultipleChoices {
		return transport.BadStatus(transport.Endpoint{Agent: s.owner.Agent}, "it does not take the message: HTTP status "+strconv.Itoa(response.StatusCode), response.StatusCode, response.Header)
	}
	return nil
}

// Receive waits for the next message.
func (s *Stream) Receive() ([]byte, error) {
	for {
		event, err := s.in.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("the server ended its event stream: %w", io.ErrUnexpectedEOF)
			}
			err = s.why(err)
			s.finish(err)
			return nil, err
		}
		s.mu.Lock()
		close(s.stirred)
		s.stirred = make(chan struct{})
		s.mu.Unlock()
		if event.Type == "" || event.Type == "message" {
			return event.Data, nil
		}
	}
}

// why is the cause of an error, if it is that the stream was ended.
func (s *Stream) why(err error) error {
	if s.life.Err() != nil {
		return context.Cause(s.life)
	}
	return err
}

// Note takes what is no message, and forgets it.
func (*Stream) Note([]byte) {}

// Close has the stream ended.
func (s *Stream) Close() { s.end(errClosed) }

// finish gives back what the stream holds.
func (s *Stream) finish(err error) {
	s.end(err)
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.body != nil {
		_ = s.body.Close()
	}
	s.place.Release()
}

// Use counts one more use; false: the stream is over.
func (s *Stream) Use() bool {
	s.add(1)
	if s.place.Use() && s.life.Err() == nil {
		return true
	}
	s.Rest()
	return false
}

// Rest ends one use.
func (s *Stream) Rest() {
	s.add(-1)
	s.place.Rest()
}

func (s *Stream) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count += n
	s.latest = time.Now()
}

// rested ends a stream that was not used for long.
func (s *Stream) rested() {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := idleFor
	if s.count == 0 {
		left -= time.Since(s.latest)
	}
	if left <= 0 {
		s.end(errClosed)
		return
	}
	s.timer.Reset(left)
}
