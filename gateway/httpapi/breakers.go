package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/breakers"
	"github.com/aepb/aepb-gateway/gateway/problem"
	"github.com/aepb/aepb-gateway/gateway/transport"
	"github.com/aepb/aepb-gateway/policy"
)

// Breakers is how circuit breakers stand.
type Breakers interface {
	List() []breakers.Event
	// Watch returns the changes from now on, until the function is called. Its error is a
	// *[quota.ExceededError].
	Watch(who ect.Identity) (changes <-chan breakers.Event, end func(), err error)
}

// breakersBeat is how often a stream without news says that it goes on.
const breakersBeat = 15 * time.Second

// BreakerStream serves GET /atd/breakers: how all breakers stand, and each change, as
// server-sent events (ATD, Coordinated Circuit Breaking). What it says reveals the health
// of agents, so it is for those whom Watches lets in (ATD, Circuit Breaker State Leakage).
type BreakerStream struct {
	Breakers Breakers                // nil: there are none
	Watches  func(ect.Identity) bool // whether a caller may watch them; nil: none may
}

func (s BreakerStream) serve(c *gin.Context) {
	caller := transport.CallerFrom(c.Request.Context())
	if caller.Anonymous || s.Watches == nil || !s.Watches(caller.ID) {
		problem.Write(c.Writer, c.Request, &policy.Forbidden{Reason: "circuit breakers are for operators and other gateways"})
		return
	}
	changes, end, err := s.Breakers.Watch(caller.ID)
	if err != nil {
		problem.Write(c.Writer, c.Request, err)
		return
	}
	defer end()
	c.Header("Content-Type", "text/event-stream")
	c.Header("Cache-Control", "no-store")
	out := eventWriter{c.Writer, http.NewResponseController(c.Writer)}
	for _, e := range s.Breakers.List() {
		if out.event(e) != nil {
			return
		}
	}
	out.follow(c.Request.Context(), changes)
}

// eventWriter writes server-sent events.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o eventWriter) event(e breakers.Event) error {
	data, err := json.Marshal(e)
	if err != nil {
		return err
	}
	return o.write("event: breaker\ndata: " + string(data) + "\n\n")
}

func (o eventWriter) write(text string) error {
	_, err := o.w.Write([]byte(text))
	return errors.Join(err, o.control.Flush())
}

// follow writes changes until they end, or the reader does.
func (o eventWriter) follow(ctx context.Context, changes <-chan breakers.Event) {
	beat := time.NewTicker(breakersBeat)
	defer beat.Stop()
	err := o.write(": \n\n")
	for err == nil {
		select {
		case e, open := <-changes:
			if !open {
				return
			}
			err = o.event(e)
		case <-beat.C:
			err = o.write(": \n\n")
		case <-ctx.Done():
			return
		}
	}
}

// listBreakers is how all stand, for operators.
func (a admin) listBreakers(c *gin.Context) {
	list := a.deps.Breakers.List()
	if list == nil {
		list = []breakers.Event{}
	}
	c.JSON(http.StatusOK, gin.H{"breakers": list})
}
