//go:build !linux

package link

func acknowledge(uintptr) {}
