package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/aepb/aepb-gateway/test/chaos/fleet"
	"github.com/aepb/aepb-gateway/test/chaos/rollbacks"
	"github.com/aepb/aepb-gateway/test/harness/redisserver"
)

// How often gateways are killed in each phase of a rollback, masters of Redis, and how long callers insist.
const (
	fullRollbackKills, fullRollbackMasters   = 50, 5
	shortRollbackKills, shortRollbackMasters = 2, 1
	fullRollbackWait, shortRollbackWait      = 2 * time.Minute, 10 * time.Second
)

// rollBack plays the act of workflows that are rolled back, in the words of the other acts.
func rollBack(ctx context.Context, binary, dir string, lasts time.Duration, nodes []*redisserver.Server) (rep report, err error) {
	kills, masters, waits := fullRollbackKills, fullRollbackMasters, fullRollbackWait
	if lasts < small {
		kills, masters, waits = shortRollbackKills, shortRollbackMasters, shortRollbackWait
	}
	clustered, alone := nodes[:len(nodes)-1], nodes[len(nodes)-1:]
	seed := rand.Uint64()
	found, err := rollbacks.Play(ctx, rollbacks.Setup{Binary: binary, Dir: filepath.Join(dir, "gateways"), Seed: seed, Waits: waits, Groups: []fleet.Group{
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
