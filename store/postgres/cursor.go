package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/postrider/postrider/store"
)

// cursor is a parsed store.Cursor. Its text is "snapshot|ceiling", or "snapshot|ceiling|upTo|page" while late rows are read in
// pages.
type cursor struct {
	position int64
	// snapshot holds the transactions seen at position, in the text format of pg_snapshot.
	snapshot string
	// ceiling is above the xid of every row with seq <= position; "" if it is not known.
	ceiling string
	// upTo is the snapshot that bounds the late rows being read in pages, "" if none are; page is the sequence up to which they are
	// delivered.
	upTo string
	page int64
}

// seesNothing is a snapshot in which no transaction is visible.
const seesNothing = "1:1:"

func parseCursor(c store.Cursor) (cursor, error) {
	out := cursor{position: c.Position, snapshot: seesNothing}
	if c.Snapshot == "" {
		return out, nil
	}
	parts := strings.Split(c.Snapshot, "|")
	if len(parts) != 2 && len(parts) != 4 {
		return cursor{}, fmt.Errorf("cursor snapshot %q is not of the form snapshot|ceiling or snapshot|ceiling|upTo|page", c.Snapshot)
	}
	out.snapshot, out.ceiling = parts[0], parts[1]
	if len(parts) == 4 {
		var err error
		out.upTo = parts[2]
		if out.page, err = strconv.ParseInt(parts[3], 10, 64); err != nil {
			return cursor{}, fmt.Errorf("cursor snapshot %q: %w", c.Snapshot, err)
		}
	}
	return out, nil
}

func (c cursor) encode() store.Cursor {
	out := store.Cursor{Position: c.position, Snapshot: c.snapshot + "|" + c.ceiling}
	if c.upTo != "" {
		out.Snapshot += "|" + c.upTo + "|" + strconv.FormatInt(c.page, 10)
	}
	return out
}

// snapshotXmax returns the first transaction id that a snapshot does not cover.
func snapshotXmax(snapshot string) (uint64, error) {
	parts := strings.Split(snapshot, ":")
	if len(parts) != 3 {
		return 0, fmt.Errorf("snapshot %q is not of the form xmin:xmax:xip", snapshot)
	}
	return strconv.ParseUint(parts[1], 10, 64)
}
