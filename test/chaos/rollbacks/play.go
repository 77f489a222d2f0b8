package rollbacks

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// phase is a part of the life of a workflow that is rolled back.
type phase string

const (
	checkpointing phase = "checkpointing"
	calling       phase = "calling"
	rolling       phase = "rolling"
	undoing       phase = "undoing"
)

// phases are all of them, each with the longest time after its begin at which a kill comes.
var phases = []struct {
	phase phase
	delay time.Duration
}{
	{checkpointing, 60 * time.Millisecond}, {calling, 4*answersIn + 80*time.Millisecond}, {rolling, 60 * time.Millisecond}, {undoing, 3*answersIn + 80*time.Millisecond},
}

// Setup is what the act needs.
type Setup struct {
	Binary, Dir string // of the gateway; for what it writes
	Seed        uint64 // of the times at which kills come
	Groups      []fleet.Group
	// Failures is the group whose policy document says that a failure undoes what led to it.
	Failures fleet.Group
	// Waits is how long a caller sends a rollback request again. A call that was lost can be undone after a minute.
	Waits time.Duration
}

// group is gateways, their callers and their hotel.
type group struct {
	*fleet.Fleet

	hotel  *hotel
	dock   *hotel      // an agent that rolls back itself; nil: there is none
	signer *ect.Signer // of callers
	waits  time.Duration

	mu    sync.Mutex
	trips []*trip
}

// The agents.
const (
	agentHotel = "hotel"
	agentDock  = "dock"
)

// configOf is the configuration of the auditor and the hotel.
func configOf(hotel string) string {
	return strings.ReplaceAll(`
admin: {operators: {boss: {id: "spiffe://DOMAIN/caller/boss", roles: [auditor]}}}
timeout: 5s
agents:
  hotel:
    callers: ["spiffe://DOMAIN/client"]
    endpoints: [{binding: mcp-v1, url: "HOTEL"}]
    read_only: [get_booking]
    compensate:
      create_booking: {tool: cancel_booking, arguments: {id: {result: /id}}}
      rename_guest:
        before: {tool: get_booking, arguments: {id: {call: /id}}}
        tool: rename_guest
        arguments: {id: {call: /id}, guest: {before: /guest}}
`, "HOTEL", hotel)
}

// roundLimit is how long it takes at most until a workflow of a round reaches its phase.
const roundLimit = 10 * time.Second

// round is a few workflows that begin at one replica.
type round struct {
	phase   phase
	replica int
	reached chan struct{}
	once    sync.Once
}

// reach says that a workflow has reached a phase.
func (r *round) reach(p phase) {
	if p == r.phase {
		r.once.Do(func() { close(r.reached) })
	}
}

// Play plays the act with all groups at once, and judges it.
func Play(ctx context.Context, s Setup) (rep Report, err error) {
	trust, err := devgateway.NewTrust("rollbacks.test")
	if err != nil {
		return rep, err
	}
	signer, err := signerOf(trust.ClientSVID())
	if err != nil {
		return rep, err
	}
	h, err := serveHotel(trust, agentHotel)
	if err != nil {
		return rep, err
	}
	defer h.stop()
	var all errgroup.Group
	var mu sync.Mutex
	all.Go(func() error {
		found, err := playFailures(ctx, s, trust, signer, h)
		mu.Lock()
		defer mu.Unlock()
		rep.add(found)
		return err
	})
	for i, one := range s.Groups {
		all.Go(func() (err error) {
			g := &group{hotel: h, signer: signer, waits: s.Waits}
			g.Fleet, err = fleet.Launch(ctx, one, fleet.Deps{Binary: s.Binary, Dir: filepath.Join(s.Dir, one.Name), Trust: trust, Config: configOf(h.server.URL)})
			if g.Fleet == nil {
				return err
			}
			defer func() {
				printed, failed := g.Stop()
				err = errors.Join(err, failed)
				mu.Lock()
				defer mu.Unlock()
				rep.Log += printed
			}()
			if err != nil {
				return err
			}
			if err := g.play(ctx, rand.New(rand.NewPCG(s.Seed, uint64(i)))); err != nil {
				return fmt.Errorf("group %s: %w", g.Name, err)
			}
			found, err := g.judge(ctx)
			mu.Lock()
			defer mu.Unlock()
			rep.add(found)
			return err
		})
	}
	return rep, all.Wait()
}

// signerOf signs with an SVID.
func signerOf(svid tls.Certificate) (*ect.Signer, error) {
	key, ok := svid.PrivateKey.(*ecdsa.PrivateKey)
	if !ok || svid.Leaf == nil || len(svid.Leaf.URIs) != 1 {
		return nil, errors.New("rollbacks: the certificate of callers is no SVID")
	}
	return ect.NewSigner(ect.SignerDeps{Key: key, Chain: []*x509.Certificate{svid.Leaf}, Issuer: ect.Identity(svid.Leaf.URIs[0].String())})
}

const (
	batch  = 40 // kills until all workflows have ended
	atOnce = 3  // workflows that begin with each kill
)

// play kills as often as is wanted in each phase. Workflows of one round go on during the next ones.
func (g *group) play(ctx context.Context, chance *rand.Rand) error {
	var trips sync.WaitGroup
	defer trips.Wait()
	for n := range g.Kills * len(phases) {
		p := phases[n%len(phases)]
		// The other replica lives for half of a batch, so that it goes on with what the first one began.
		r := &round{phase: p.phase, replica: n / (batch / 2) % g.Replicas, reached: make(chan struct{})}
		for range atOnce {
			t := chosen(chance)
			g.mu.Lock()
			g.trips = append(g.trips, t)
			g.mu.Unlock()
			trips.Go(func() { g.run(ctx, t, r) })
		}
		if err := g.within(ctx, r, time.Duration(chance.Int64N(int64(p.delay)))); err != nil {
			return err
		}
		if n%batch == batch-1 {
			trips.Wait()
		}
	}
	return nil
}

// chosen is a trip, of which one in six is not rolled back and one in six is rolled back without a cascade.
func chosen(chance *rand.Rand) *trip {
	switch n := chance.IntN(6); n {
	case 0:
		return newTrip(-1, false)
	case 1:
		return newTrip(3, false)
	case 2:
		return newTrip(1, true)
	case 3:
		return newTrip(2, true)
	}
	return newTrip(0, true)
}

// within waits until a phase is reached and then for a delay, and kills.
func (g *group) within(ctx context.Context, r *round, delay time.Duration) error {
	limit := time.NewTimer(roundLimit)
	defer limit.Stop()
	select {
	case <-r.reached:
	case <-limit.C: // no workflow is to be rolled back, or each of them is lost before the phase
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	wait.Pause(ctx, delay)
	return g.Strike(ctx, string(r.phase), r.replica)
}
