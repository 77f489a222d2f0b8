package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

var errProcess = errors.New("abuse: a process cannot be read in /proc")

// memoryEvery is how often the memory of the gateways is read. Go gives memory back slowly, so
// that no peak is shorter.
const memoryEvery = 100 * time.Millisecond

// stateFile is the name of the file of state. What a gateway maps of it is not of its bound, since
// the kernel takes it back when it needs the memory.
const stateFile = "state.db"

// residentMiB is how much memory a process has resident, beside its file of state.
func residentMiB(pid int) (int, error) {
	file, err := os.Open("/proc/" + strconv.Itoa(pid) + "/smaps")
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	kib, counts := 0, false
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		name, value, ok := strings.Cut(line, ":")
		switch {
		case !ok || strings.Contains(name, " "): // the head of a mapping: addresses, rights, the file's device and name
			counts = !strings.HasSuffix(line, "/"+stateFile)
		case name == "Rss" && counts:
			n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(value, "kB")))
			if err != nil {
				return 0, fmt.Errorf("abuse: /proc/%d/smaps: %w", pid, err)
			}
			kib += n
		}
	}
	if err := lines.Err(); err != nil || kib == 0 { // it has ended
		return 0, errors.Join(errProcess, err)
	}
	return kib >> 10, nil
}

// peak is the most memory, in MiB, that one of the processes had resident until ctx ends, and how
// many of them had ended by then.
func peak(ctx context.Context, pids []int) (most, ended int) {
	tick := time.NewTicker(memoryEvery)
	defer tick.Stop()
	for {
		ended = 0
		for _, pid := range pids {
			now, err := residentMiB(pid)
			if err != nil {
				ended++
			}
			most = max(most, now)
		}
		select {
		case <-ctx.Done():
			return most, ended
		case <-tick.C:
		}
	}
}

// whilePeak reads the memory of the processes while something runs.
func whilePeak(ctx context.Context, pids []int, do func() error) (most, ended int, err error) {
	ctx, enough := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() { most, ended = peak(ctx, pids) })
	err = do()
	enough()
	group.Wait()
	return most, ended, err
}

// pids are the processes of the gateways.
func (r *rig) pids() []int {
	out := make([]int, len(r.gateways))
	for i, g := range r.gateways {
		out[i] = g.PID()
	}
	return out
}

// containerMiB is the container for which a gateway's default limits are.
const containerMiB = 1024

// softMiB is the default of limits.memory_mib less the program itself.
const softMiB = 768 - 48

// contained is a program that runs another one in a memory cgroup of containerMiB; where none can be made,
// with a soft limit that leaves as much to what Go does not count as the gateway itself does. limit says which. release removes it
// after the program has ended.
func contained(binary, dir string) (program, limit string, release func() error, err error) {
	release = func() error { return nil }
	command := "export GOMEMLIMIT=" + strconv.Itoa(softMiB) + "MiB"
	limit = fmt.Sprintf("GOMEMLIMIT of %d MiB alone: there is no memory cgroup (v2) to be made", softMiB)
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		group := filepath.Join(root, "aepb-abuse-"+strconv.Itoa(os.Getpid()))
		if os.Mkdir(group, 0o755) != nil {
			continue
		}
		if bounded(group) {
			command, limit = "echo $$ > "+group+"/cgroup.procs", fmt.Sprintf("memory cgroup of %d MiB", containerMiB)
			release = func() error { return os.Remove(group) }
			break
		}
		_ = os.Remove(group)
	}
	program = filepath.Join(dir, "contained")
	err = errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(program, []byte("#!/bin/sh\n"+command+" && exec "+binary+" \"$@\"\n"), 0o700))
	return program, limit, release, err
}

// bounded bounds the memory of a cgroup, if it is one of v2 with that controller.
func bounded(group string) bool {
	for name, value := range map[string]string{"memory.max": strconv.Itoa(containerMiB << 20), "memory.swap.max": "0"} {
		file, err := os.OpenFile(filepath.Join(group, name), os.O_WRONLY, 0)
		if err != nil && name == "memory.swap.max" { // there is no swap
			continue
		}
		if err != nil {
			return false
		}
		_, err = file.WriteString(value)
		if errors.Join(err, file.Close()) != nil {
			return false
		}
	}
	return true
}

// busy is how much CPU time all processes of the machine have used, in seconds.
func busy() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(first)
	if len(fields) < 9 || fields[0] != "cpu" {
		return 0, errProcess
	}
	const idle, waits, ticks = 3, 4, 100 // the places of what is no use, and how many there are in a second
	sum := 0.0
	for i, field := range fields[1:9] {
		n, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return 0, err
		}
		if i != idle && i != waits {
			sum += n / ticks
		}
	}
	return sum, nil
}

// whileBusy runs something and returns how many CPUs the machine had in use meanwhile.
func whileBusy(do func() error) (float64, error) {
	began := time.Now()
	before, err := busy()
	if err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	after, err := busy()
	return (after - before) / time.Since(began).Seconds(), err
}

// How a process is scheduled beside the good caller and the gateway, which come first
// or not.
const (
	behind = "10" // niceness of the attackers, who would have machines of their own
	beside = "0"  // of what stands for work of the gateway
)

// child runs this program again for another part of it, with its input as JSON, and
// returns what it said and the CPU time that it used. It is killed when ctx ends.
func child(ctx context.Context, niceness, part string, input, output any) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	text, err := json.Marshal(input)
	if err != nil {
		return 0, err
	}
	var said, complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, "nice", "-n", niceness, self, part) // all its threads are
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(text), &said, &complaint
	if part != partBurn {
		cmd.Env = append(os.Environ(), "GOMAXPROCS=1")
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	err = cmd.Wait()
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err != nil {
		return used, fmt.Errorf("abuse: %s: %w: %.2000s", part, err, complaint.String())
	}
	if output != nil {
		err = json.Unmarshal(said.Bytes(), output)
	}
	return used, err
}

// burning is how long a process burns CPU, and how many CPUs.
type burning struct {
	Seconds float64 `json:"seconds"`
	CPUs    float64 `json:"cpus"`
}

// burnSlice is the time in which a share is kept.
const burnSlice = 10 * time.Millisecond

// burn uses so many CPUs, evenly. What other processes kept it from using it uses later.
func burn(ctx context.Context, b burning) {
	began := time.Now()
	length := time.Duration(b.Seconds * float64(time.Second))
	threads := runtime.GOMAXPROCS(0)
	share := min(b.CPUs/float64(threads), 1)
	var group sync.WaitGroup
	for range threads {
		group.Go(func() {
			runtime.LockOSThread()
			tick := time.NewTicker(burnSlice)
			defer tick.Stop()
			for past := time.Duration(0); past < length && ctx.Err() == nil; past = time.Since(began) {
				for used() < time.Duration(share*float64(past)) && time.Since(began) < length {
					continue
				}
				<-tick.C
			}
		})
	}
	group.Wait()
}

// used is the CPU time that this thread has used.
func used() time.Duration {
	const thisThread = 1 // RUSAGE_THREAD
	var usage syscall.Rusage
	if syscall.Getrusage(thisThread, &usage) != nil {
		return math.MaxInt64
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// both runs a load while a process runs, and waits for both.
func both(load func(), process func() (time.Duration, error)) (used time.Duration, err error) {
	var group sync.WaitGroup
	group.Go(load)
	used, err = process()
	group.Wait()
	return used, err
}
