package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/ect/identity"
	"github.com/aepb/aepb-gateway/policy/consensus"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/wait"
	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

const (
	domain    = "consensus.test"
	groupName = "ops"
)

// Group is gateways over one state, and how many rounds they coordinate.
type Group struct {
	fleet.Group
	Rounds int
	// Failover has a master of Redis killed, and returns when it is replaced; nil: there is none.
	Failover func(ctx context.Context) error
}

// Setup is what the act needs.
type Setup struct {
	Binary, Tool string // the gateway, and aepbctl
	Dir          string // for what is written
	Seed         uint64 // of what rounds are to be, and of the times at which kills come
	Groups       []Group
}

// group is gateways and the members of the group that decides.
type group struct {
	*fleet.Fleet
	setup Group

	tool, dir string
	members   []*member
	outsider  *member

	masters int // of Redis that were killed

	mu  sync.Mutex
	rng *rand.Rand
}

// chance is a random number below n.
func (g *group) chance(n int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.rng.IntN(n)
}

// any is a random replica.
func (g *group) any() int { return g.chance(g.Replicas) }

// configOf is the configuration of the group. It breaks deadlocks without humans.
func configOf(members []*member) string {
	var voters, proposers []string
	for i, m := range members {
		voters = append(voters, fmt.Sprintf("        - {id: %q, weight: %d}", m.id, size-i))
		proposers = append(proposers, fmt.Sprintf("%q: %d", m.id, i%(consensus.MaxUrgency+1)))
	}
	return fmt.Sprintf(`
admin: {operators: {boss: {id: "spiffe://DOMAIN/caller/boss", roles: [auditor]}}}
consensus:
  groups:
    %s:
      members:
%s
      proposers: {%s}
      mechanisms: [majority, weighted, leader, optimistic]
      leader: %s
      deadlock: oldest
`, groupName, strings.Join(voters, "\n"), strings.Join(proposers, ", "), members[leads].id)
}

// Play plays the act with all groups at once, and judges it.
func Play(ctx context.Context, s Setup) (rep Report, err error) {
	trust, err := devgateway.NewTrust(domain)
	if err != nil {
		return rep, err
	}
	var all errgroup.Group
	var mu sync.Mutex
	for i, one := range s.Groups {
		all.Go(func() error {
			found, err := perform(ctx, s, one, rand.New(rand.NewPCG(s.Seed, uint64(i))), trust)
			if err != nil {
				err = fmt.Errorf("group %s: %w", one.Name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			rep.add(found)
			return err
		})
	}
	return rep, all.Wait()
}

// perform plays and judges one group.
func perform(ctx context.Context, s Setup, one Group, rng *rand.Rand, trust *devgateway.Trust) (rep Report, err error) {
	g := &group{setup: one, tool: s.Tool, dir: filepath.Join(s.Dir, one.Name), rng: rng}
	if err := g.gather(trust); err != nil {
		return rep, err
	}
	g.Fleet, err = fleet.Launch(ctx, one.Group, fleet.Deps{Binary: s.Binary, Dir: filepath.Join(g.dir, "gateways"), Trust: trust, Config: configOf(g.members)})
	if g.Fleet == nil {
		return rep, err
	}
	defer func() {
		printed, failed := g.Stop()
		rep.Log, err = printed, errors.Join(err, failed)
		for _, m := range append(g.members, g.outsider) {
			m.client.CloseIdleConnections()
		}
	}()
	if err != nil {
		return rep, err
	}
	played, err := g.play(ctx)
	if err != nil {
		return rep, err
	}
	if err := g.settle(ctx, played); err != nil {
		return rep, err
	}
	if err := g.inspect(ctx, played); err != nil {
		return rep, err
	}
	return g.judge(played), ctx.Err()
}

// gather makes the members, and an agent that is none.
func (g *group) gather(trust *devgateway.Trust) (err error) {
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return err
	}
	for i := range size {
		m, err := newMember(trust, g.dir, fmt.Sprintf("member-%d", i))
		if err != nil {
			return err
		}
		g.members = append(g.members, m)
	}
	if g.outsider, err = newMember(trust, g.dir, "outsider"); err != nil {
		return err
	}
	anchors, bundle := filepath.Join(g.dir, "ca.pem"), filepath.Join(g.dir, "bundle.json")
	if err := os.WriteFile(anchors, trust.RootsPEM(), 0o600); err != nil {
		return err
	}
	known, err := identity.LoadBundle(anchors, domain)
	if err != nil {
		return err
	}
	text, err := known.MarshalJWKS()
	if err != nil {
		return err
	}
	return os.WriteFile(bundle, text, 0o600)
}

// atOnce is how many batches of rounds are played at the same time.
const atOnce = 8

// play plays all rounds while the faults last.
func (g *group) play(ctx context.Context) (played []*round, err error) {
	batches := planned(g.rng, g.setup.Rounds)
	harming, enough := context.WithCancel(ctx)
	defer enough()
	var faults errgroup.Group
	faults.Go(func() error { return g.kill(harming) })
	faults.Go(func() error { return g.cut(harming) })
	quarters := make(chan struct{}, 4)
	faults.Go(func() error { return g.failOver(harming, quarters) })
	var rounds errgroup.Group
	rounds.SetLimit(atOnce)
	for i, batch := range batches {
		if played = append(played, batch...); i > 0 && i%max(len(batches)/4, 1) == 0 && len(quarters) < cap(quarters) {
			quarters <- struct{}{}
		}
		rounds.Go(func() error { return g.run(ctx, batch) })
	}
	failed := rounds.Wait()
	enough()
	return played, errors.Join(failed, faults.Wait())
}

const (
	killEvery = 2 * time.Second // between the return of one gateway and the next kill, on average
	cutEvery  = 3 * time.Second
)

// kill kills one gateway after the other, and starts it again.
func (g *group) kill(ctx context.Context) error {
	for n := 0; wait.Pause(ctx, killEvery/2+time.Duration(g.chance(int(killEvery)))); n++ {
		if err := g.Strike(context.WithoutCancel(ctx), "voting", g.any()); err != nil {
			return err
		}
	}
	return nil
}

// failOver has a master of Redis killed after each quarter of the rounds, one at a time.
func (g *group) failOver(ctx context.Context, quarters <-chan struct{}) error {
	if g.setup.Failover == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-quarters:
			g.masters++
			if err := g.setup.Failover(context.WithoutCancel(ctx)); err != nil {
				return err
			}
		}
	}
}

