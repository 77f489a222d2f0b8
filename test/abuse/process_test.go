package main

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestResident_LeavesOutTheStateFile maps two files, and only the one that is not of state counts.
func TestResident_LeavesOutTheStateFile(t *testing.T) {
	const mib, tolerance = 64, 16
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]int{"other": mib, stateFile: 0} {
		file, err := os.Create(filepath.Join(t.TempDir(), name))
		must(err)
		must(file.Truncate(mib << 20))
		pages, err := syscall.Mmap(int(file.Fd()), 0, mib<<20, syscall.PROT_READ, syscall.MAP_SHARED)
		must(err)
		before, err := residentMiB(os.Getpid())
		must(err)
		for i, b := range pages {
			if b != 0 {
				t.Fatalf("byte %d of a new file is not zero", i)
			}
		}
		after, err := residentMiB(os.Getpid())
		must(err)
		if grown := after - before; grown < want-tolerance || grown > want+tolerance {
			t.Errorf("%s: %d MiB more are resident, expected %d", name, grown, want)
		}
		must(syscall.Munmap(pages))
		must(file.Close())
	}
	if _, err := residentMiB(1 << 30); err == nil {
		t.Error("the memory of a process that does not exist was read")
	}
}
