package main

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestResident_LeavesOutTheStateFile maps two files, and only the one that is not of state counts.
func TestResident_LeavesOutTheStateFile(t *testing.T) {
	const mib = 64
	pid, zeros := os.Getpid(), bytes.Repeat([]byte{0}, mib<<20)
	before, err := residentMiB(pid)
	must(t, err)
	for name, least := range map[string]int{"other": mib - 4, stateFile: 0} {
		path := filepath.Join(t.TempDir(), name)
		file, err := os.Create(path)
		must(t, err)
		must(t, file.Truncate(mib<<20))
		pages, err := syscall.Mmap(int(file.Fd()), 0, mib<<20, syscall.PROT_READ, syscall.MAP_SHARED)
		must(t, err)
		if !bytes.Equal(pages, zeros) {
			t.Fatal("a new file is not all zeros")
		}
		after, err := residentMiB(pid)
		must(t, err)
		if grown := after - before; grown < least || grown > least+16 {
			t.Errorf("%s: %d MiB more are resident, of %d that were read", name, grown, mib)
		}
		must(t, syscall.Munmap(pages))
		must(t, file.Close())
	}
	if _, err := residentMiB(1 << 30); err == nil {
		t.Error("the memory of a process that there is not was read")
	}
}
