package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/worker"
)

// Without requests Go does not collect garbage for two minutes, and afterwards returns
// little by little what is free, so that what a load needed stays resident long after it.
const (
	restEvery = 30 * time.Second
	restMost  = 4 << 20  // bytes that are made in this time by scrapes and regular work
	loadLeast = 16 << 20 // bytes since the last load that are worth a collection
	restLooks = 4        // collections after a load: idle connections to agents end meanwhile
)

// rest tells when a load is over. It is not safe for concurrent use.
type rest struct {
	seen, returned uint64
	looks          int // that are left after a load
}

// after reports whether memory is to be returned, by how many bytes were ever made.
func (r *rest) after(made uint64) bool {
	quiet := made-r.seen < restMost
	r.seen = made
	if made-r.returned >= loadLeast {
		r.looks = restLooks
	}
	if !quiet || r.looks == 0 {
		return false
	}
	r.returned = made
	r.looks--
	return true
}

// returnMemory gives memory back to the system after each load, until ctx ends.
func returnMemory(ctx context.Context) error {
	made, r := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}, rest{}
	worker.Every(ctx, restEvery, func() {
		if metrics.Read(made); r.after(made[0].Value.Uint64()) {
			debug.FreeOSMemory()
		}
	})
	return nil
}

// memory is what a process may take, in bytes.
type memory struct {
	bound     int64 // by its configuration
	container int64 // by the cgroups that it is in; 0: they have no limit
	soft      int64 // near it Go collects garbage more often
}

// programBytes are the code and the constants of this program, which Go does not count.
const programBytes = 48 << 20

// memoryOf leaves a tenth of the container to what Go does not count, and of the bound the program itself.
func memoryOf(bound int64, container func() (uint64, error)) (memory, error) {
	m := memory{bound: bound, soft: bound - programBytes}
	limit, err := container()
	if errors.Is(err, memlimit.ErrNoLimit) || errors.Is(err, memlimit.ErrNoCgroup) || errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		return m, nil
	}
	if err == nil && limit <= math.MaxInt64/2 {
		m.container = int64(limit)
		m.soft = min(m.soft, m.container/10*9)
	}
	return m, err
}

// collectAfter is by how many percent of what is in use the heap grows before the collector
// runs, while the soft limit allows: little is in use, since evidence is on disk, and with
// Go's default the collector takes about 5 % of the calls (test/bench). With 300, strangers
// who fill all their connections cost more memory than test/abuse grants them, and with 250 as much; with 200, calls of many
// callers cost 4 to 8 % more CPU.
const collectAfter = 225

// LimitMemory lets the collector run before the heap grows beyond what the configuration
// states, and beyond the container. It is set at the start, as the bounds of state are. A
// limit in the environment is the operator's own, and stays.
func LimitMemory(ctx context.Context, c config.Config, container func() (uint64, error), logger *slog.Logger) {
	const mib = 1 << 20
	m, err := memoryOf(c.MemoryBound(), container)
	if err != nil {
		logger.WarnContext(ctx, "the memory limit of the container cannot be read; that of the configuration counts", slog.Any("error", err))
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m.soft)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAfter)
	}
	logger.InfoContext(ctx, "memory", slog.Int64("bound_mib", m.bound/mib), slog.Int64("container_mib", m.container/mib), slog.Int64("soft_limit_mib", debug.SetMemoryLimit(-1)/mib))
	if m.container > 0 && m.bound > m.container {
		logger.WarnContext(ctx, "the bounds of the configuration add up to more memory than the container has, which may kill the process: give the container more, or lower limits.memory_mib to three quarters of what it has",
			slog.Int64("bound_mib", m.bound/mib), slog.Int64("container_mib", m.container/mib), slog.Int64("memory_mib", m.container/mib*3/4))
	}
}
