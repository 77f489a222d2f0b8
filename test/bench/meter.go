package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/aepb/aepb-gateway/test/interop/devgateway"
)

// ticks per second of CPU time in /proc (USER_HZ, 100 on every Linux port that Go
// has).
const ticksPerSecond = 100

var errProc = errors.New("bench: unexpected content in /proc")

// process is one whose cost is measured.
type process struct {
	pid    int
	allocs func(context.Context) (uint64, error) // objects allocated since it started
}

// reading is what a process has used so far.
type reading struct {
	cpu    time.Duration
	allocs uint64
}

// before and after read in opposite order, so that asking for the allocations
// costs no CPU time between two readings.
func (p process) before(ctx context.Context) (r reading, err error) {
	if r.allocs, err = p.allocs(ctx); err != nil {
		return r, err
	}
	r.cpu, err = cpuTime(p.pid)
	return r, err
}

func (p process) after(ctx context.Context) (r reading, err error) {
	if r.cpu, err = cpuTime(p.pid); err != nil {
		return r, err
	}
	r.allocs, err = p.allocs(ctx)
	return r, err
}

// cpuTime is the user and system time of all threads.
func cpuTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPUTime(text)
}

// parseCPUTime reads fields 14 and 15; the name in field 2 may hold anything.
func parseCPUTime(stat []byte) (time.Duration, error) {
	rest := stat[bytes.LastIndexByte(stat, ')')+1:]
	fields := strings.Fields(string(rest))
	if len(fields) < 13 {
		return 0, errProc
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, errProc
		}
		ticks += n
	}
	return time.Duration(ticks * int64(time.Second/ticksPerSecond)), nil
}

// resident is the memory of a process in KiB.
func resident(pid int) (int, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		}
	}
	return 0, errProc
}

// askChild reads the allocations of one of our own processes.
func askChild(client *http.Client, url string) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+allocsPath, http.NoBody)
		if err != nil {
			return 0, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer func() { _ = resp.Body.Close() }()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, err
		}
		return strconv.ParseUint(string(text), 10, 64)
	}
}

// askGateway reads them from the gateway's metrics; zero if they do not tell.
func askGateway(p *devgateway.Process) func(context.Context) (uint64, error) {
	return func(ctx context.Context) (uint64, error) {
		page, err := p.Metrics(ctx)
		if err != nil {
			return 0, err
		}
		return parseMallocs(page)
	}
}

func parseMallocs(page string) (uint64, error) {
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(line, "go_memstats_mallocs_total "); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return uint64(n), err
		}
	}
	return 0, nil
}
