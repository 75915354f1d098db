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

// cloudEvents is how a message's attributes become fields of an entry. Redis keeps any bytes.
var cloudEvents = postrider.CloudEventsBinary{Prefix: "ce_", UTF8: true}

// dataField holds the payload.
const dataField = "data"

// streamOf is the key of a topic's partition.
func streamOf(prefix, topic string, partition int) string {
	return prefix + "{" + topic + "/" + strconv.Itoa(partition) + "}"
}

// appendFields appends names and values of a message's fields.
func appendFields(args []any, m *postrider.Message) []any {
	for name, value := range cloudEvents.Headers(m) {
		args = append(args, name, value)
	}
	return append(args, dataField, m.Payload)
}

// readFields reads a message from names and values in turn. If that is not possible, what it returns with the error has the
// payload, and so has raw, or all fields as text if there is none.
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
	if err == nil {
		m.Payload = data
		return m, nil, nil
	}
	if raw = data; !found {
		raw = fmt.Appendf(nil, "%q", fields)
	}
	return &postrider.Message{Payload: raw}, raw, err
}

// An offset holds that many bits of the first part of an entry's ID, which is milliseconds since 1970, and of the second, which
// counts those of one millisecond: enough until the year 2248, for a million messages in each.
const timeBits, sequenceBits = 43, 20

// positionOf is where an entry stands in the log of an epoch, from its ID. What does not fit into the offset is told by the
// epoch: the server may count on and on in one millisecond when its clock was ahead and was set back, and others may choose
// IDs as they like.
func positionOf(epoch, id string) (string, int64) {
	ms, sequence := splitID(id)
	if a, b := ms>>timeBits, sequence>>sequenceBits; a > 0 || b > 0 {
		epoch = fmt.Sprintf("%s+%d+%d", epoch, a, b)
	}
	return epoch, int64(ms&(1<<timeBits-1)<<sequenceBits | sequence&(1<<sequenceBits-1))
}

// compareIDs compares the IDs of two entries by their places in the stream.
func compareIDs(a, b string) int {
	ms1, sequence1 := splitID(a)
	ms2, sequence2 := splitID(b)
	return cmp.Or(cmp.Compare(ms1, ms2), cmp.Compare(sequence1, sequence2))
}

func splitID(id string) (ms, sequence uint64) {
	first, second, _ := strings.Cut(id, "-")
	ms, _ = strconv.ParseUint(first, 10, 64) // the server makes these
	sequence, _ = strconv.ParseUint(second, 10, 64)
	return ms, sequence
}

// before is the ID just before another.
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
