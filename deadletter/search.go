package deadletter

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/plain"
	"github.com/postrider/postrider/store"
)

const (
	searchPiece = 10_000 // dead letters that a search looks at in one statement
	pieceGroups = 1_000  // groups by cause that it reads of them, at least
)

// FindDead is ListDead for a page: it calls each, and counts what matches, within store.SearchLimit and store.SearchTime, and says
// whether that was enough. With a limit of 0, it only counts.
func (s Store) FindDead(ctx context.Context, f store.DeadFilter, after int64, limit int, each func(store.DeadLetter)) (out store.FoundDead, err error) {
	if err := checkLimit(limit); err != nil {
		return out, err
	}
	c := s.search("ListDead", "list dead letters", f)
	if f.Fingerprint != "" {
		if err := c.mark(ctx); err != nil {
			return out, err
		}
	}
	n, last := 0, int64(0)
	page := func(q store.DeadQuery, _ int64) (enough bool, err error) {
		n, err = c.list(ctx, q, n, limit, func(l store.DeadLetter) {
			out.Next = l.Number
			each(l)
		})
		return n == limit, err
	}
	switch {
	case limit == 0:
	case c.all: // an index finds them
		_, err = page(store.DeadQuery{DeadFilter: c.filter, After: after}, 0)
	default:
		last, err = c.walk(ctx, after, false, page)
	}
	if err != nil {
		return out, err
	}
	if out.Total = int64(n); n < limit {
		out.Next = last
	}
	whole := n < limit && after == 0 // everything that matches was listed, or looked at
	if !whole {
		if err := c.count(ctx, &out.Total); err != nil {
			return out, err
		}
	}
	out.Extent = c.extent()
	return out, nil
}

// CountCauses counts the dead letters that match the filter by relay or consumer, type and fingerprint, most frequent first, and returns
// up to limit groups. It begins with the newest dead letters, looks at store.SearchLimit of them, and says whether these were all.
func (s Store) CountCauses(ctx context.Context, f store.DeadFilter, limit int) (out store.FoundCauses, err error) {
	if err := checkLimit(limit); err != nil {
		return out, err
	}
	c := s.search("CountCauses", "count causes", f)
	if err := c.mark(ctx); err != nil {
		return out, err
	}
	groups, pieces, cut := make(map[store.CauseCount]store.CauseCount), 0, false
	_, err = c.walk(ctx, 0, true, func(q store.DeadQuery, _ int64) (bool, error) {
		q.Limit = max(limit, pieceGroups)
		var found []store.CauseCount
		err := c.read(ctx, func(r store.Reader) (err error) {
			found, err = r.CountCauses(ctx, q)
			return err
		})
		pieces++
		cut = cut || len(found) == q.Limit
		for _, g := range found {
			addCause(groups, g)
		}
		return false, err
	})
	if err != nil {
		return out, err
	}
	if cut && pieces > 1 {
		c.gap(store.SearchGap{Reason: store.GapCauses, Text: "There are too many causes to count all of them."})
	}
	out.Extent = c.extent()
	out.Causes = slices.SortedFunc(maps.Values(groups), func(a, b store.CauseCount) int {
		return cmp.Or(cmp.Compare(b.DeadLetters, a.DeadLetters), cmp.Compare(a.Number, b.Number))
	})
	out.Causes = out.Causes[:min(len(out.Causes), limit)]
	for i := range out.Causes {
		out.Causes[i].AtLeast = !out.Complete
	}
	return out, nil
}

// addCause adds a group of older dead letters to those of the same cause.
func addCause(groups map[store.CauseCount]store.CauseCount, g store.CauseCount) {
	if g.Fingerprint == "" && g.Cause != "" { // they have been dead-lettered since the search began, or are not marked yet
		return
	}
	of := store.CauseCount{Relay: g.Relay, Type: g.Type, Fingerprint: g.Fingerprint}
	c, known := groups[of]
	if !known {
		groups[of] = g
		return
	}
	c.DeadLetters += g.DeadLetters
	if g.Oldest.Before(c.Oldest) {
		c.Oldest = g.Oldest
	}
	if g.Newest.After(c.Newest) {
		c.Newest = g.Newest
	}
	groups[of] = c
}

// search is a search for dead letters that match a filter. It ends at its bounds.
type search struct {
	s      Store
	op     store.Operation
	filter store.DeadFilter
	// indexed is the part of the filter for which stores have indices, and all says that nothing is left of it.
	indexed store.DeadFilter
	all     bool
	begun   time.Time
	gaps    []store.SearchGap
}

func (s Store) search(method, doing string, f store.DeadFilter) *search {
	f.MaxRedrives = 0
	c := &search{s: s, op: store.Operation{Method: method, Doing: doing}, filter: f, begun: time.Now()}
	c.indexed = store.DeadFilter{
		Numbers: f.Numbers, Relay: f.Relay, Fingerprint: f.Fingerprint, MessageID: f.MessageID, Redrive: f.Redrive, State: f.State,
	}
	c.all = reflect.DeepEqual(c.indexed, f)
	return c
}

