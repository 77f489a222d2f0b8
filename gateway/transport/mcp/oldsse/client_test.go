package oldsse_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/mcp/oldsse"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/policy/quota"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a network in memory: it answers a POST with status, and a GET with the stream that
// the test writes.
type world struct {
	mu       sync.Mutex
	posts    []string
	expected []ect.Identity
	streams  []*io.PipeWriter
	status   int           // of POSTs
	waits    chan struct{} // POSTs wait for it; nil: they do not
	greeting string        // what a stream begins with
	get      func(*http.Request) *http.Response
}

func (w *world) DoAs(r *http.Request, expected ect.Identity) (*http.Response, error) {
	w.mu.Lock()
	w.expected = append(w.expected, expected)
	waits, status, get := w.waits, w.status, w.get
	w.mu.Unlock()
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		w.mu.Lock()
		w.posts = append(w.posts, r.URL.String()+" "+string(body))
		w.mu.Unlock()
		if waits != nil {
			select {
			case <-waits:
			case <-r.Context().Done():
				return nil, r.Context().Err()
			}
		}
		return answer(status, "text/plain", http.NoBody), nil
	}
	if get != nil {
		return get(r), nil
	}
	out, in := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = in.CloseWithError(r.Context().Err()) })
	w.mu.Lock()
	w.streams = append(w.streams, in)
	greeting := w.greeting
	w.mu.Unlock()
	return answer(http.StatusOK, "text/event-stream; charset=utf-8", io.NopCloser(io.MultiReader(strings.NewReader(greeting), out))), nil
}

func answer(status int, media string, body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {media}}, Body: body}
}

func (w *world) stream(i int) *io.PipeWriter {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.streams[i]
}

func (w *world) posted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.posts
}

const (
	home    = "https://old.example/sse"
	welcome = "event: endpoint\ndata: /messages?id=7\n\n"
)

func newWorld() *world { return &world{status: http.StatusAccepted, greeting: welcome} }

