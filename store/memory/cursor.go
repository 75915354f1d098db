package memory

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/store"
)

// A cursor (position, snapshot) means: rows with seq ≤ position that were visible in the snapshot are delivered. All other rows
// that are visible now are still to be delivered: late rows, up to the position, of transactions that the snapshot did not see;
// and fresh rows, after the position.
//
// Late rows of a bulk transaction can exceed a batch. While they are paged through, the snapshot under which the first page was
// read stays fixed, and the cursor's text has three parts: "seen/upTo/page". Then the late rows with seq ≤ page that were visible
// in upTo are delivered too. After the last page the cursor is (position, upTo).

// snapshot records which transactions had ended at a moment.
type snapshot struct {
	// xmax is the first transaction that had not begun; xip, ascending, the running transactions below it.
	xmax uint64
	xip  []uint64
}

// sees reports whether the changes of a transaction, if it was not rolled back, were visible.
func (s snapshot) sees(xid uint64) bool {
	if xid >= s.xmax {
		return false
	}
	_, running := slices.BinarySearch(s.xip, xid)
	return !running
}

func (s snapshot) equal(t snapshot) bool { return s.xmax == t.xmax && slices.Equal(s.xip, t.xip) }

// String writes xmin:xmax:xip,xip…, as PostgreSQL does.
func (s snapshot) String() string {
	xmin := s.xmax
	if len(s.xip) > 0 {
		xmin = s.xip[0]
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d:%d:", xmin, s.xmax)
	for i, xid := range s.xip {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatUint(xid, 10))
	}
	return b.String()
}

func parseSnapshot(text string) (snapshot, error) {
	if text == "" {
		return snapshot{}, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 {
		return snapshot{}, fmt.Errorf("snapshot %q is not of the form xmin:xmax:xip", text)
	}
	var s snapshot
	var err error
	if s.xmax, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
		return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
	}
	for part := range strings.SplitSeq(parts[2], ",") {
		if part == "" {
			continue
		}
		xid, err := strconv.ParseUint(part, 10, 64)
		if err != nil {
			return snapshot{}, fmt.Errorf("snapshot %q: %w", text, err)
		}
		s.xip = append(s.xip, xid)
	}
	return s, nil
}

// snapshot returns the current snapshot.
func (db *database) snapshot() snapshot {
	s := snapshot{xmax: db.nextXID}
	for xid := range db.active {
		s.xip = append(s.xip, xid)
	}
	slices.Sort(s.xip)
	return s
}

// cursor is a parsed store.Cursor.
type cursor struct {
	position int64
	seen     snapshot
	// While late rows are paged through, upTo is the snapshot that bounds them, and page the sequence up to which they are
	// delivered.
	paging bool
	upTo   snapshot
	page   int64
}

func parseCursor(c store.Cursor) (cursor, error) {
	parts := strings.Split(c.Snapshot, "/")
	out := cursor{position: c.Position}
	var err error
	if out.seen, err = parseSnapshot(parts[0]); err != nil {
		return cursor{}, err
	}
	if len(parts) == 1 {
		return out, nil
	}
	if len(parts) != 3 {
		return cursor{}, fmt.Errorf("cursor snapshot %q is not of the form seen/upTo/page", c.Snapshot)
	}
	out.paging = true
	if out.upTo, err = parseSnapshot(parts[1]); err != nil {
		return cursor{}, err
	}
	if out.page, err = strconv.ParseInt(parts[2], 10, 64); err != nil {
		return cursor{}, fmt.Errorf("cursor snapshot %q: %w", c.Snapshot, err)
	}
	return out, nil
}

func (c cursor) encode() store.Cursor {
	out := store.Cursor{Position: c.position, Snapshot: c.seen.String()}
	if c.paging {
		out.Snapshot = fmt.Sprintf("%s/%s/%d", c.seen, c.upTo, c.page)
	}
	return out
}

// delivered reports whether the cursor counts a row as delivered.
func (c cursor) delivered(r *row) bool {
	if r.seq > c.position {
		return false
	}
	return c.seen.sees(r.xid) || c.paging && r.seq <= c.page && c.upTo.sees(r.xid)
}
