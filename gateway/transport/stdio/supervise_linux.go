package stdio

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// supervises reports whether there is a supervisor on this system.
const supervises = true

// Bounds of what a program starts.
const (
	maxProcesses = 64 // of it and all that it started
	looksEvery   = 500 * time.Millisecond
	leavesWithin = time.Second // of what is asked to end, before it is killed
	killsWithin  = 10 * time.Second
)

// setChildSubreaper is PR_SET_CHILD_SUBREAPER of prctl(2).
const setChildSubreaper = 36

// The descriptors that a supervisor is given.
const (
	lifeDescriptor   = 3 // at its end everything is ended
	reportDescriptor = 4 // takes how the program ended
)

// Supervise runs a program and ends with it and with all that it started. Its arguments are
// the memory that these may take together, in bytes, and the command. It returns the exit
// code of this process.
func Supervise(arguments []string) int {
	_ = syscall.SetNonblock(lifeDescriptor, true) // so that closing it ends who reads it
	report := os.NewFile(reportDescriptor, "report")
	life := os.NewFile(lifeDescriptor, "life")
	if report == nil || life == nil || len(arguments) < 2 {
		fmt.Fprintln(os.Stderr, "this command is for the gateway alone")
		return 2
	}
	syscall.CloseOnExec(lifeDescriptor)
	syscall.CloseOnExec(reportDescriptor)
	err := supervise(life, arguments)
	_, _ = io.WriteString(report, err.Error()[:min(len(err.Error()), maxReport)])
	return 1
}

// supervise returns how the program ended, when nothing of it is left.
func supervise(life *os.File, arguments []string) error {
	memory, err := strconv.ParseInt(arguments[0], 10, 64)
	if err != nil {
		return fmt.Errorf("its memory: %w", err)
	}
	// Not ignored, which the program would inherit, but taken and left unread.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	if _, _, failed := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); failed != 0 {
		return fmt.Errorf("a subreaper is needed: %w", failed)
	}
	runtime.LockOSThread() // the death of this thread is what the program is told of
	defer runtime.UnlockOSThread()
	child, err := os.StartProcess(arguments[1], arguments[1:], &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return fmt.Errorf("the program cannot be started: %w", err)
	}
	for _, file := range []*os.File{os.Stdin, os.Stdout} { // the program's alone
		_ = file.Close()
	}
	gone := make(chan struct{})
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _ = io.Copy(io.Discard, life)
		close(gone)
	})
	tooMuch, why := attend(child.Pid, memory, gone)
	endAll(tooMuch)
	_ = life.Close()
	waiting.Wait()
	return why
}

// attend waits for the end of the program, for a reason to end it, or for the end of the
// gateway. tooMuch: it took more than it may, and would take more yet.
func attend(pid int, memory int64, gone <-chan struct{}) (tooMuch bool, why error) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	look := time.NewTicker(looksEvery)
	defer look.Stop()
	for {
		if status, ok := reap(pid); ok {
			return false, errors.New(status)
		}
		select {
		case <-ended:
		case <-gone:
			return false, errors.New("it was told to end")
		case <-look.C:
			all := descendants(os.Getpid())
			if used := residentOf(all); used > memory {
				return true, fmt.Errorf("it took %d MiB of memory, and may take %d", used>>20, memory>>20)
			}
			if len(all) > maxProcesses {
				return true, fmt.Errorf("it started more than %d processes", maxProcesses)
			}
		}
	}
}

// reap takes the exit statuses that there are; ok: the program's was among them.
func reap(pid int) (text string, ok bool) {
	for {
		var status syscall.WaitStatus
		one, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil || one == 0:
			return text, ok
		case one == pid && status.Signaled():
			text, ok = "it was ended by the signal "+status.Signal().String(), true
		case one == pid:
			text, ok = "exit status "+strconv.Itoa(status.ExitStatus()), true
		}
	}
}

// endAll ends all that the program left, first with a word, if there is time for that, then
// by force.
func endAll(atOnce bool) {
	tell := syscall.SIGTERM
	begun := time.Now()
	pause := time.NewTicker(5 * time.Millisecond)
	defer pause.Stop()
	for warned := map[int]bool{}; ; <-pause.C {
		reap(0)
		all := descendants(os.Getpid())
		passed := time.Since(begun)
		if len(all) == 0 || passed > killsWithin {
			return
		}
		if atOnce || passed > leavesWithin {
			tell = syscall.SIGKILL
		}
		for _, pid := range all {
			if tell == syscall.SIGKILL || !warned[pid] {
				warned[pid] = true
				_ = syscall.Kill(pid, tell)
			}
		}
	}
}

// descendants are the processes below one, without it.
func descendants(pid int) []int {
	var out []int
	for next := []int{pid}; len(next) > 0 && len(out) <= 4*maxProcesses; {
		var children []int
		for _, one := range next {
			tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(one) + "/task/*/children")
			for _, file := range tasks {
				text, _ := os.ReadFile(file)
				for field := range strings.FieldsSeq(string(text)) {
					if child, err := strconv.Atoi(field); err == nil && !slices.Contains(out, child) {
						children = append(children, child)
					}
				}
			}
		}
		out = append(out, children...)
		next = children
	}
	return out
}

// residentOf is the memory of processes, in bytes.
func residentOf(pids []int) (total int64) {
	for _, pid := range pids {
		text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			total += pages * int64(os.Getpagesize())
		}
	}
	return total
}

// memoryOf is the memory of a process and all below it, in bytes.
func memoryOf(pid int) int64 { return residentOf(append(descendants(pid), pid)) }

// What the syscall package does not name.
const (
	setDumpable      = 4      // PR_SET_DUMPABLE of prctl(2)
	closeRange       = 436    // close_range(2), the same number on every architecture
	closeRangeOnExec = 1 << 2 // CLOSE_RANGE_CLOEXEC, since Linux 5.11
	lastDescriptor   = 1<<32 - 1
)

// keepPrivate has a program that runs as our user get nothing of us. It cannot read our
// environment and memory (/proc/PID/environ and mem, ptrace) unless it is privileged, and
// does not inherit descriptors that our own starter left open. An older kernel refuses the
// second.
func keepPrivate() {
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setDumpable, 0, 0)
	_, _, _ = syscall.RawSyscall(closeRange, lifeDescriptor, lastDescriptor, closeRangeOnExec)
}
