package dead

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// diffOf lists the differences between two payloads and sets of headers, line by line: "-" before a line that is only in
// the first, "+" before one that is only in the second. For payloads that are not text it gives only the sizes.
func diffOf(payload []byte, headers map[string]string, newPayload []byte, newHeaders map[string]string) []string {
	var out []string
	names := slices.Collect(maps.Keys(headers))
	names = append(names, slices.Collect(maps.Keys(newHeaders))...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		old, had := headers[name]
		now, has := newHeaders[name]
		if had && (!has || old != now) {
			out = append(out, "- header "+name+": "+old)
		}
		if has && (!had || old != now) {
			out = append(out, "+ header "+name+": "+now)
		}
	}
	if string(payload) == string(newPayload) {
		return out
	}
	if !utf8.Valid(payload) || !utf8.Valid(newPayload) {
		return append(out, "- payload of "+strconv.Itoa(len(payload))+" bytes", "+ payload of "+strconv.Itoa(len(newPayload))+" bytes")
	}
	return append(out, diffLines(strings.Split(string(payload), "\n"), strings.Split(string(newPayload), "\n"))...)
}

// diffLines omits the lines that both texts have in common at the beginning and the end.
func diffLines(before, after []string) []string {
	for len(before) > 0 && len(after) > 0 && before[0] == after[0] {
		before, after = before[1:], after[1:]
	}
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	var out []string
	for _, line := range before {
		out = append(out, "- "+line)
	}
	for _, line := range after {
		out = append(out, "+ "+line)
	}
	return out
}
