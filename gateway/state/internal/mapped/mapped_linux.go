package mapped

import "syscall"

// Leave takes what was read of the mapped file out of this process. The pages stay in the
// kernel's cache, and are mapped again when they are read: so what is resident does not grow with
// the file. Without it a file of 500 MB adds up to 300 MB.
func Leave(address uintptr, size int64) {
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, address, uintptr(size), syscall.MADV_DONTNEED) //nolint:gosec // a size; advice: what the kernel does not take stays
}
