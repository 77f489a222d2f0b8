package approvals

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// phase is a part of the life of a call that waits for a human.
type phase string

const (
	parking   phase = "parking"
	deciding  phase = "deciding"
	releasing phase = "releasing"
	answering phase = "answering"
)

// phases are all of them, each with the longest time after its begin at which a kill comes.
var phases = []struct {
	phase phase
	delay time.Duration
}{{parking, 60 * time.Millisecond}, {deciding, 40 * time.Millisecond}, {releasing, 120 * time.Millisecond}, {answering, answersIn + 80*time.Millisecond}}

// Setup is what the act needs.
type Setup struct {
	Binary, Dir string // of the gateway; for what it writes
	Seed        uint64 // of the times at which kills come
	Groups      []fleet.Group
}

// group is gateways, their callers and their approvers.
type group struct {
	*fleet.Fleet

	journal *journal
	minter  *devgateway.Minter

	mu    sync.Mutex
	calls []*call
}

// waits is how long a call waits for its approval, and then for its release.
const waits = 20 * time.Second

// configOf is the configuration of the approver, the rule and the agent.
func configOf(agent string) string {
	return strings.NewReplacer("AGENT", agent, "WAITS", waits.String()).Replace(`
admin: {operators: {boss: {id: "spiffe://DOMAIN/caller/boss", roles: [approver, auditor]}}}
policy: {approvals: [{tool: work, wait: WAITS}]}
timeout: 10s
agents:
  agent: {callers: ["spiffe://DOMAIN/client"], endpoints: [{binding: mcp-v1, url: "AGENT"}]}
`)
}

// roundLimit is how long it takes at most until a call of a round reaches its phase.
const roundLimit = 30 * time.Second

// round is a few calls that begin at one replica.
type round struct {
	phase   phase
	replica int
	reached chan struct{}
	once    sync.Once
}

// reach says that a call has reached a phase.
func (r *round) reach(p phase) {
	if p == r.phase {
		r.once.Do(func() { close(r.reached) })
	}
}

func (r *round) reaching(p phase) func() { return func() { r.reach(p) } }

// Play plays the act with all groups at once, and judges it.
func Play(ctx context.Context, s Setup) (rep Report, err error) {
	trust, err := devgateway.NewTrust("approvals.test")
	if err != nil {
		return rep, err
	}
	j := newJournal()
	a, err := serveAgent(trust, j)
	if err != nil {
		return rep, err
	}
	defer a.stop()
	var all errgroup.Group
	var mu sync.Mutex
	for i, one := range s.Groups {
		all.Go(func() (err error) {
			g := &group{journal: j}
			if g.minter, err = trust.NewMinter(); err != nil {
				return err
			}
			g.Fleet, err = fleet.Launch(ctx, one, fleet.Deps{Binary: s.Binary, Dir: filepath.Join(s.Dir, one.Name), Trust: trust, Config: configOf(a.server.URL)})
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

// batch is how many kills come until all calls have ended.
const batch = 40

// play kills as often as is wanted in each phase. Calls of one round go on during the next ones.
func (g *group) play(ctx context.Context, chance *rand.Rand) error {
	sweeping, enough := context.WithCancel(ctx)
	var sweeper, calls sync.WaitGroup
	sweeper.Go(func() { g.sweep(sweeping) })
	defer sweeper.Wait()
	defer enough()
	defer calls.Wait()
	for n := range g.Kills * len(phases) {
		p := phases[n%len(phases)]
		// The other replica lives for half of a batch, so that it goes on with what the first one began.
		r := &round{phase: p.phase, replica: n / (batch / 2) % g.Replicas, reached: make(chan struct{})}
		for _, kind := range []string{kindA2A, kindA2A, kindMCP, kindTranslate} {
			c := &call{kind: kind, key: want(chance) + uuid.NewString(), workflow: uuid.NewString()}
			g.mu.Lock()
			g.calls = append(g.calls, c)
			g.mu.Unlock()
			calls.Go(func() { g.run(ctx, c, r) })
		}
		if err := g.within(ctx, r, time.Duration(chance.Int64N(int64(p.delay)))); err != nil {
			return err
		}
		if n%batch == batch-1 {
			calls.Wait()
		}
	}
	return nil
}

// within waits until a phase is reached and then for a delay, and kills.
func (g *group) within(ctx context.Context, r *round, delay time.Duration) error {
	limit := time.NewTimer(roundLimit)
	defer limit.Stop()
	select {
	case <-r.reached:
	case <-limit.C: // all calls are to be denied, or are lost before the phase
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
	wait.Pause(ctx, delay)
	return g.Strike(ctx, string(r.phase), r.replica)
}

// want says what becomes of the next call.
func want(chance *rand.Rand) string {
	switch chance.IntN(8) {
	case 0:
		return wantDeny
	case 1:
		return wantLeave
	}
	return wantGrant
}
