package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/aepb/aepb-gateway/test/chaos/approvals"
	"github.com/aepb/aepb-gateway/test/chaos/rollbacks"
	"github.com/aepb/aepb-gateway/test/chaos/rounds"
	"github.com/aepb/aepb-gateway/test/harness/fleet"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// clusterAndSingle is a cluster of Redis, and behind it a server of its own.
func clusterAndSingle(ctx context.Context, dir string) ([]*redisserver.Server, error) {
	nodes, err := cluster(ctx, filepath.Join(dir, "cluster"))
	if err != nil {
		return nodes, err
	}
	one, err := single(ctx, filepath.Join(dir, "single"))
	return append(nodes, one...), err
}

// How often gateways are killed in each phase, and masters of Redis.
const (
	fullKills, fullMasters   = 200, 20
	shortKills, shortMasters = 4, 1
)

// approve plays the act of calls that wait for humans, in the words of the other acts.
func approve(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (rep report, err error) {
	kills, masters := fullKills, fullMasters
	if lasts < small {
		kills, masters = shortKills, shortMasters
	}
	clustered, alone := nodes[:len(nodes)-1], nodes[len(nodes)-1:]
	seed := rand.Uint64()
	found, err := approvals.Play(ctx, approvals.Setup{Binary: binary, Dir: filepath.Join(dir, "gateways"), Seed: seed, Groups: []fleet.Group{
		{Name: "redis", State: "redis: {plaintext: loopback, " + stateConfig(alone) + "}", Replicas: 2, Kills: kills},
		{Name: "bbolt", State: `path: "DIR/state.db"`, Replicas: 1, Kills: kills},
		{
			Name: "cluster", State: "redis: {plaintext: loopback, " + stateConfig(clustered) + "}", Replicas: 2, Kills: masters,
			Harm: func(ctx context.Context) error { return replaceMaster(ctx, clustered) },
		},
	}})
	rep.Log = found.Log
	for _, k := range found.Kinds {
		rep.Kinds = append(rep.Kinds, count{Kind: k.Name, Calls: k.All, Accepted: k.Sent, Right: k.Done, Error: k.Refused, Broken: k.Untold, Lost: k.Failed})
	}
	for _, v := range found.Violations {
		rep.Lies = append(rep.Lies, lie{What: cut(v.What), Kind: v.Kind, Key: v.Key, Why: cut(v.Why)})
	}
	rep.note = fmt.Sprintf("kills: %s\napprovals: %s\nfailed, and their callers were told: %s\n%d ECTs verified, %d decisions went down with a killed gateway over a file before it wrote their evidence, seed %d",
		listed(found.Kills), listed(found.Approvals), listed(found.Failures), found.Evidence, found.Unsaved, seed)
	return rep, err
}

// listed is counts in the order of their names.
func listed(counts map[string]int) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(all, ", ")
}

var errNoMaster = errors.New("chaos: no node of the cluster is a master")

// replaceMaster kills a master, and returns when its replica has taken over and it is a replica itself.
func replaceMaster(ctx context.Context, nodes []*redisserver.Server) error {
	for _, n := range nodes {
		if !master(ctx, n) {
			continue
		}
		if err := n.End(syscall.SIGKILL); err != nil {
			return err
		}
		masters := func() (count int) {
			for _, other := range nodes {
				if other != n && master(ctx, other) {
					count++
				}
			}
			return count
		}
		if err := wait.Until(ctx, "a replica takes over", func() bool { return masters() == len(nodes)/2 }); err != nil {
			return err
		}
		if err := n.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		return wait.Until(ctx, "the cluster stands again", func() bool {
			return !slices.ContainsFunc(nodes, func(n *redisserver.Server) bool { return !whole(ctx, n) })
		})
	}
	return errNoMaster
}

// How often gateways are killed in each phase of a rollback, masters of Redis, and how long callers insist.
const (
	fullRollbackKills, fullRollbackMasters   = 50, 5
	shortRollbackKills, shortRollbackMasters = 2, 1
	fullFailureKills, shortFailureKills      = 10, 1 // at each place of a rollback that a failure begins
	fullRollbackWait, shortRollbackWait      = 2 * time.Minute, 10 * time.Second
)

