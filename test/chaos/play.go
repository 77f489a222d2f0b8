package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/aepb/aepb-gateway/test/chaos/rolling"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// act is one way in which things go wrong.
type act struct {
	name  string
	state func(ctx context.Context, dir string) ([]*redisserver.Server, error)
	// harm goes wrong until ctx ends; then everybody is up again.
	harm func(ctx context.Context, r *rig, nodes []*redisserver.Server) error
	// own plays an act that has its own gateways; nil: they are the rig's, and harm is set.
	own func(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (report, error)
}

func acts() []act {
	return []act{
		{name: "replicas", state: single, harm: killReplicas},
		{name: "redis", state: single, harm: restartRedis},
		{name: "cluster", state: cluster, harm: loseMaster},
		{name: "rolling", state: single, own: roll},
		{name: "approvals", state: clusterAndSingle, own: approve},
		{name: "rollbacks", state: clusterAndSingle, own: rollBack},
		{name: "consensus", state: clusterAndSingle, own: decide},
	}
}

func single(ctx context.Context, dir string) ([]*redisserver.Server, error) {
	s, err := redisserver.Start(ctx, dir)
	if s == nil {
		return nil, err
	}
	return []*redisserver.Server{s}, err
}

// stateConfig names the servers to the gateways.
func stateConfig(nodes []*redisserver.Server) string {
	var all []string
	for _, n := range nodes {
		all = append(all, `"`+n.Address()+`"`)
	}
	text := "addresses: [" + strings.Join(all, ", ") + "]"
	if len(nodes) > 1 {
		text += ", cluster: true, wait: 1" // what a lost master had acknowledged, its replica has
	}
	return text
}

// play plays one act for as long as it is told, and judges it.
func play(ctx context.Context, a act, binary, dir string, lasts time.Duration) (rep report, err error) {
	rep = report{Act: a.name, Seconds: lasts.Seconds()}
	nodes, err := a.state(ctx, filepath.Join(dir, "redis"))
	defer func() { err = errors.Join(err, endAll(nodes)) }()
	if err != nil {
		return rep, err
	}
	if a.own != nil {
		began := time.Now()
		rep, err = a.own(ctx, binary, dir, lasts, nodes)
		rep.Act, rep.Seconds = a.name, time.Since(began).Seconds()
		return rep, err
	}
	r, err := assemble(ctx, binary, dir, stateConfig(nodes))
	defer func() { err = errors.Join(err, r.stop()) }()
	if err != nil {
		return rep, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	harming, enough := context.WithTimeout(ctx, lasts)
	defer enough()
	var outcomes []outcome
	var both errgroup.Group
	both.Go(func() error { outcomes = r.load(harming); return nil })
	both.Go(func() error { defer enough(); return a.harm(harming, r, nodes) })
	if err := both.Wait(); err != nil {
		return rep, errors.Join(err, errors.New(r.output()))
	}
	rep.Kinds, rep.Lies = judge(evidence{
		outcomes: outcomes, sights: r.seek(ctx, outcomes), runs: r.journal.all(), streams: r.witness.streams(),
	})
	rep.Log, rep.calls = r.output(), outcomes
	return rep, ctx.Err()
}

// small: what is told to last less is played with a quarter of everything.
const small = 30 * time.Second

func sizeIn(lasts time.Duration) rolling.Size {
	if lasts < small {
		return rolling.Short()
	}
	return rolling.Full()
}

// roll plays the rolling restart, in the words of the other acts.
func roll(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (rep report, err error) {
	found, err := rolling.Play(ctx, rolling.Setup{Binary: binary, Dir: dir, Size: sizeIn(lasts)}, nodes[0])
	rep.Log = found.Log
	for _, k := range found.Kinds {
		rep.Kinds = append(rep.Kinds, count{Kind: k.Name, Calls: k.All, Accepted: k.All, Right: k.Done, Error: k.All - k.Done - k.Failed, Broken: k.Cut, Lost: k.Failed})
	}
	for _, v := range found.Violations {
		rep.Lies = append(rep.Lies, lie{What: cut(v.What), Kind: v.Kind, Key: v.Key})
	}
	rep.note = fmt.Sprintf("%d ECTs verified and found at another replica, %d went down with a killed gateway over a file before it wrote them, %d second attempts",
		found.Evidence-found.Unsaved, found.Unsaved, found.Retries)
	return rep, err
}

const (
	killEvery = 4 * time.Second
	downFor   = 700 * time.Millisecond
)

// killReplicas kills one gateway after the other, each in the middle of its work.
func killReplicas(ctx context.Context, r *rig, _ []*redisserver.Server) error {
	for n := 0; wait.Pause(ctx, killEvery); n++ {
		g := r.gateways[n%len(r.gateways)]
		r.killed.Store(true)
		if err := g.kill(); err != nil {
			return err
		}
		wait.Pause(ctx, downFor)
		if err := r.start(context.WithoutCancel(ctx), g); err != nil {
			return err
		}
	}
	return nil
}

// third waits for a third of what is left of ctx.
func third(ctx context.Context) {
	end, _ := ctx.Deadline()
	wait.Pause(ctx, time.Until(end)/3)
}

// restartRedis ends Redis in order, and starts it again over what it wrote.
func restartRedis(ctx context.Context, _ *rig, nodes []*redisserver.Server) error {
	third(ctx)
	if err := nodes[0].End(syscall.SIGTERM); err != nil {
		return err
	}
	wait.Pause(ctx, 2*time.Second)
	if err := nodes[0].Start(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// loseMaster kills a master, whose replica takes over, and brings it back.
func loseMaster(ctx context.Context, _ *rig, nodes []*redisserver.Server) error {
	third(ctx)
	for _, n := range nodes {
		if !master(ctx, n) {
			continue
		}
		if err := n.End(syscall.SIGKILL); err != nil {
			return err
		}
		third(ctx)
		if err := n.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		break
	}
	<-ctx.Done()
	return nil
}
