//go:build linux || darwin

package telemetry

import "syscall"

// diskSpace returns the free space and the size of the file system with a path.
func diskSpace(path string) (free, size float64, ok bool) {
	var fs syscall.Statfs_t
	if path == "" || syscall.Statfs(path, &fs) != nil {
		return 0, 0, false
	}
	block := float64(fs.Bsize)
	return float64(fs.Bavail) * block, float64(fs.Blocks) * block, true
}
