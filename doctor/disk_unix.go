//go:build linux || darwin

package doctor

import "syscall"

// diskSpace returns the free space and the size of the file system with a path.
func diskSpace(path string) (free, size int64, err error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(path, &fs); err != nil {
		return 0, 0, err
	}
	block := int64(fs.Bsize) //nolint:unconvert // another type on macOS
	return int64(fs.Bavail) * block, int64(fs.Blocks) * block, nil
}
