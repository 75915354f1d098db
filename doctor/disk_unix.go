//go:build linux || darwin

package doctor

import "syscall"

// diskSpace returns the free space and the size of the file system with a path.
func diskSpace(path string) (free, size int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	return int64(fs.Bavail) * int64(fs.Bsize), int64(fs.Blocks) * int64(fs.Bsize), nil
}
