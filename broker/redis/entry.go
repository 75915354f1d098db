package redisbroker

import (
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

// sequenceBits are those of an offset for the second part of an entry's ID; there may be 2²⁰ entries with the same first
// part, which is a millisecond.
const sequenceBits = 20

// offsetOf is the position of an entry, from its ID: <milliseconds>-<sequence>. What does not fit is cut to what does.
func offsetOf(id string) int64 {
	ms, sequence := splitID(id)
	return int64(min(ms, math.MaxInt64>>sequenceBits)<<sequenceBits | min(sequence, 1<<sequenceBits-1))
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
