package a2a

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// halfway answers with half a document, which ends with the deadline, as the
// guarded client has it end.
type halfway struct{ half string }

func (h halfway) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	body := &unfinished{context: r.Context(), half: h.half}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}

type unfinished struct {
	context context.Context
	half    string
}

func (u *unfinished) Read(p []byte) (int, error) {
	if u.half == "" {
		<-u.context.Done()
		return 0, u.context.Err()
	}
	n := copy(p, u.half)
	u.half = u.half[n:]
	return n, nil
}

func (*unfinished) Close() error { return nil }

// Half an answer at the deadline is a timeout, not a bad answer.
func TestHalfAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := newDialer(t, halfway{`{"name":"Bo`}).Describe(ctx, transport.Endpoint{Agent: "bob", URL: "https://bob.example", Timeout: time.Second})
		if _, late := errors.AsType[*transport.TimeoutError](err); !late {
			t.Errorf("got %v, want a timeout", err)
		}
	})
}
