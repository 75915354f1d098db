package deadletter

import (
	"context"
	"io"
)

// ImportLines is Import with another limit of a line's length.
func (s Store) ImportLines(ctx context.Context, r io.Reader, limit int) (Imported, error) {
	return s.importLines(ctx, r, limit, nil)
}
