package stored

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// maxDestinationError is the number of bytes that are kept of a destination's error.
const maxDestinationError = 1_000

// destination is the stored form of store.Destination; times are in microseconds, relative to the heartbeat.
type destination struct {
	State   store.DestinationState `json:"state"`
	For     int64                  `json:"for"`
	Error   string                 `json:"error,omitempty"`
	NextTry int64                  `json:"next,omitempty"`
}

// Destination encodes the state of a destination; "" if it is unknown.
func Destination(d store.Destination) (string, error) {
	if d.State == store.DestinationUnknown {
		return "", nil
	}
	text := d.Error
	if len(text) > maxDestinationError {
		text = text[:maxDestinationError]
	}
	out, err := json.Marshal(destination{d.State, d.For.Microseconds(), strings.ToValidUTF8(text, ""), d.NextTry.Microseconds()})
	if err != nil {
		return "", fmt.Errorf("destination: %w", err)
	}
	return string(out), nil
}

// parseDestination parses the output of Destination, as of a time after the heartbeat that stored it. What cannot be parsed is
// unknown.
func parseDestination(text string, after time.Duration) store.Destination {
	var d destination
	if text == "" || json.Unmarshal([]byte(text), &d) != nil || d.State == store.DestinationUnknown {
		return store.Destination{}
	}
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	return store.Destination{
		State: d.State, For: micros(d.For) + after, Error: d.Error, NextTry: max(micros(d.NextTry)-after, 0),
	}
}
