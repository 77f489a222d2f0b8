package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

type closer struct {
	io.Reader
	closed bool
}

func (c *closer) Close() error {
	c.closed = true
	return nil
}

func TestBody_AfterContextEndIsCanceled(t *testing.T) {
	t.Parallel()
	ctx, end := context.WithCancel(t.Context())
	half := &closer{Reader: strings.NewReader("half")}
	response, err := countBody(ctx, &http.Response{StatusCode: http.StatusOK, Body: half}, nil)
	if err != nil {
		t.Fatal(err)
	}
	end()
	if read, err := io.ReadAll(response.Body); !errors.Is(err, context.Canceled) || string(read) != "half" {
		t.Errorf("after the request's end the body ended with %v, after %q", err, read)
	}
	late := &closer{Reader: strings.NewReader("")}
	if _, err := countBody(ctx, &http.Response{StatusCode: http.StatusOK, Body: late}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a response after the request's end: %v", err)
	}
	if !late.closed {
		t.Error("its body was left open")
	}
}

func TestBody_InTimeIsUnchanged(t *testing.T) {
	t.Parallel()
	whole := &closer{Reader: iotest.DataErrReader(strings.NewReader("whole"))}
	response, err := countBody(t.Context(), &http.Response{StatusCode: http.StatusOK, Body: whole}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := io.ReadAll(response.Body); err != nil || string(read) != "whole" {
		t.Errorf("read %q, %v", read, err)
	}
	if err := response.Body.Close(); err != nil || !whole.closed {
		t.Errorf("not closed: %v", err)
	}
	connection := &closer{}
	response, err = countBody(t.Context(), &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: connection}, nil)
	if err != nil || response.Body != io.ReadCloser(connection) {
		t.Errorf("a connection that was handed over came as %T, %v", response.Body, err)
	}
	broken := errors.New("broken")
	if _, err := countBody(t.Context(), nil, broken); !errors.Is(err, broken) {
		t.Errorf("a failure came as %v", err)
	}
}

// bookings are what was booked, one after the other.
type bookings []int64

func (b *bookings) Answer(_ context.Context, n int64, _ bool) error {
	*b = append(*b, n)
	return nil
}

// read is a response with a budget.
func (b *bookings) read(t *testing.T, body string, length int64) io.ReadCloser {
	t.Helper()
	response, err := countBody(WithBudget(t.Context(), b), &http.Response{StatusCode: http.StatusOK, ContentLength: length, Body: &closer{Reader: strings.NewReader(body)}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return response.Body
}

// TestHeard_Books: what was announced is booked before it is read, what was not as it comes, and in the end as
// much as came. Little is not booked, and what is in hand stays booked when the body is closed.
func TestHeard_Books(t *testing.T) {
	t.Parallel()
	const kib = 1 << 10
	for name, c := range map[string]struct {
		size   int
		length int64
		want   bookings
	}{
		"little":                    {60 * kib, 60 * kib, nil},
		"announced":                 {300 * kib, 300 * kib, bookings{300 * kib}},
		"not announced":             {300 * kib, -1, bookings{128 * kib, 256 * kib, 512 * kib, 300 * kib}},
		"shorter than it announced": {100 * kib, 300 * kib, bookings{300 * kib, 100 * kib}},
		"more than is read":         {17 << 20, -1, bookings{128 * kib, 256 * kib, 512 * kib, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20}},
	} {
		var b bookings
		body := b.read(t, strings.Repeat("x", c.size), c.length)
		if n, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{body}, make([]byte, 64*kib)); err != nil || n != int64(c.size) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		_ = body.Close()
		if !slices.Equal(b, c.want) {
			t.Errorf("%s: booked were %v, expected %v", name, b, c.want)
		}
	}
}

// TestAttack_AgentEndsItsStreamAfterALargeEvent: an agent ends the stream of a session after a large event,
// again and again. What was booked of the event is given back with the stream: else the caller's share would be
// gone for good.
func TestAttack_AgentEndsItsStreamAfterALargeEvent(t *testing.T) {
	t.Parallel()
	var b bookings
	body := b.read(t, "data: ...", -1)
	booker, ok := body.(interface {
		BookEvent(n int64, whole bool) error
	})
	if !ok {
		t.Fatal("events of a body are not booked")
	}
	for _, n := range []int64{0, 1 << 20} {
		if err := booker.BookEvent(n, true); err != nil {
			t.Fatal(err)
		}
	}
	_ = body.Close()
	if want := (bookings{1 << 20, 0}); !slices.Equal(b, want) {
		t.Errorf("booked were %v, expected %v", b, want)
	}
}
