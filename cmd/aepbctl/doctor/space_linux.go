package doctor

import "syscall"

// space is how many bytes of a folder's disk are free for us, and of how many.
func space(folder string) (free, all uint64, err error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(folder, &s); err != nil {
		return 0, 0, err
	}
	size := uint64(max(0, s.Bsize))
	return s.Bavail * size, s.Blocks * size, nil
}
