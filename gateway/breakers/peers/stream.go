package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport/sse"
	"github.com/aepb/aepb-gateway/gateway/worker"
	"github.com/aepb/aepb-gateway/lifecycle/breaker"
)

// Bounds of one stream.
const (
	maxEvent  = 64 << 10 // bytes: eight times the largest token, which is most of an event
	maxStream = 16 << 20 // bytes, comments included: some thousand events, then the stream begins anew
	maxEvents = 1 << 16
	maxAgents = 256         // whose breakers have not closed yet, at one peer
	silence   = time.Minute // four of the comments that show that a stream goes on
)

var errSilent = fmt.Errorf("nothing came for %s, expected a comment every 15 s", silence)

// refusedError says that a gateway did not answer with a stream.
type refusedError struct {
	status int
	media  string
}

func (e *refusedError) Error() string {
	switch {
	case e.lasting():
		return fmt.Sprintf("status %d: list this gateway among the peers there", e.status)
	case e.status == http.StatusOK:
		return fmt.Sprintf("media type %.40q, expected text/event-stream", e.media)
	}
	return fmt.Sprintf("status %d, expected 200", e.status)
}

// lasting reports whether only an operator of the other gateway can change the answer.
func (e *refusedError) lasting() bool {
	return e.status == http.StatusForbidden || e.status == http.StatusNotFound
}

// stream reads at one peer how breakers stand.
type stream struct {
	deps Deps
	at   endpoint
	pace pace
}

// run reads until ctx ends, from one connection after the other.
func (s *stream) run(ctx context.Context) {
	failures, refused := 0, false
	for {
		began := time.Now()
		err := s.read(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) >= goodAfter && !errors.Is(err, errSilent) {
			failures, refused = 0, false
		}
		wait := delay(failures)
		status, isRefused := errors.AsType[*refusedError](err)
		lasting := isRefused && status.lasting()
		if lasting {
			wait = refusedDelay
		}
		if failures == 0 || lasting && !refused { // once for each series
			s.deps.Logger.WarnContext(ctx, "the circuit breakers of another gateway cannot be read, it is tried again in silence",
				slog.String("gateway", string(s.at.id)), slog.Any("error", err), slog.Duration("again_in", wait))
		}
		failures, refused = failures+1, refused || lasting
		if !worker.Pause(ctx, jitter(wait)) {
			return
		}
	}
}

// read reads from one connection until it ends, and says why it did.
func (s *stream) read(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	body, err := s.open(ctx)
	if err == nil {
		err = s.events(ctx, sse.NewReader(&watched{body, watch}, sse.Limits{Event: maxEvent, Events: maxEvents, Total: maxStream}))
		err = errors.Join(err, body.Close())
	}
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// open asks the peer for its stream. The caller closes the body.
func (s *stream) open(ctx context.Context) (io.ReadCloser, error) {
	translate, err := url.Parse(s.at.url)
	if err != nil {
		return nil, err
	}
	target := url.URL{Scheme: translate.Scheme, Host: translate.Host, Path: "/atd/breakers"}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	response, err := s.deps.Client.DoAs(request, s.at.id)
	if err != nil {
		return nil, err
	}
	media, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if response.StatusCode != http.StatusOK || media != "text/event-stream" {
		return nil, errors.Join(&refusedError{response.StatusCode, media}, response.Body.Close())
	}
	return response.Body, nil
}

// watched puts off the end of a stream for each time that something comes.
type watched struct {
	io.Reader

	watch *time.Timer
}

// Read implements io.Reader.
func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.watch.Reset(silence)
	}
	return n, err
}

// event is what is read of an event: {"agent":ID,"state":STATE,"at":TIME} among other members.
type event struct {
	Agent ect.Identity `json:"agent"`
	State string       `json:"state"`
	At    time.Time    `json:"at"` // of the change, by the clock there
}

// events takes events until the stream ends. Its error says why: io.EOF, that of the network, a
// [sse.LimitError], or that an event is no JSON object of the right form.
func (s *stream) events(ctx context.Context, in *sse.Reader) error {
	failing := map[ect.Identity]bool{} // agents whose breaker there has not closed since it opened
	for {
		next, err := in.Next()
		if err != nil {
			return err
		}
		if next.Type == "breaker" {
			var e event
			if err := json.Unmarshal(next.Data, &e); err != nil {
				return errors.New("an event is no circuit breaker: expected a JSON object with agent, state and at, each once")
			}
			s.take(ctx, e, failing)
		}
		if wait := s.pace.read(time.Now()); wait > 0 && !worker.Pause(ctx, wait) {
			return ctx.Err()
		}
	}
}

// take counts a breaker that has opened, unless it has opened before and did not close since, as it does
// when a probe fails, or has opened long ago: a stream begins with how all breakers stand.
func (s *stream) take(ctx context.Context, e event, failing map[ect.Identity]bool) {
	known := failing[e.Agent]
	switch {
	case e.State == breaker.Closed.String():
		delete(failing, e.Agent)
		return
	case e.State != breaker.Open.String() && e.State != breaker.HalfOpen.String() || !s.deps.Listed(e.Agent):
		return
	case known || len(failing) < maxAgents:
		failing[e.Agent] = true
	}
	if e.State == breaker.Open.String() && !known && time.Since(e.At).Abs() <= breaker.EscalateWithin {
		s.deps.Opened(ctx, e.Agent, s.at.id)
	}
}
