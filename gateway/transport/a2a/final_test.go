package a2a

import (
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/translators"
	form "github.com/aepb/aepb-gateway/translators/a2a"
)

// TestDial_FinalEvent: a stream of 0.3 ends with the status update that it calls final. The
// agent's evidence may follow, other events are not heard, and an agent that leaves its
// stream open is not waited for.
func TestDial_FinalEvent(t *testing.T) {
	t.Parallel()
	const (
		head  = `{"jsonrpc":"2.0","id":"q1","result":`
		last  = `{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"completed"},"final":true}`
		other = `{"kind":"status-update","taskId":"t","contextId":"c","status":{"state":"working"},"final":false}`
	)
	rpc := translators.Wire{Binding: form.Binding, Version: form.Version03, Body: []byte(`{"jsonrpc":"2.0","id":"q1","method":"message/stream","params":{}}`)}
	rest := translators.Wire{Binding: form.Binding, Version: form.Version03, Form: form.FormHTTP, Verb: http.MethodPost, Path: "/v1/message:stream", Body: []byte(hello03HTTP)}
	for name, c := range map[string]struct {
		wire   translators.Wire
		events []string // that are heard
		after  string
		open   bool
	}{
		"JSON-RPC": {rpc, []string{head + other + "}", head + last + "}"}, head + other + "}", false},
		"open":     {rpc, []string{head + last + "}"}, head + other + "}", true},
		"HTTP":     {rest, []string{`{"statusUpdate":{"taskId":"t","final":true}}`}, `{"statusUpdate":{"taskId":"t","final":false}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, e, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Trailer", ect.HeaderName)
				events(w, append(c.events, c.after, c.after)...)
				if c.open {
					<-r.Context().Done()
				}
				w.Header().Set(ect.HeaderName, "close.b.c")
			})
			e.Version, e.Form = c.wire.Version, c.wire.Form
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			reply, err := d.Dial(ctx, e, sealWire(t, c.wire))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reply.Events.Close() }()
			for _, want := range c.events {
				if event, err := reply.Events.Next(ctx); err != nil || string(event.Wire.Body) != want {
					t.Fatalf("%s %v", event.Wire.Body, err)
				}
			}
			event, err := reply.Events.Next(ctx)
			if !c.open && (err != nil || !cmp.Equal(event.Evidence, []string{"close.b.c"})) {
				t.Errorf("%+v %v", event, err)
			}
			if !c.open {
				_, err = reply.Events.Next(ctx)
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("%s %v", event.Wire.Body, err)
			}
		})
	}
}
