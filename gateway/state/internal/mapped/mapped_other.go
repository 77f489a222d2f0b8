//go:build !linux

package mapped

// Leave does nothing where the advice has another meaning, or none.
func Leave(uintptr, int64) {}
