package oauth

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aepb/aepb-gateway/ect/internal/jose"
)

// Exit is the way to the network. authorization is the value of that field; empty: none. It follows
// no redirect. The caller closes the body.
type Exit func(request *http.Request, authorization string) (*http.Response, error)

// statusError: a server answered, and not with 200.
type statusError struct {
	status int
	client bool // it refuses who asks (RFC 6749 section 5.2), and not the question
}

func (e *statusError) Error() string { return fmt.Sprintf("oauth: status %d, expected 200", e.status) }

// lengthError: an answer is longer than it may be.
type lengthError struct{ limit int }

func (e *lengthError) Error() string {
	return fmt.Sprintf("oauth: an answer of more than %d bytes", e.limit)
}

// fetch sends a request and reads its answer of at most limit bytes, within a time.
func (exit Exit) fetch(ctx context.Context, request *http.Request, authorization string, within time.Duration, limit int) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	request.Header.Set("Accept", "application/json")
	response, err := exit(request.WithContext(ctx), authorization)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, nil, &statusError{response.StatusCode, refusesClient(response.Body)}
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, int64(limit)+1))
	switch {
	case err != nil:
		return nil, nil, err
	case len(body) > limit:
		return nil, nil, &lengthError{limit}
	}
	return body, response.Header, nil
}

// maxRefusal bounds what is read of a refusal, bytes.
const maxRefusal = 4 << 10

// refusesClient reports whether a refusal says that who asks is at fault.
func refusesClient(body io.Reader) bool {
	text, err := io.ReadAll(io.LimitReader(body, maxRefusal))
	if err != nil {
		return false
	}
	refusal, err := jose.ParseClaims(&jose.Scanner{}, text, "refusal")
	return err == nil && slices.Contains([]string{"invalid_client", "unauthorized_client"}, refusal.Text("error"))
}

// get is fetch of a URL.
func (exit Exit) get(ctx context.Context, url string, within time.Duration, limit int) ([]byte, http.Header, error) {
	request, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, nil, err
	}
	return exit.fetch(ctx, request, "", within, limit)
}