func newClient(t *testing.T, w *world) *oldsse.Client {
	t.Helper()
	c, err := oldsse.NewClient(oldsse.ClientDeps{Client: w, BodyLimit: 1 << 10, Total: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var ada = oldsse.Owner{Agent: "old", Caller: "spiffe://td/ada", Server: "spiffe://td/old"}

func open(t *testing.T, c *oldsse.Client, owner oldsse.Owner) *oldsse.Stream {
	t.Helper()
	s, err := c.Open(t.Context(), owner, home)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drain reads a stream to its end, as package channel does.
func drain(s *oldsse.Stream) (messages []string, err error) {
	for {
		message, err := s.Receive()
		if err != nil {
			return messages, err
		}
		messages = append(messages, string(message))
	}
}

// TestStream_BothWays: messages are posted to the endpoint, as the identity that is expected
// at the stream, and what comes is what events of the type message say.
func TestStream_BothWays(t *testing.T) {
	t.Parallel()
	w := newWorld()
	c := newClient(t, w)
	s := open(t, c, ada)
	var work sync.WaitGroup
	work.Go(func() {
		_, _ = io.WriteString(w.stream(0), ": x\n\nevent: message\ndata: 1\n\nevent: ping\ndata: 2\n\ndata: 3\n\n"+
			"event: endpoint\ndata: https://evil.example/\n\n")
		_ = w.stream(0).Close()
	})
	if err := s.Send(t.Context(), []byte("m")); err != nil {
		t.Error(err)
	}
	messages, err := drain(s)
	if strings.Join(messages, " ") != "1 3" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %q, %v", messages, err)
	}
	work.Wait()
	c.Wait()
	if got := w.posted(); len(got) != 1 || got[0] != "https://old.example/messages?id=7 m" {
		t.Errorf("posted %q", got)
	}
	for _, id := range w.expected {
		if id != ada.Server {
			t.Errorf("expected %q", id)
		}
	}
	if err := s.Send(t.Context(), []byte("late")); err == nil || s.Use() || len(w.posted()) != 1 {
		t.Errorf("after the end: %v, %q", err, w.posted())
	}
	if used := c.Usage().Used; used != 0 {
		t.Errorf("%d places are taken", used)
	}
}

// TestOpen_Refuses: what does not begin as a stream of this transport, and an endpoint that
// is elsewhere, open nothing.
func TestOpen_Refuses(t *testing.T) {
	t.Parallel()
	stream := func(text string) func(*http.Request) *http.Response {
		return func(*http.Request) *http.Response {
			return answer(http.StatusOK, sse.Media, io.NopCloser(strings.NewReader(text)))
		}
	}
	for name, get := range map[string]func(*http.Request) *http.Response{
		"another origin":                           stream("event: endpoint\ndata: https://evil.example/m\n\n"),
		"another port":                             stream("event: endpoint\ndata: https://old.example:8443/m\n\n"),
		"another scheme":                           stream("event: endpoint\ndata: http://old.example/m\n\n"),
		"another host, relative to the scheme":     stream("event: endpoint\ndata: //evil.example/m\n\n"),
		"another host, as browsers read it":        stream("event: endpoint\ndata: \\\\evil.example/m\n\n"),
		"a name and a password":                    stream("event: endpoint\ndata: https://a:b@old.example/m\n\n"),
		"no endpoint event":                        stream("event: message\ndata: {}\n\n"),
		"messages, and never an endpoint event":    stream(strings.Repeat("event: message\ndata: {}\n\n", 100)),
		"an endpoint event of more than the bound": stream("event: endpoint\ndata: /" + strings.Repeat("x", 2048) + "\n\n"),
		"no stream": func(*http.Request) *http.Response {
			return answer(http.StatusMethodNotAllowed, "text/plain", http.NoBody)
		},
		"a page": func(*http.Request) *http.Response {
			return answer(http.StatusOK, "text/html", http.NoBody)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld()
			w.get = get
			c := newClient(t, w)
			_, err := c.Open(t.Context(), ada, home)
			var bad *transport.BadReplyError
			if !errors.As(err, &bad) || bad.Agent != "old" {
				t.Errorf("got %v, want a bad reply", err)
			}
			if none := name == "no stream" || name == "a page"; errors.Is(err, oldsse.ErrNoStream) != none {
				t.Errorf("no stream at all: %v", err)
			}
			if used := c.Usage().Used; used != 0 || len(w.posted()) > 0 {
				t.Errorf("%d places, posted %q", used, w.posted())
			}
		})
	}
}

// TestOpen_EndsWithItsTime: a server that never says where to post is left after ten seconds,
// or when the caller goes away.
func TestOpen_EndsWithItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.greeting = ": patience\n\n"
		c := newClient(t, w)
		began := time.Now()
		_, err := c.Open(t.Context(), ada, home)
		var bad *transport.BadReplyError
		if took := time.Since(began); !errors.As(err, &bad) || took != 10*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := c.Open(ctx, ada, home); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 11*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

// TestAttack_StreamOfAServerWithoutEnd: an event, and a stream without end, end the session.
func TestAttack_StreamOfAServerWithoutEnd(t *testing.T) {
	t.Parallel()
	for name, what := range map[string]string{"event": "data: " + strings.Repeat("x", 2000) + "\n\n", "stream": ": " + strings.Repeat("x", 1000) + "\n\n"} {
		w := newWorld()
		c := newClient(t, w)
		s := open(t, c, ada)
		var work sync.WaitGroup
		work.Go(func() {
			for {
				if _, err := io.WriteString(w.stream(0), what); err != nil {
					return
				}
			}
		})
		_, err := drain(s)
		var limit *sse.LimitError
		if !errors.As(err, &limit) || limit.What != name {
			t.Errorf("%s: %v", name, err)
		}
		work.Wait()
	}
}

// TestOpen_CallersHaveShares: a caller has sixteen streams that are in use; of those that are
// not the one used longest ago gives way, and others have their own.
func TestOpen_CallersHaveShares(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := newClient(t, w)
		var receiving sync.WaitGroup
		streams := make([]*oldsse.Stream, 16)
		follow := func(owner oldsse.Owner) *oldsse.Stream {
			s := open(t, c, owner)
			receiving.Go(func() { _, _ = drain(s) })
			return s
		}
		for i := range streams {
			streams[i] = follow(ada)
		}
		var exceeded *quota.ExceededError
		if _, err := c.Open(t.Context(), ada, home); !errors.As(err, &exceeded) {
			t.Errorf("one more: %v", err)
		}
		other := follow(oldsse.Owner{Agent: "old", Caller: "spiffe://td/bob"})
		streams[3].Rest()
		more := follow(ada)
		synctest.Wait()
		if streams[3].Use() || !streams[4].Use() {
			t.Error("another one gave way than the one that is not used")
		}
		for _, s := range append(streams, other, more) {
			s.Close()
		}
		receiving.Wait()
	})
}

