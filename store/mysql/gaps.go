package mysqlstore

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// span is a range of sequences, both ends included.
type span struct{ from, to int64 }

// gaps are the sequences up to a position that were not in the log when it was read: spans in ascending order that neither
// overlap nor touch.
type gaps []span

// parseGaps parses the output of encode.
func parseGaps(text string) (gaps, error) {
	if text == "" {
		return nil, nil
	}
	var out gaps
	last := int64(0)
	for part := range strings.SplitSeq(text, ",") {
		distance, length, long := strings.Cut(part, "+")
		d, err := strconv.ParseInt(distance, 36, 64)
		n := int64(0)
		if err == nil && long {
			n, err = strconv.ParseInt(length, 36, 64)
		}
		if err != nil || d < 1 || n < 0 || n > math.MaxInt64-d || last > math.MaxInt64-d-n {
			return nil, fmt.Errorf("gaps %q of a cursor cannot be read at %q", text, part)
		}
		out = append(out, span{last + d, last + d + n})
		last += d + n
	}
	return out, nil
}

// encode writes gaps as text, in base 36: for each span its distance from the end of the previous one and, if it is longer than
// 1, a + and its length minus 1.
func (g gaps) encode() string {
	var out []byte
	last := int64(0)
	for i, s := range g {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, s.from-last, 36)
		if s.to > s.from {
			out = strconv.AppendInt(append(out, '+'), s.to-s.from, 36)
		}
		last = s.to
	}
	return string(out)
}

// upTo cuts off everything after a position.
func (g gaps) upTo(position int64) gaps {
	n := len(g)
	for n > 0 && g[n-1].from > position {
		n--
	}
	if n == 0 || g[n-1].to <= position {
		return g[:n:n]
	}
	out := slices.Clone(g[:n])
	out[n-1].to = position
	return out
}

// beyond cuts off everything up to and including a position.
func (g gaps) beyond(position int64) gaps {
	i := 0
	for i < len(g) && g[i].to <= position {
		i++
	}
	if i == len(g) || g[i].from > position {
		return g[i:]
	}
	out := slices.Clone(g[i:])
	out[0].from = position + 1
	return out
}

// contains reports whether a sequence is missing.
func (g gaps) contains(seq int64) bool {
	_, found := slices.BinarySearchFunc(g, seq, func(s span, seq int64) int {
		switch {
		case s.to < seq:
			return -1
		case s.from > seq:
			return 1
		}
		return 0
	})
	return found
}

// without removes sequences that were found, given in ascending order.
func (g gaps) without(found []int64) gaps {
	if len(found) == 0 {
		return g
	}
	var out gaps
	for _, s := range g {
		for len(found) > 0 && found[0] <= s.to {
			if found[0] > s.from {
				out = append(out, span{s.from, found[0] - 1})
			}
			s.from, found = max(s.from, found[0]+1), found[1:]
		}
		if s.from <= s.to {
			out = append(out, s)
		}
	}
	return out
}

// add appends a span that comes after all others.
func (g gaps) add(s span) gaps {
	if n := len(g); n > 0 && g[n-1].to+1 == s.from {
		g[n-1].to = s.to
		return g
	}
	return append(g, s)
}

// merge returns the union of both.
func (g gaps) merge(other gaps) gaps {
	if len(other) == 0 || slices.Equal(g, other) {
		return g
	}
	all := slices.Concat(g, other)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	var out gaps
	for _, s := range all {
		if n := len(out); n > 0 && s.from <= out[n-1].to+1 {
			out[n-1].to = max(out[n-1].to, s.to)
			continue
		}
		out = append(out, s)
	}
	return out
}

// condition is SQL for "the sequence is missing"; there must be at least one gap. The outer bounds keep a server that gives up on
// so many ranges from reading the whole log.
func (g gaps) condition(column string) string {
	var single []int64
	var terms []string
	for _, s := range g {
		if s.from == s.to {
			single = append(single, s.from)
		} else {
			terms = append(terms, fmt.Sprintf(`%s BETWEEN %d AND %d`, column, s.from, s.to))
		}
	}
	if len(single) > 0 {
		terms = append(terms, render(column+` IN ?`, []any{single}))
	}
	return fmt.Sprintf(`(%s BETWEEN %d AND %d AND (%s))`, column, g[0].from, g[len(g)-1].to, strings.Join(terms, ` OR `))
}

// solid returns the sequence up to which nothing is missing, for a cursor at position.
func (g gaps) solid(position int64) int64 {
	if len(g) > 0 {
		return min(g[0].from-1, position)
	}
	return position
}
