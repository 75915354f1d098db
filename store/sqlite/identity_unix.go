//go:build unix

package sqlite

import (
	"fmt"
	"io/fs"
	"syscall"
)

// identity distinguishes a file from its copies, by device and inode.
func identity(f fs.FileInfo) string {
	st, ok := f.Sys().(*syscall.Stat_t)
	if !ok {
		return "file"
	}
	return fmt.Sprintf("%d-%d", st.Dev, st.Ino)
}
