package callback

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

const (
	tries   = 4                // of one request, at most
	within  = 10 * time.Second // for one try
	pause   = 500 * time.Millisecond
	backoff = 4        // times as long after each try
	answer  = 64 << 10 // bytes of an answer that are read so that the connection can be used again
)

// Request is a POST to a URL that a caller named.
type Request struct {
	For           ect.Identity // the caller that named it
	URL           string
	Header        http.Header
	Body          []byte
	Authorization string // for just this server; empty: none
}

// Post posts a request until it is taken, four times at most. An error says why it was
// not: *egress.DeniedError, *transport.BadReplyError, *transport.UnreachableError, or the
// context's.
func Post(ctx context.Context, client Client, r Request) error {
	wait := pause
	for try := 1; ; try++ {
		again, err := post(ctx, client, r)
		if !again || try == tries {
			return err
		}
		if !worker.Pause(ctx, wait) {
			return ctx.Err()
		}
		wait *= backoff
	}
}

// post posts it once, and says whether it is worth while to try again.
func post(ctx context.Context, client Client, r Request) (again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return false, &egress.DeniedError{Reason: egress.ReasonURL}
	}
	request.Header = r.Header.Clone()
	response, err := client.Tell(request, r.For, r.Authorization)
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
	return passing(response.StatusCode), transport.BadStatus(transport.Endpoint{Agent: request.URL.Host}, "HTTP status "+strconv.Itoa(response.StatusCode), response.StatusCode, response.Header)
}

// passing reports whether a request that was refused with this status may be taken later.
func passing(status int) bool {
	return status >= 500 || status == http.StatusRequestTimeout || status == http.StatusTooEarly || status == http.StatusTooManyRequests
}
