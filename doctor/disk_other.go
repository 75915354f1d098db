//go:build !linux && !darwin

package doctor

import "errors"

// diskSpace is not known on this system.
func diskSpace(string) (free, size int64, err error) {
	return 0, 0, errors.New("free space cannot be found out on this system")
}
