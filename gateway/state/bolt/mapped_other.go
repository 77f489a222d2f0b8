//go:build !linux

package bolt

// unmapPages does nothing where the advice has another meaning, or none.
func unmapPages(uintptr, int64) {}