// rollBack plays the act of workflows that are rolled back, in the words of the other acts.
func rollBack(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (rep report, err error) {
	kills, masters, failures, waits := fullRollbackKills, fullRollbackMasters, fullFailureKills, fullRollbackWait
	if lasts < small {
		kills, masters, failures, waits = shortRollbackKills, shortRollbackMasters, shortFailureKills, shortRollbackWait
	}
	clustered, alone := nodes[:len(nodes)-1], nodes[len(nodes)-1:]
	seed := rand.Uint64()
	found, err := rollbacks.Play(ctx, rollbacks.Setup{Binary: binary, Dir: filepath.Join(dir, "gateways"), Seed: seed, Waits: waits, Failures: fleet.Group{
		Name: "failures", State: "redis: {plaintext: loopback, prefix: 'failures:', " + stateConfig(alone) + "}", Replicas: 2, Kills: failures,
	}, Groups: []fleet.Group{
		{Name: "redis", State: "redis: {plaintext: loopback, " + stateConfig(alone) + "}", Replicas: 2, Kills: kills},
		{Name: "bbolt", State: `path: "DIR/state.db"`, Replicas: 1, Kills: kills},
		{
			Name: "cluster", State: "redis: {plaintext: loopback, " + stateConfig(clustered) + "}", Replicas: 2, Kills: masters,
			Harm: func(ctx context.Context) error { return replaceMaster(ctx, clustered) },
		},
	}})
	rep.Log = found.Log
	for _, k := range found.Kinds {
		rep.Kinds = append(rep.Kinds, count{Kind: k.Name, Calls: k.All, Accepted: k.Rolled, Right: k.Completed, Error: k.Refused, Lost: k.Other})
	}
	for _, v := range found.Violations {
		rep.Lies = append(rep.Lies, lie{What: cut(v.What), Kind: v.Kind, Key: v.Key, Why: cut(v.Why)})
	}
	unsaved := 0
	for _, k := range found.Kinds {
		unsaved += k.Unsaved
	}
	rep.note = fmt.Sprintf("kills: %s\nrollbacks: %s\ncompensating calls, by how often they came: %s\n%d ECTs verified, %d workflows of which evidence went down with a killed gateway over a file before it wrote it, seed %d",
		listed(found.Kills), listed(found.Results), listed(found.Calls), found.Evidence, unsaved, seed)
	return rep, err
}

// Rounds of consensus that are played over a cluster of Redis, and over each other state.
const (
	fullRounds, fullRoundsAlone   = 200, 60
	shortRounds, shortRoundsAlone = 24, 16
)

// decide plays the act of agents that decide together, in the words of the other acts.
func decide(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (rep report, err error) {
	many, few := fullRounds, fullRoundsAlone
	if lasts < small {
		many, few = shortRounds, shortRoundsAlone
	}
	clustered, alone := nodes[:len(nodes)-1], nodes[len(nodes)-1:]
	seed := rand.Uint64()
	found, err := rounds.Play(ctx, rounds.Setup{
		Binary: binary, Tool: filepath.Join(filepath.Dir(binary), "aepbctl"), Dir: filepath.Join(dir, "gateways"), Seed: seed, Groups: []rounds.Group{
			{
				Group: fleet.Group{Name: "cluster", State: "redis: {plaintext: loopback, " + stateConfig(clustered) + "}", Replicas: 3}, Rounds: many,
				Failover: func(ctx context.Context) error { return replaceMaster(ctx, clustered) },
			},
			{Group: fleet.Group{Name: "redis", State: "redis: {plaintext: loopback, " + stateConfig(alone) + "}", Replicas: 2}, Rounds: few},
			{Group: fleet.Group{Name: "bbolt", State: `path: "DIR/state.db"`, Replicas: 1}, Rounds: few},
		},
	})
	rep.Log = found.Log
	suspended := 0
	for _, k := range found.Kinds {
		rep.Kinds = append(rep.Kinds, count{Kind: k.Name, Calls: k.All, Accepted: k.Opened, Right: k.Committed, Error: k.Aborted, Broken: k.All - k.Opened, Lost: k.Open})
		suspended += k.Suspended
	}
	for _, v := range found.Violations {
		rep.Lies = append(rep.Lies, lie{What: cut(v.What), Kind: v.Kind, Key: v.Key, Why: cut(v.Why)})
	}
	rep.note = fmt.Sprintf("right: committed, error: aborted, broken: not opened, lost: not ended\nkills: %s\nends: %s\nvotes: %s\n%d rounds were suspended, %d ECTs verified, %d rounds of which evidence went down with a killed gateway over a file before it wrote it, seed %d",
		listed(found.Kills), listed(found.Ends), listed(found.Votes), suspended, found.Evidence, found.Unsaved, seed)
	return rep, err
}
