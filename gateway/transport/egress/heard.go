package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
)

// heard is a response as it was heard before the request ended. At a request's
// end its connection is closed, which the server hears: it may end its answer
// properly, and nothing, or half an answer, would pass for the whole.
func heard(ctx context.Context, response *http.Response, err error) (*http.Response, error) {
	switch cause := ctx.Err(); {
	case err != nil:
		return nil, err
	case cause != nil:
		return nil, errors.Join(cause, response.Body.Close())
	case response.StatusCode != http.StatusSwitchingProtocols: // there the body is the connection
		response.Body = &hearing{response.Body, ctx}
	}
	return response, nil
}

// hearing is a body whose end counts only while the request goes on.
type hearing struct {
	io.ReadCloser
	ctx context.Context //nolint:containedctx // the request's, as in net/http
}

// Read implements io.Reader.
func (h *hearing) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		if cause := h.ctx.Err(); cause != nil {
			return n, cause
		}
	}
	return n, err
}
