package mcp_test

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
	wire "github.com/aepb/aepb-gateway/gateway/transport/mcp"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/mcp"
)

// halfway answers with half a document, which ends with the deadline, as the
// guarded client has it end.
type halfway struct {
	media, half string
	proper      bool
}

func (h halfway) DoAs(r *http.Request, _ ect.Identity) (*http.Response, error) {
	body := &unfinished{context: r.Context(), half: h.half, proper: h.proper}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {h.media}}, Body: body}, nil
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

// Half an answer at the deadline is a timeout, not a bad answer.
func TestDial_HalfAnswerAtTheDeadline(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]halfway{
		"document":                 {"application/json", `{"jsonrpc":"2.0","id":"ae`, false},
		"document, properly ended": {"application/json", `{"jsonrpc":"2.0","id":"ae`, true},
		"events":                   {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":\"ae\n", false},
		"events, properly ended":   {"text/event-stream", "data: {\"jsonrpc\":\"2.0\",\"id\":\"ae\n", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dialer, err := wire.NewDialer(wire.DialerDeps{Client: client, Form: mcp.New(translators.Config{})})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, _, err = dialer.Describe(ctx, transport.Endpoint{Agent: "bob", URL: "https://bob.example", Version: mcp.Modern, Timeout: time.Second})
				if _, late := errors.AsType[*transport.TimeoutError](err); !late {
					t.Errorf("got %v, want a timeout", err)
				}
			})
		})
	}
}
