package egress

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
)

// countBody is a response as it was received before the request ended. At a request's
// end its connection is closed, which the server sees: it may end its answer
// properly, and nothing, or half an answer, would pass for the whole.
func countBody(ctx context.Context, response *http.Response, err error) (*http.Response, error) {
	switch cause := ctx.Err(); {
	case err != nil:
		return nil, err
	case cause != nil:
		return nil, errors.Join(cause, response.Body.Close())
	case response.StatusCode != http.StatusSwitchingProtocols: // there the body is the connection
		response.Body = &contextBody{ReadCloser: response.Body, ctx: ctx, budget: BudgetFrom(ctx), length: response.ContentLength}
	}
	return response, nil
}

// Budget is where the bytes of answers are booked while they are read: in the share of the caller for
// whom they are.
type Budget interface {
	// Answer books n bytes in place of those booked before, and waits until there is space for them.
	// whole: no more will be booked of this answer. An error ends the reading.
	Answer(ctx context.Context, n int64, whole bool) error
}

type budgetKey struct{}

// WithBudget marks the context of a request with where its answers are booked.
func WithBudget(ctx context.Context, budget Budget) context.Context {
	return context.WithValue(ctx, budgetKey{}, budget)
}

// BudgetFrom is where the answers of a request are booked; nil: nowhere.
func BudgetFrom(ctx context.Context) Budget {
	budget, _ := ctx.Value(budgetKey{}).(Budget)
	return budget
}

// The bytes from which on an answer is booked, and those up to which: more is not read of any.
const (
	unbooked = 64 << 10
	largest  = 16 << 20
)

// contextBody is a body whose end counts only while the request goes on, and whose bytes are booked: those
// that were announced before they are read, others as they come.
type contextBody struct {
	io.ReadCloser
	ctx    context.Context //nolint:containedctx // the request's, as in net/http
	budget Budget          // nil: nothing is booked
	length int64           // as the response says it; less than one: unknown
	read   int64
	booked int64 // bytes
	events bool  // they are booked event by event
}

// Read implements io.Reader.
func (h *contextBody) Read(p []byte) (int, error) {
	if err := h.grow(); err != nil {
		return 0, err
	}
	n, err := h.ReadCloser.Read(p)
	h.read += int64(n)
	if errors.Is(err, io.EOF) {
		if cause := h.ctx.Err(); cause != nil {
			return n, cause
		}
		if !h.events && h.booked > h.read {
			return n, cmp.Or(h.book(h.read, true), err)
		}
	}
	return n, err
}

// Close ends the reading. What is still booked of events is given back: no one has them then.
func (h *contextBody) Close() error {
	if h.events && h.booked > 0 {
		_ = h.book(0, true) // which never waits
	}
	return h.ReadCloser.Close()
}

// grow books what comes next of a body.
func (h *contextBody) grow() error {
	switch {
	case h.budget == nil || h.events || h.read < h.booked || h.booked >= largest:
	case h.length > 0: // of which no more comes
		if h.length > unbooked && h.booked == 0 {
			return h.book(min(h.length, largest), true)
		}
	case h.read >= unbooked:
		return h.book(min(2*h.read, largest), false)
	}
	return nil
}

func (h *contextBody) book(n int64, whole bool) error {
	h.booked = n
	return h.budget.Answer(h.ctx, n, whole)
}

// BookEvent books an event of n bytes, and no more the one before it; whole: it has no more. Who reads
// events from a body calls it, before the first one with zero.
func (h *contextBody) BookEvent(n int64, whole bool) error {
	h.events = true
	if h.budget == nil || n <= unbooked && h.booked == 0 {
		return nil
	}
	return h.book(n, whole)
}
