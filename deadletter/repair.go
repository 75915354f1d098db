package deadletter

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// ErrEdited: someone else has edited the dead letter since it was read.
var ErrEdited = errors.New("dead letter was edited meanwhile")

// Edit changes the message of an open dead letter before it is redriven.
type Edit struct {
	// Payload is the new payload, unless nil.
	Payload []byte
	// Headers replaces all headers, unless nil.
	Headers map[string]string
	// Seen is Record.Edits as the editor read it, so that concurrent edits do not overwrite each other.
	Seen int
	// By and Why stay on record.
	By, Why string
}

// Apply returns the edited message. Errors: *postrider.ValidationError.
func (e Edit) Apply(m *postrider.Message) (*postrider.Message, error) {
	if e.Payload == nil && e.Headers == nil {
		return nil, errors.New("the edit changes neither payload nor headers")
	}
	// Only the edited fields must follow the rules: a message that could not be read may lack other attributes.
	check := &postrider.Message{Type: "edited", Headers: e.Headers, Payload: e.Payload}
	check.FillDefaults("edited", time.Unix(0, 0))
	limits := postrider.Limits{MaxPayload: max(postrider.DefaultMaxPayload, len(m.Payload))}
	if err := check.Validate(limits); err != nil {
		return nil, err
	}
	edited := *m
	if e.Payload != nil {
		edited.Payload = e.Payload
	}
	if e.Headers != nil {
		edited.Headers = e.Headers
	}
	return &edited, nil
}

// refuseEdited is the error for an edit based on an outdated version of the dead letter.
func refuseEdited(number int64, seen, edits int) error {
	return fmt.Errorf("%w: dead letter %d has %d edits and the editor saw %d; look at it again (postrider dead show %d)", ErrEdited,
		number, edits, seen, number)
}

// Edited is an edit on record, with payload and headers as they were before it: those of the first edit are the original.
type Edited struct {
	At      time.Time         `json:"at"`
	By      string            `json:"by"`
	Why     string            `json:"why"`
	Payload []byte            `json:"payload_before"`
	Headers map[string]string `json:"headers_before,omitempty"`
}

// Diff lists the differences between two payloads and sets of headers, line by line: "-" before a line that is only in
// the first, "+" before one that is only in the second. For payloads that are not text it gives only the sizes.
func Diff(payload []byte, headers map[string]string, newPayload []byte, newHeaders map[string]string) []string {
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

// CauseCount counts dead letters of one relay or consumer, type and cause.
type CauseCount struct {
	Relay       string `json:"relay"`
	Type        string `json:"type"`
	Fingerprint string `json:"fingerprint"`
	DeadLetters int64  `json:"dead_letters"`
	// Oldest and Newest are when the first and the last of them were dead-lettered; Reason and Cause are those of the one
	// with the highest number, Number.
	Oldest time.Time `json:"oldest"`
	Newest time.Time `json:"newest"`
	Number int64     `json:"number"`
	Reason string    `json:"reason"`
	Cause  string    `json:"cause"`
}

// Archived is a dead letter with all its data, for export and import.
type Archived struct {
	Record
	Before []Edited `json:"edited,omitempty"`
}

// RepairStore changes, counts and moves dead letters.
type RepairStore interface {
	// EditDead edits an open dead letter and keeps the previous content. Errors: ErrNotFound, ErrResolved, ErrEdited;
	// *postrider.ValidationError.
	EditDead(ctx context.Context, number int64, e Edit) (Record, error)
	// ListEdits returns the edits of a dead letter, oldest first. Errors: ErrNotFound.
	ListEdits(ctx context.Context, number int64) ([]Edited, error)
	// CountCauses counts the dead letters that match the filter by relay or consumer, type and fingerprint, most frequent
	// first, and returns up to limit groups.
	CountCauses(ctx context.Context, f Filter, limit int) ([]CauseCount, error)
	// ImportDead adds dead letters from this or another outbox, in one transaction, and returns how many are new: one
	// with the same relay, message ID and DiedAt already exists, and stays unchanged. New ones get new numbers and, since
	// their sequences mean nothing here, the ImportedSequence of these. They belong to no redrive of this outbox,
	// whatever Record.Redrive says. Concurrent calls do not import a dead letter twice.
	ImportDead(ctx context.Context, letters []Archived) (int, error)
}

// ImportedSequence is the sequence of an imported dead letter's message: lower than those of any log, and rising with
// number.
func ImportedSequence(number int64) int64 { return number - 1<<62 }

// checkImported rejects records that are not valid dead letters.
func checkImported(a Archived) error {
	switch {
	case a.Message == nil || a.Message.ID == "":
		return errors.New("it has no message with an id")
	case a.Unreadable != "":
		return fmt.Errorf("its message could not be read when it was exported (%s): give it headers there first (postrider dead edit), "+
			"or correct the line and remove \"unreadable\" from it", a.Unreadable)
	case a.Relay == "" || len(a.Relay) > 64:
		return fmt.Errorf("its relay or consumer is named %q; a name has 1 to 64 bytes", a.Relay)
	case a.DiedAt.IsZero():
		return errors.New("it does not say when it died")
	case a.State != Open && a.State != Redriven && a.State != Discarded:
		return fmt.Errorf("its state is %q; it must be open, redriven or discarded", a.State)
	}
	return nil
}