// cut cuts members off, one at a time.
func (g *group) cut(ctx context.Context) error {
	for wait.Pause(ctx, cutEvery) {
		g.members[g.chance(size)].cutOff(time.Duration(g.chance(int(cutEvery))))
	}
	return nil
}

// endsIn is how long rounds get to end after the faults.
const endsIn = 90 * time.Second

// settle has members acknowledge the rounds that are not decided, until all are, and each member read each outcome at two replicas.
func (g *group) settle(ctx context.Context, played []*round) error {
	var all errgroup.Group
	all.SetLimit(atOnce)
	end := time.Now().Add(endsIn)
	for _, r := range played {
		all.Go(func() error {
			if !g.find(ctx, r) {
				return ctx.Err()
			}
			for n := 0; !g.look(ctx, r, n%size, g.any()); n++ {
				if err := g.acknowledge(ctx, r, g.members[n%size], consensus.Received, nil); err != nil {
					return err
				}
				if time.Now().After(end) || !wait.Pause(ctx, lookEvery) {
					return ctx.Err()
				}
			}
			for i := range g.members {
				for n := range 2 {
					if !g.reads(ctx, r, i, i+n) {
						r.say("a decided round is told as undecided at replica %d", (i+n)%g.Replicas)
					}
				}
			}
			return ctx.Err()
		})
	}
	return all.Wait()
}

// reads has a member read the outcome at a replica, which may still be busy with what the faults left.
func (g *group) reads(ctx context.Context, r *round, i, replica int) bool {
	for range 10 {
		if g.look(ctx, r, i, replica) {
			return true
		}
		if !wait.Pause(ctx, lookEvery) {
			break
		}
	}
	return false
}

// find reports whether a round was opened. One whose proposer found no replica may have been.
func (g *group) find(ctx context.Context, r *round) bool {
	if r.opened.Round != "" {
		return true
	}
	if r.proposal.ID == "" {
		return false
	}
	return g.learn(ctx, r)
}
