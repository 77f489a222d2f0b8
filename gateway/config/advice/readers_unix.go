//go:build unix

package advice

import (
	"io/fs"
	"os"
	"syscall"
)

// ReadersOf looks at the mode of a file. Its group counts if the file is this user's own: a file of
// another owner is read through its group, as secrets in a container are. A file that cannot
// be looked at has no readers.
func ReadersOf(file string) Readers {
	info, err := os.Stat(file)
	if err != nil {
		return Readers{}
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	own := ok && int(owner.Uid) == os.Geteuid()
	mode := info.Mode().Perm()
	return readersOf(mode, own)
}

func readersOf(mode fs.FileMode, own bool) Readers {
	return Readers{Mode: mode, Group: own && mode&0o040 != 0, Others: mode&0o004 != 0}
}
