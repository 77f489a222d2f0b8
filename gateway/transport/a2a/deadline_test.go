package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// halfway answers with half a document, which ends with the deadline, as the
// guarded client has it end.
type halfway struct {
	half   string
	proper bool
}

func (h halfway) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	body := &unfinished{context: r.Context(), half: h.half, proper: h.proper}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, nil
}

type unfinished struct {
	context context.Context
	half    string
	proper  bool // the server ends what it sent as if it were whole
}

func (u *unfinished) Read(p []byte) (int, error) {
	if u.half == "" {
		<-u.context.Done()
		if u.proper {
			return 0, io.EOF
		}
		return 0, u.context.Err()
	}
	n := copy(p, u.half)
	u.half = u.half[n:]
	return n, nil
}

func (*unfinished) Close() error { return nil }

// Half an answer at the deadline is a timeout, not a bad answer, also from a server
// that sees the deadline and ends its answer properly.
func TestDial_HalfAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	sealed, _ := seal(t, hello)
	for name, proper := range map[string]bool{"broken off": false, "properly ended": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				bob := transport.Endpoint{Agent: "bob", URL: "https://bob.example", Timeout: time.Second}
				_, _, err := newDialer(t, halfway{`{"name":"Bo`, proper}).Describe(ctx, bob)
				if _, late := errors.AsType[*transport.TimeoutError](err); !late {
					t.Errorf("description: got %v, want a timeout", err)
				}
				ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err = newDialer(t, halfway{`{"jsonrpc"`, proper}).Dial(ctx, bob, sealed)
				if _, late := errors.AsType[*transport.TimeoutError](err); !late {
					t.Errorf("message: got %v, want a timeout", err)
				}
			})
		})
	}
}
