package stdio

import "syscall"

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
