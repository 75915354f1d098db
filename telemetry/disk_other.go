//go:build !linux && !darwin

package telemetry

// diskSpace is not known on this system.
func diskSpace(string) (free, size float64, ok bool) { return 0, 0, false }
