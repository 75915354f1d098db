package mysqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/postrider/postrider/store"
)

const firstMissingSQL = `SELECT MIN(seq) FROM {prefix}log WHERE %s AND partition_id IN ?`

// leaveOutOvertaken looks once more for the sequences that the fetch did not find. If one of them is there now, the fetch ends
// before it, and the next one finds it in order. MariaDB needs this: a snapshot looks at the running transactions one after another,
// so it may see a message and not its predecessor, although the transaction of the predecessor committed first. A statement that
// begins later sees the predecessor.
func (f *fetch) leaveOutOvertaken(ctx context.Context) error {
	missing := f.missing()
	if len(missing) == 0 || !f.s.server.mariaDB() {
		return nil
	}
	var ids []int
	for _, p := range f.parts {
		ids = append(ids, p.id)
	}
	var first sql.Null[int64]
	text := fmt.Sprintf(firstMissingSQL, missing.condition(`seq`))
	if err := f.s.pooled().get(ctx, text, []any{ids}, &first); err != nil {
		return err
	}
	if first.Valid {
		f.endBefore(first.V)
	}
	return nil
}

// missing returns the sequences that are missing before the last row of the fetch.
func (f *fetch) missing() (all gaps) {
	last := int64(0)
	for _, p := range f.parts {
		for _, e := range [][]store.Entry{p.batch.Entries, p.fresh} {
			if len(e) > 0 {
				last = max(last, e[len(e)-1].Message.Sequence)
			}
		}
		all = all.merge(p.gaps)
	}
	all = all.without(f.found)
	for _, g := range f.groups {
		all = all.merge(g.gaps)
	}
	return all.upTo(last)
}

// endBefore leaves out everything from a sequence on.
func (f *fetch) endBefore(seq int64) {
	before := func(all []store.Entry) []store.Entry {
		return slices.DeleteFunc(all, func(e store.Entry) bool { return e.Message.Sequence >= seq })
	}
	f.found = slices.DeleteFunc(f.found, func(s int64) bool { return s >= seq })
	for _, g := range f.groups {
		if seq <= g.end {
			g.end, g.gaps, g.old, g.cut = max(seq-1, g.from), g.gaps.upTo(seq-1), g.old.upTo(seq-1), true
		}
	}
	for _, p := range f.parts {
		p.batch.Entries, p.fresh = before(p.batch.Entries), before(p.fresh)
	}
}
