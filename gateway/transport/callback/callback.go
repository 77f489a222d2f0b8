package callback

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

const (
	tries   = 4                // of one decision, at most
	within  = 10 * time.Second // for one try
	pause   = 500 * time.Millisecond
	backoff = 4        // times as long after each try
	answer  = 64 << 10 // octets of an answer that are read so that the connection can be used again
)

// Client is the one door to the network for URIs that callers name.
type Client interface {
	// Judge says whether a URL may be called at all: *egress.DeniedError.
	Judge(url string) error
	// Tell sends a request with the credentials for just this server; empty: none.
	Tell(request *http.Request, authorization string) (*http.Response, error)
}

// Deps is what a Teller needs.
type Deps struct{ Client Client }

// Teller posts decisions. It keeps nothing. Safe for concurrent use.
type Teller struct{ deps Deps }

var (
	_ transport.Callbacks = (*Teller)(nil)
	_ Client              = (*egress.Guard)(nil)
)

// New checks its dependencies.
func New(deps Deps) (*Teller, error) {
	if deps.Client == nil {
		return nil, errors.New("callback: incomplete Deps")
	}
	return &Teller{deps}, nil
}

// Check judges a callback before it is kept.
func (t *Teller) Check(url string) error { return t.deps.Client.Judge(url) }

// Tell posts one decision until it is taken, four times at most. An error says
// why it was not: *egress.DeniedError, *transport.BadReplyError,
// *transport.UnreachableError, or the context's.
func (t *Teller) Tell(ctx context.Context, d transport.Decision) error {
	wait := pause
	for try := 1; ; try++ {
		again, err := t.try(ctx, d)
		if !again || try == tries {
			return err
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		wait *= backoff
	}
}

// try posts it once, and says whether it is worth while to try again.
func (t *Teller) try(ctx context.Context, d transport.Decision) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	body, err := json.Marshal(struct {
		Approval string `json:"approval_id"`
	}{d.Approval})
	if err != nil {
		return false, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, strings.NewReader(string(body)))
	if err != nil {
		return false, &egress.DeniedError{Reason: egress.ReasonURL}
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set(ect.HeaderName, d.Token)
	response, err := t.deps.Client.Tell(request, "")
	if denied, ok := errors.AsType[*egress.DeniedError](err); ok {
		return false, denied
	}
	if err != nil {
		return true, &transport.UnreachableError{Agent: request.URL.Host, Err: err}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, answer))
	_ = response.Body.Close()
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return false, nil
	}
	return passing(response.StatusCode), &transport.BadReplyError{Agent: request.URL.Host, Reason: "HTTP status " + strconv.Itoa(response.StatusCode)}
}

// passing: what is refused for such a reason may be taken later.
func passing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}
