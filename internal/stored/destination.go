package stored

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/store"
)

// maxDestinationError and maxGateName are the numbers of bytes that are kept of a destination's error, and of what a gate waits for.
const (
	maxDestinationError = 1_000
	maxGateName         = 200
)

// report is the stored form of what a process says about its destination and its gate; times are in microseconds, relative to the
// heartbeat.
type report struct {
	State   store.DestinationState `json:"state,omitempty"`
	For     int64                  `json:"for,omitempty"`
	Error   string                 `json:"error,omitempty"`
	NextTry int64                  `json:"next,omitempty"`
	Gate    *gate                  `json:"gate,omitempty"`
}

// gate is the stored form of a store.Gate that is closed.
type gate struct {
	On      string `json:"on,omitempty"`
	For     int64  `json:"for"`
	NextTry int64  `json:"next,omitempty"`
}

// Report encodes what a process says about its destination and its gate; "" if it knows nothing of the one and the other is not closed.
func Report(o store.Owner) (string, error) {
	var r report
	if d := o.Destination; d.State != store.DestinationUnknown {
		r = report{State: d.State, For: d.For.Microseconds(), Error: cut(d.Error, maxDestinationError), NextTry: d.NextTry.Microseconds()}
	}
	if g := o.Gate; g.Closed {
		r.Gate = &gate{cut(g.On, maxGateName), g.For.Microseconds(), g.NextTry.Microseconds()}
	}
	if r == (report{}) {
		return "", nil
	}
	out, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("destination: %w", err)
	}
	return string(out), nil
}

// cut returns the first bytes of a text, as valid UTF-8.
func cut(text string, most int) string { return strings.ToValidUTF8(text[:min(len(text), most)], "") }

// parseReport parses the output of Report, as of a time after the heartbeat that stored it. What cannot be parsed is unknown.
func parseReport(text string, after time.Duration) (d store.Destination, g store.Gate) {
	var r report
	if text == "" || json.Unmarshal([]byte(text), &r) != nil {
		return d, g
	}
	micros := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	if r.State != store.DestinationUnknown {
		d = store.Destination{State: r.State, For: micros(r.For) + after, Error: r.Error, NextTry: max(micros(r.NextTry)-after, 0)}
	}
	if r.Gate != nil {
		g = store.Gate{Closed: true, On: r.Gate.On, For: micros(r.Gate.For) + after, NextTry: max(micros(r.Gate.NextTry)-after, 0)}
	}
	return d, g
}
