package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/gateway/transport/egress"
	"github.com/aepb/aepb-gateway/translators"
	"github.com/aepb/aepb-gateway/translators/canonical"
)

// hook is a webhook that answers as it is told, one answer after the other.
type hook struct {
	answers []any // a status, or an error
	got     []*http.Request
	bodies  []string
	given   []string
	at      []time.Time
}

func (h *hook) Judge(string) error { return &egress.DeniedError{Reason: egress.ReasonScheme} }

func (h *hook) Tell(r *http.Request, _ ect.Identity, authorization string) (*http.Response, error) {
	body, _ := io.ReadAll(r.Body)
	h.got, h.bodies, h.given, h.at = append(h.got, r), append(h.bodies, string(body)), append(h.given, authorization), append(h.at, time.Now())
	answer := h.answers[0]
	h.answers = h.answers[1:]
	if err, ok := answer.(error); ok {
		return nil, err
	}
	return &http.Response{StatusCode: answer.(int), Body: io.NopCloser(strings.NewReader("x"))}, nil
}

// TestPush_Retries: what passes is tried again, a few times and later each time; what
// does not pass is not.
func TestPush_Retries(t *testing.T) {
	t.Parallel()
	reason := errors.New("lost")
	for name, c := range map[string]struct {
		answers []any
		tries   int
		want    any // nil: it was taken
	}{
		"taken":        {[]any{204}, 1, nil},
		"taken later":  {[]any{503, reason, 429, 200}, 4, nil},
		"never":        {[]any{500, 500, 500, 500}, 4, new(*transport.BadReplyError)},
		"out of reach": {[]any{reason, reason, reason, reason}, 4, new(*transport.UnreachableError)},
		"refused":      {[]any{404}, 1, new(*transport.BadReplyError)},
		"elsewhere":    {[]any{307}, 1, new(*transport.BadReplyError)},
		"denied":       {[]any{&egress.DeniedError{}}, 1, new(*egress.DeniedError)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := &hook{answers: c.answers}
				p, err := NewPusher(PusherDeps{Client: h})
				if err != nil {
					t.Fatal(err)
				}
				config := canonical.PushConfig{URL: "https://h.example/x", Token: "tok", Scheme: "Bearer", Credentials: "secret"}
				sealed, token := sealAny(t, translators.Wire{Body: []byte(`{"task":{}}`)}, "ancestor")
				err = p.Push(t.Context(), "spiffe://example.org/ann", config, sealed)
				if c.want == nil && err != nil || c.want != nil && !errors.As(err, c.want) {
					t.Errorf("got %v", err)
				}
				if len(h.got) != c.tries {
					t.Fatalf("%d tries", len(h.got))
				}
				for i, r := range h.got {
					if r.Method != http.MethodPost || h.given[i] != "Bearer secret" || h.bodies[i] != `{"task":{}}` ||
						r.Header.Get("Content-Type") != "application/a2a+json" || r.Header.Get("A2A-Notification-Token") != "tok" ||
						!slices.Equal(r.Header.Values("Execution-Context"), []string{token, "ancestor"}) {
						t.Errorf("%s %v %s %s", r.Method, r.Header, h.bodies[i], h.given[i])
					}
					if i > 1 && h.at[i].Sub(h.at[i-1]) <= h.at[i-1].Sub(h.at[i-2]) {
						t.Error("the pauses do not grow")
					}
				}
			})
		})
	}
}

func TestPush_CanceledOrUnsealed(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, _ := NewPusher(PusherDeps{Client: &hook{answers: []any{500, 500}}})
	sealed, _ := sealAny(t, translators.Wire{Body: []byte("{}")})
	if err := p.Push(ctx, "spiffe://example.org/ann", canonical.PushConfig{URL: "https://h.example"}, sealed); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if err := p.Push(t.Context(), "spiffe://example.org/ann", canonical.PushConfig{URL: "https://h.example"}, transport.Sealed{}); !errors.Is(err, transport.ErrUnsealed) {
		t.Errorf("without evidence: %v", err)
	}
}

func TestPusher_ChecksConfig(t *testing.T) {
	t.Parallel()
	if _, err := NewPusher(PusherDeps{}); err == nil {
		t.Error("made of nothing")
	}
	p, _ := NewPusher(PusherDeps{Client: &hook{}})
	if err := p.Check(canonical.PushConfig{URL: "http://h.example"}); !errors.As(err, new(*egress.DeniedError)) {
		t.Errorf("got %v", err)
	}
	for version, want := range map[string]string{"": "HTTP+JSON", "1.0": "HTTP+JSON", "0.3": "push"} {
		if got, whole := p.Form(version); got != want || whole != (version == "0.3") {
			t.Errorf("%s: form %s, whole %t", version, got, whole)
		}
	}
	sealed, _ := sealAny(t, translators.Wire{Body: []byte("{}")})
	for name, bad := range map[string]canonical.PushConfig{
		"a line break":     {URL: "https://h", Scheme: "Bearer", Credentials: "a\r\nX: y"},
		"no scheme at all": {URL: "https://h", Scheme: "a b", Credentials: "c"},
		"a token":          {URL: "https://h", Token: "\x00"},
	} {
		if err := p.Push(t.Context(), "spiffe://example.org/ann", bad, sealed); !errors.As(err, new(*canonical.Error)) {
			t.Errorf("%s: got %v", name, err)
		}
		if err := p.Check(bad); !errors.As(err, new(*canonical.Error)) {
			t.Errorf("%s is accepted: %v", name, err)
		}
	}
}
