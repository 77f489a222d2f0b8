package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/aepb/aepb-gateway/ect"
	"github.com/aepb/aepb-gateway/gateway/config"
	"github.com/aepb/aepb-gateway/gateway/state"
)

// TestMemory_SoftLimit: it is the bound of the configuration without the program itself, or
// nine tenths of a smaller container.
func TestMemory_SoftLimit(t *testing.T) {
	t.Parallel()
	const bound, soft = 768 << 20, 720 << 20
	unread := errors.New("unread")
	for name, tc := range map[string]struct {
		limit uint64
		err   error
		want  memory
		fails error
	}{
		"no cgroup":        {0, memlimit.ErrNoCgroup, memory{bound, 0, soft}, nil},
		"no limit":         {0, memlimit.ErrNoLimit, memory{bound, 0, soft}, nil},
		"unread":           {0, unread, memory{bound, 0, soft}, unread},
		"1 GiB":            {1 << 30, nil, memory{bound, 1 << 30, soft}, nil},
		"512 MiB":          {512 << 20, nil, memory{bound, 512 << 20, (512 << 20) / 10 * 9}, nil},
		"beyond any":       {1 << 63, nil, memory{bound, 0, soft}, nil},
		"the bound itself": {bound, nil, memory{bound, bound, bound / 10 * 9}, nil},
	} {
		got, err := memoryOf(bound, func() (uint64, error) { return tc.limit, tc.err })
		if got != tc.want || !errors.Is(err, tc.fails) {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, tc.want, tc.fails)
		}
	}
}

// TestMemory_IsSetAndSaid: Go's limit is that of a small container, one line says it, and
// a warning that the bounds are larger, and what to do.
func TestMemory_IsSetAndSaid(t *testing.T) {
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	var out bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&out, nil))
	LimitMemory(t.Context(), config.Config{}, func() (uint64, error) { return 500 << 20, nil }, logger)
	if got := debug.SetMemoryLimit(-1); got != 450<<20 {
		t.Errorf("the soft limit is %d bytes, want nine tenths of 500 MiB", got)
	}
	for _, want := range []string{"msg=memory bound_mib=", "container_mib=500 soft_limit_mib=450", "level=WARN", "memory_mib=375"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
	out.Reset()
	t.Setenv("GOMEMLIMIT", "3GiB")
	LimitMemory(t.Context(), config.Config{}, func() (uint64, error) { return 2 << 30, nil }, logger)
	if got := debug.SetMemoryLimit(-1); got != 450<<20 || strings.Contains(out.String(), "WARN") {
		t.Errorf("with a limit of the operator's: %d, %s", got, out.String())
	}
}

// TestMemory_ReturnsAfterALoad: not while it lasts, then a few times, in which idle
// connections end, and not for scrapes alone.
func TestMemory_ReturnsAfterALoad(t *testing.T) {
	t.Parallel()
	var r rest
	for i, look := range []struct {
		made uint64 // MiB since the look before
		want bool
	}{{1, false}, {100, false}, {100, false}, {3, true}, {1, true}, {1, true}, {1, true}, {1, false}, {1, false}, {15, false}, {1, true}, {15, false}, {1, true}} {
		if got := r.after(r.seen + look.made<<20); got != look.want {
			t.Errorf("look %d, %d MiB later: %t", i, look.made, got)
		}
	}
}

// TestMemory_StateSweptAtRest: what has ended leaves a store in memory though nothing is
// written any more.
func TestMemory_StateSweptAtRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := state.New(state.Config{}, state.Deps{Now: time.Now, Epoch: time.Now()})
		must(t, err)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { must(t, sweeping(ctx, m)) })
		const uses = 2*sweepMost - 1
		for i := range uses {
			_, err := m.Claim(t.Context(), ect.ReplayKey{ID: ect.ID(strconv.Itoa(i))}, ect.ReplayUse{Token: "t", Issued: time.Now(), Until: time.Now().Add(time.Minute)})
			must(t, err)
		}
		time.Sleep(time.Minute)
		if got := m.UsageOf(state.KindReplay).Entries; got != uses {
			t.Errorf("%d uses are kept until their end, want %d", got, uses)
		}
		time.Sleep(2*sweepEvery + time.Second)
		if got := m.UsageOf(state.KindReplay).Entries; got != 0 {
			t.Errorf("%d uses are kept that have ended", got)
		}
		stop()
		running.Wait()
	})
}
