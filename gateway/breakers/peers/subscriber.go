package peers

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/directory"
	"github.com/aepb/aepb-gateway/gateway/transport"
)

// lookEvery is how soon a change of the list of peers is followed.
const lookEvery = time.Second

// Deps is what a [Subscriber] is built from. Every field is required.
type Deps struct {
	Client transport.Client
	Self   ect.Identity            // this gateway, which reads no stream of its own
	Peers  func() []directory.Peer // as they are now
	Listed func(agent ect.Identity) bool
	// Opened is told that the breaker of a gateway has opened for a listed agent.
	Opened func(ctx context.Context, agent, gateway ect.Identity)
	Logger *slog.Logger
}

// Subscriber reads the streams of all peers.
type Subscriber struct{ deps Deps }

// New makes a Subscriber. Its error says that a dependency is missing.
func New(deps Deps) (*Subscriber, error) {
	if deps.Client == nil || deps.Self == "" || deps.Peers == nil || deps.Listed == nil || deps.Opened == nil || deps.Logger == nil {
		return nil, errors.New("peers: incomplete Deps: every field is required")
	}
	return &Subscriber{deps}, nil
}

// endpoint is where a peer is asked, and who must answer there.
type endpoint struct {
	id  ect.Identity
	url string // of its translate endpoint
}

// Run reads the streams of the peers, of those that come to the list too, until ctx ends.
func (s *Subscriber) Run(ctx context.Context) {
	var streams sync.WaitGroup
	defer streams.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	running := map[endpoint]context.CancelFunc{}
	for {
		listed := map[endpoint]bool{}
		for _, p := range s.deps.Peers() {
			if p.ID != s.deps.Self {
				listed[endpoint{p.ID, p.URL}] = true
			}
		}
		for at, end := range running {
			if !listed[at] {
				end()
				delete(running, at)
			}
		}
		for at := range listed {
			if running[at] == nil {
				within, end := context.WithCancel(ctx)
				running[at] = end
				streams.Go(func() { (&stream{deps: s.deps, at: at}).run(within) })
			}
		}
		select {
		case <-ctx.Done():
			for _, end := range running {
				end()
			}
			return
		case <-tick.C:
		}
	}
}
