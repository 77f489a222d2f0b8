package callback_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/callback"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
)

// place answers with one status after the other, and the last again and again;
// 0 is no answer.
type place struct {
	statuses []int
	got      []string
	denied   error
}

func (p *place) Judge(string) error { return p.denied }

func (p *place) Tell(r *http.Request, _ ect.Identity, authorization string) (*http.Response, error) {
	if p.denied != nil {
		return nil, p.denied
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	p.got = append(p.got, r.Method+" "+r.URL.String()+" "+r.Header.Get(ect.HeaderName)+" "+string(body)+authorization)
	status := p.statuses[min(len(p.got), len(p.statuses))-1]
	if status == 0 {
		return nil, errors.New("broken")
	}
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader("x"))}, nil
}

func TestCallback_RetriesUntilAccepted(t *testing.T) {
	t.Parallel()
	var denied *egress.DeniedError
	var bad *transport.BadReplyError
	var broken *transport.UnreachableError
	for name, c := range map[string]struct {
		place place
		posts int
		took  time.Duration
		as    any
	}{
		"taken":            {place{statuses: []int{204}}, 1, 0, nil},
		"taken later":      {place{statuses: []int{503, 0, 200}}, 3, 2500 * time.Millisecond, nil},
		"never taken":      {place{statuses: []int{500}}, 4, 10500 * time.Millisecond, &bad},
		"never reached":    {place{statuses: []int{0}}, 4, 10500 * time.Millisecond, &broken},
		"refused for good": {place{statuses: []int{410}}, 1, 0, &bad},
		"not to be called": {place{denied: &egress.DeniedError{Reason: egress.ReasonURL}}, 0, 0, &denied},
	} {
		synctest.Test(t, func(t *testing.T) {
			teller, err := callback.New(callback.Deps{Client: &c.place})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			err = teller.Tell(t.Context(), "ann", transport.Decision{URL: "https://a.example/hook", Approval: "a1", Token: "a.b.c"})
			if (err == nil) != (c.as == nil) || err != nil && !errors.As(err, c.as) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); len(c.place.got) != c.posts || took != c.took {
				t.Errorf("%s: %d posts in %s", name, len(c.place.got), took)
			}
			for _, got := range c.place.got {
				if got != `POST https://a.example/hook a.b.c {"approval_id":"a1"}` {
					t.Errorf("%s: it is told %s", name, got)
				}
			}
		})
	}
}

func TestCallback_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		teller, err := callback.New(callback.Deps{Client: &place{statuses: []int{500}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := teller.Tell(ctx, "ann", transport.Decision{URL: "https://a.example"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if err := teller.Tell(t.Context(), "ann", transport.Decision{URL: "%"}); err == nil {
			t.Error("no URL was told something")
		}
		if err := teller.Check("https://a.example"); err != nil {
			t.Error(err)
		}
		if _, err := callback.New(callback.Deps{}); err == nil {
			t.Error("a teller without a way out")
		}
	})
}
