// Package profile writes profiles of a process for the benchmark: where it spends CPU, what
// it allocates and which locks it waits for.
//
// A program asks for it with [Watch] where it begins; it does nothing unless the variable
// AEPB_PROFILE names where the profiles go. [Collect] asks for them from outside. The
// gateway has it only when it is built with the tag "profile".
package profile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"
)

// Variable names the path that the profiles' names begin with.
const Variable = "AEPB_PROFILE"

// One sample of so many waits for a lock is kept.
const mutexFraction = 5

// writeTime is how long a process may take to write its profiles.
const writeTime = 10 * time.Second

// Names of the profiles are that of Variable with these ends. The last is written last.
const (
	cpuEnd    = ".cpu"
	allocsEnd = ".allocs"
	mutexEnd  = ".mutex"
)

// Watch measures until [Collect] asks for the profiles, if Variable is set.
func Watch() error {
	path := os.Getenv(Variable)
	if path == "" {
		return nil
	}
	if err := os.Remove(path + mutexEnd); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	cpu, err := os.Create(path + cpuEnd)
	if err != nil {
		return err
	}
	runtime.SetMutexProfileFraction(mutexFraction)
	if err := pprof.StartCPUProfile(cpu); err != nil {
		return errors.Join(err, cpu.Close())
	}
	requested, _ := signal.NotifyContext(context.Background(), syscall.SIGUSR1) // for the life of the process
	context.AfterFunc(requested, func() {
		pprof.StopCPUProfile()
		if err := errors.Join(cpu.Close(), write("allocs", path+allocsEnd), write("mutex", path+mutexEnd)); err != nil {
			fmt.Fprintln(os.Stderr, "profile:", err)
		}
	})
	return nil
}

// write writes a profile, which is whole when its name is there.
func write(name, path string) error {
	file, err := os.Create(path + ".part")
	if err != nil {
		return err
	}
	err = errors.Join(pprof.Lookup(name).WriteTo(file, 0), file.Close())
	return errors.Join(err, os.Rename(path+".part", path))
}

// Collect makes a process that was started with Variable=path write its profiles, and returns
// when they are there.
func Collect(ctx context.Context, pid int, path string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	if err := syscall.Kill(pid, syscall.SIGUSR1); err != nil {
		return fmt.Errorf("profile: process %d: %w", pid, err)
	}
	for look := time.NewTicker(10 * time.Millisecond); ; {
		_, err := os.Stat(path + mutexEnd)
		if !errors.Is(err, fs.ErrNotExist) {
			look.Stop()
			return err
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			look.Stop()
			return fmt.Errorf("profile: process %d has not written %s: does it call Watch?", pid, path+mutexEnd)
		}
	}
}
