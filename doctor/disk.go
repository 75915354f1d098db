package doctor

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/plain"
)

const (
	// freeWarning and freeFault are the shares of a file system that must be free.
	freeWarning, freeFault = 0.10, 0.03
)

// Disk checks the free space of the file system that has a path. "" is not known: it could not check.
func Disk(path string) Check {
	return Check{Name: "db.disk", Title: "The disk of the database has space", Run: func(context.Context) ([]Finding, error) {
		if path == "" {
			return nil, &MissingError{
				Reason: "a database server does not tell how much of its disk is free",
				Fix:    Fix{Text: "if this host has its data, say where, in the configuration:", Command: "store: {data_path: /var/lib/…}"},
			}
		}
		free, size, err := diskSpace(path)
		if err != nil {
			return nil, fmt.Errorf("free space of %s: %w", path, err)
		}
		return space(path, free, size), nil
	}}
}

func space(path string, free, size int64) []Finding {
	if float64(free) >= freeWarning*float64(size) {
		return nil
	}
	f := Finding{
		Level: Warning, Target: path, Message: fmt.Sprintf("%s of %s are free.", plain.Bytes(free), plain.Bytes(size)),
		Impact:   "When the disk is full, nothing is committed: publishing and delivery fail.",
		Fix:      []Fix{{Text: "see what takes the space:", Command: "du -xh --max-depth=2 " + quote(path) + " | sort -h | tail"}, {Text: "or lower keep_delivered and max_log_bytes"}},
		Evidence: "the file system",
	}
	if float64(free) < freeFault*float64(size) {
		f.Level = Fault
	}
	return []Finding{f}
}
