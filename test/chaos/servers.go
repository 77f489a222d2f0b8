package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"

	"github.com/aepb/aepb-gateway/test/harness/redisserver"
	"github.com/aepb/aepb-gateway/test/harness/wait"
)

// cluster is three masters with a replica each.
func cluster(ctx context.Context, dir string) ([]*redisserver.Server, error) {
	var nodes []*redisserver.Server
	create := []string{"--cluster", "create"}
	for i := range 6 {
		node, err := redisserver.Start(ctx, dir+"/"+strconv.Itoa(i), "--cluster-enabled", "yes", "--cluster-node-timeout", "1500",
			"--cluster-replica-validity-factor", "0")
		if node != nil {
			nodes = append(nodes, node)
			create = append(create, node.Address())
		}
		if err != nil {
			return nodes, err
		}
	}
	out, err := exec.CommandContext(ctx, "redis-cli", append(create, "--cluster-replicas", "1", "--cluster-yes")...).CombinedOutput()
	if err != nil {
		return nodes, fmt.Errorf("chaos: %w: %s", err, out)
	}
	for _, node := range nodes {
		if err := wait.Until(ctx, "the cluster stands", func() bool { return whole(ctx, node) }); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// whole: the node knows a complete cluster and is in step with its other half.
func whole(ctx context.Context, s *redisserver.Server) bool {
	info, replication := s.Ask(ctx, "CLUSTER", "INFO"), s.Ask(ctx, "INFO", "replication")
	return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:6") &&
		(strings.Contains(replication, "state=online") || strings.Contains(replication, "master_link_status:up"))
}

func master(ctx context.Context, s *redisserver.Server) bool {
	return strings.Contains(s.Ask(ctx, "INFO", "replication"), "role:master")
}

func endAll(nodes []*redisserver.Server) error {
	var errs []error
	for _, node := range nodes {
		errs = append(errs, node.End(syscall.SIGKILL))
	}
	return errors.Join(errs...)
}