// TestStream_EndsWhenItIsNotUsed: and not before.
func TestStream_EndsWhenItIsNotUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := newClient(t, w)
		s := open(t, c, ada)
		var receiving sync.WaitGroup
		receiving.Go(func() { _, _ = drain(s) })
		time.Sleep(12 * time.Minute)
		if !s.Use() {
			t.Error("it ended while it was used")
		}
		s.Rest()
		s.Rest()
		time.Sleep(6 * time.Minute)
		if s.Use() {
			t.Error("it goes on although nobody uses it")
		}
		receiving.Wait()
	})
}

// TestSend_SlowServers: a server that answers a POST when it has done what it asks is waited
// for until it says anything; a POST that fails later takes the session along.
func TestSend_SlowServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.waits = make(chan struct{})
		c := newClient(t, w)
		s := open(t, c, ada)
		var work sync.WaitGroup
		ended := make(chan error, 1)
		work.Go(func() { _, err := drain(s); ended <- err })
		sent := make(chan error, 1)
		work.Go(func() { sent <- s.Send(t.Context(), []byte("m")) })
		synctest.Wait()
		select {
		case err := <-sent:
			t.Errorf("it did not wait: %v", err)
		default:
		}
		_, _ = io.WriteString(w.stream(0), "data: a question\n\n")
		if err := <-sent; err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		w.status = http.StatusInternalServerError
		w.mu.Unlock()
		s2 := open(t, c, ada)
		work.Go(func() { _, _ = drain(s2) })
		work.Go(func() { sent <- s2.Send(t.Context(), []byte("n")) })
		synctest.Wait()
		close(w.waits)
		var bad *transport.BadReplyError
		if err := <-sent; !errors.As(err, &bad) {
			t.Errorf("a POST that fails: %v", err)
		}
		if !s2.Use() {
			t.Error("it took the session along, although the server had not said anything")
		}
		s.Close()
		s2.Close()
		work.Wait()
		c.Wait()
		if err := <-ended; err == nil {
			t.Error("a stream that was closed ended without an error")
		}
	})
}

// TestAttack_ServerThatAnswersNoPost: the messages that they leave open are bounded.
func TestAttack_ServerThatAnswersNoPost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.waits = make(chan struct{})
		c := newClient(t, w)
		s := open(t, c, ada)
		var work sync.WaitGroup
		ended := make(chan error, 1)
		work.Go(func() { _, err := drain(s); ended <- err })
		for range 65 {
			work.Go(func() { _ = s.Send(t.Context(), []byte("m")) })
		}
		if err := <-ended; !strings.Contains(err.Error(), "64 POSTs") {
			t.Errorf("ended with %v", err)
		}
		work.Wait()
		c.Wait()
	})
}

func TestEndpoint_ResolvesReferences(t *testing.T) {
	t.Parallel()
	base, _ := url.Parse("https://old.example:443/a/sse?key=1")
	for in, want := range map[string]string{
		"/m?id=1": "https://old.example:443/m?id=1", "m": "https://old.example:443/a/m", "?id=2": "https://old.example:443/a/sse?id=2",
		"https://OLD.example/m#x": "https://OLD.example/m", "../../m": "https://old.example:443/m",
	} {
		if got, err := oldsse.Endpoint(base, []byte(in)); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, got, err, want)
		}
	}
}

func FuzzEndpoint_SameOrigin(f *testing.F) {
	for _, seed := range []string{"/messages/?session_id=1", "https://old.example/m", "//evil.example/", "https:evil", "\\\\evil.example", "https://old.example@evil.example/", "http://[::1]/", "?a", "#"} {
		f.Add(seed)
	}
	base, _ := url.Parse(home)
	f.Fuzz(func(t *testing.T, in string) {
		got, err := oldsse.Endpoint(base, []byte(in))
		if err != nil {
			return
		}
		again, err := url.Parse(got.String())
		if err != nil || again.Scheme != "https" || !strings.EqualFold(again.Hostname(), "old.example") || again.User != nil || again.Fragment != "" {
			t.Errorf("%q leads to %v (%v)", in, got, err)
		}
		if p := again.Port(); p != "" && p != "443" {
			t.Errorf("%q leads to port %s", in, p)
		}
		request := httptest.NewRequest(http.MethodPost, got.String(), http.NoBody)
		if !strings.EqualFold(request.URL.Hostname(), "old.example") {
			t.Errorf("%q is sent to %s", in, request.Host)
		}
	})
}