func (c *search) read(ctx context.Context, f func(store.Reader) error) error {
	return c.s.records.View(ctx, c.op, f)
}

func (c *search) gap(g store.SearchGap) { c.gaps = append(c.gaps, g) }

func (c *search) extent() store.Extent {
	return store.Extent{Complete: len(c.gaps) == 0, Incomplete: c.gaps}
}

// mark stores fingerprints for half of the time.
func (c *search) mark(ctx context.Context) error {
	all, err := c.s.mark(ctx, c.begun.Add(store.SearchTime/2))
	if err == nil && !all {
		c.gap(store.SearchGap{Reason: store.GapCauses, Text: "Older dead letters are not grouped by cause yet; ask again to group more."})
	}
	return err
}

// walk calls visit with one piece after the other of the dead letters that indices find, from the oldest after a number or from the
// newest, until that is enough, none are left or the bounds are reached. In this case it notes what was left out, and returns the number
// of the last.
func (c *search) walk(ctx context.Context, after int64, newest bool, visit func(store.DeadQuery, int64) (enough bool, err error)) (last int64, err error) {
	rest := store.DeadQuery{DeadFilter: c.indexed, After: after, Limit: searchPiece}
	for looked := int64(0); ; {
		piece, err := c.span(ctx, rest, newest)
		if err != nil || piece.N == 0 {
			return 0, err
		}
		enough, err := visit(store.DeadQuery{DeadFilter: c.filter, After: piece.First - 1, UpTo: piece.Last}, piece.N)
		if err != nil || enough || piece.N < searchPiece {
			return 0, err
		}
		looked += piece.N
		if rest.After, last = piece.Last, piece.Last; newest {
			if rest.After, rest.UpTo, last = 0, piece.First-1, piece.First; rest.UpTo == 0 {
				return 0, nil
			}
		}
		if looked >= store.SearchLimit || time.Since(c.begun) > store.SearchTime {
			stopped, err := c.stopped(ctx, rest, looked, last)
			if err != nil || !stopped {
				return 0, err
			}
			return last, nil
		}
	}
}

func (c *search) span(ctx context.Context, q store.DeadQuery, newest bool) (found store.DeadSpan, err error) {
	err = c.read(ctx, func(r store.Reader) error {
		found, err = r.SpanDead(ctx, q, newest)
		return err
	})
	return found, err
}

// stopped notes that a walk ends before the rest, unless nothing is left.
func (c *search) stopped(ctx context.Context, rest store.DeadQuery, looked, last int64) (bool, error) {
	rest.Limit = 1
	left, err := c.span(ctx, rest, false)
	if err != nil || left.N == 0 {
		return false, err
	}
	g, at := store.SearchGap{Reason: store.GapDeadLetters}, store.DeadLetter{}
	if looked < store.SearchLimit {
		g.Reason = store.GapTime
	}
	err = c.read(ctx, func(r store.Reader) error {
		at, err = find(ctx, r, last)
		return err
	})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	if g.Text = "Only " + plain.Grouped(looked) + " dead letters were looked at"; err == nil {
		order := ", up to "
		if rest.UpTo > 0 {
			order = ", from the newest back to "
		}
		g.Until = at.DiedAt
		g.Text += order + at.DiedAt.UTC().Format("2006-01-02 15:04 UTC")
	}
	g.Text += "; there are more."
	c.gap(g)
	return true, nil
}

// list reads what a query selects, up to limit after the first n.
func (c *search) list(ctx context.Context, q store.DeadQuery, n, limit int, each func(store.DeadLetter)) (int, error) {
	for n < limit {
		q.Limit = min(listPage, limit-n)
		var page []store.DeadLetter
		if err := c.read(ctx, func(r store.Reader) (err error) {
			page, err = r.DeadLetters(ctx, q)
			return err
		}); err != nil {
			return n, err
		}
		for _, l := range page {
			each(l)
			q.After = l.Number
		}
		if n += len(page); len(page) < q.Limit {
			break
		}
	}
	return n, nil
}

// count counts everything that matches, and is never lower than what was listed. It is part of the same search as the list, so that there
// is one gap for both.
func (c *search) count(ctx context.Context, total *int64) error {
	listed, gaps, n := *total, len(c.gaps), int64(0)
	_, err := c.walk(ctx, 0, false, func(q store.DeadQuery, piece int64) (bool, error) {
		if c.all {
			n += piece
			return false, nil
		}
		var found int64
		err := c.read(ctx, func(r store.Reader) (err error) {
			found, err = r.CountDead(ctx, q)
			return err
		})
		n += found
		return false, err
	})
	*total = max(n, listed)
	if slices.ContainsFunc(c.gaps[:gaps], func(g store.SearchGap) bool { return g.Reason != store.GapCauses }) { // the list has stopped too
		c.gaps = c.gaps[:gaps]
	}
	return err
}
