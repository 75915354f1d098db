package redisbroker

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider"
)

// cloudEvents converts a message's attributes to fields and back. Redis stores arbitrary bytes.
var cloudEvents = postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}

// dataField holds the payload.
const dataField = "data"

// streamOf returns the key of a topic's partition.
func streamOf(prefix, topic string, partition int) string {
	return prefix + "{" + topic + "/" + strconv.Itoa(partition) + "}"
}

// appendFields appends the names and values of a message's fields.
func appendFields(args []any, m *postrider.Message) []any {
	for name, value := range cloudEvents.Headers(m) {
		args = append(args, name, value)
	}
	return append(args, dataField, m.Payload)
}

// readFields decodes a message from alternating names and values. With an error, it returns what could be read, and the
// payload as raw; if there is no payload, both are all fields as text.
func readFields(fields []string) (m *postrider.Message, raw []byte, err error) {
	var data []byte
	found := false
	m, err = cloudEvents.Decode(func(yield func(string, string) bool) {
		for pair := range slices.Chunk(fields, 2) {
			if pair[0] == dataField || len(pair) == 1 {
				continue
			}
			if !yield(pair[0], pair[1]) {
				return
			}
		}
	}, nil)
	for pair := range slices.Chunk(fields, 2) {
		if pair[0] == dataField && len(pair) == 2 {
			data, found = []byte(pair[1]), true
		}
	}
	if m.Payload = data; err == nil {
		return m, nil, nil
	}
	if !found {
		m.Payload = fmt.Appendf(nil, "%q", fields)
	}
	return m, m.Payload, err
}

// An offset holds timeBits of the first part of an entry's ID (milliseconds since 1970) and sequenceBits of the second
// (a counter within the millisecond): enough until the year 2248, with a million messages per millisecond.
const timeBits, sequenceBits = 43, 20

// positionOf returns the incarnation and offset of an entry. Bits of the ID that do not fit into the offset become part of the
// incarnation: the server may keep counting in one millisecond while its clock is set back, and other programs may choose
// arbitrary IDs.
func positionOf(incarnation, id string) (string, int64) {
	ms, sequence := splitID(id)
	if a, b := ms>>timeBits, sequence>>sequenceBits; a > 0 || b > 0 {
		incarnation = fmt.Sprintf("%s+%d+%d", incarnation, a, b)
	}
	return incarnation, int64(ms&(1<<timeBits-1)<<sequenceBits | sequence&(1<<sequenceBits-1))
}

// idAt returns the ID at an offset, the inverse of positionOf.
func idAt(offset int64) string {
	return strconv.FormatInt(offset>>sequenceBits, 10) + "-" + strconv.FormatInt(offset&(1<<sequenceBits-1), 10)
}

// compareIDs compares two entry IDs by their order in the stream.
func compareIDs(a, b string) int {
	ms1, sequence1 := splitID(a)
	ms2, sequence2 := splitID(b)
	return cmp.Or(cmp.Compare(ms1, ms2), cmp.Compare(sequence1, sequence2))
}

func splitID(id string) (ms, sequence uint64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(first, 10, 64) // the server generates valid numbers
	sequence, _ = strconv.ParseUint(second, 10, 64)
	return ms, sequence
}

// before returns the ID just before id.
func before(id string) string {
	ms, sequence := splitID(id)
	switch {
	case sequence > 0:
		sequence--
	case ms > 0:
		ms, sequence = ms-1, math.MaxUint64
	}
	return strconv.FormatUint(ms, 10) + "-" + strconv.FormatUint(sequence, 10)
}
