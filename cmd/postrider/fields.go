package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// shownPayload is how many bytes of a payload are shown.
const shownPayload = 4096

// fields writes names and values, one pair per line, without empty values.
type fields struct{ w *tabwriter.Writer }

func newFields(out io.Writer) *fields { return &fields{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

func (f *fields) add(name, value string) {
	if value != "" {
		fmt.Fprintf(f.w, "  %s\t%s\n", name, printable(value))
	}
}

// flush writes the fields. A closed output shows in the writes that follow.
func (f *fields) flush() { _ = f.w.Flush() }

// newTableUnless returns newTable, or nil if not is set.
func newTableUnless(not bool, out io.Writer, columns ...string) *table {
	if not {
		return nil
	}
	return newTable(out, columns...)
}

func parseInt(text string) (int64, error) { return strconv.ParseInt(text, 10, 64) }

// writeMessage writes a message for people.
func writeMessage(out io.Writer, m *postrider.Message) {
	fmt.Fprintln(out, "\nmessage")
	f := newFields(out)
	for _, v := range []struct{ name, value string }{
		{"id", m.ID}, {"type", m.Type}, {"topic", m.Topic}, {"key", m.Key}, {"source", m.Source}, {"subject", m.Subject},
		{"tenant", m.Tenant}, {"content type", m.ContentType}, {"correlation id", m.CorrelationID}, {"causation id", m.CausationID},
		{"schema version", nonzero(int64(m.SchemaVersion))},
		{"aggregate version", nonzero(m.AggregateVersion)},
	} {
		f.add(v.name, v.value)
	}
	if !m.Time.IsZero() {
		f.add("time", moment(m.Time))
	}
	f.add("stored", storedAs(m))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		f.add("header "+name, m.Headers[name])
	}
	f.flush()
	fmt.Fprintf(out, "\npayload, %s\n%s\n", plural(len(m.Payload), "byte"), showPayload(m.Payload))
}

// storedAs says when a message was stored and with which sequence. A relay's message was stored in the log when it was
// published; a consumer's when it was parked, with a sequence that is not in the log; an imported one in another outbox.
func storedAs(m *postrider.Message) string {
	var parts []string
	if !m.CreatedAt.IsZero() {
		parts = append(parts, moment(m.CreatedAt))
	}
	switch {
	case m.Sequence > 0:
		parts = append(parts, "with sequence "+nonzero(m.Sequence))
	case m.Sequence < 0:
		parts = append(parts, "where it was imported from")
	}
	return strings.Join(parts, " ")
}

func nonzero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// showPayload formats JSON indented, other text unchanged and everything else in hexadecimal, up to shownPayload bytes.
func showPayload(payload []byte) string {
	var indented bytes.Buffer
	if len(payload) <= shownPayload && json.Indent(&indented, payload, "  ", "  ") == nil {
		return "  " + printableLines(indented.String())
	}
	rest := ""
	if n := shownPayload; len(payload) > n {
		for n > 0 && !utf8.RuneStart(payload[n]) {
			n-- // do not split a character
		}
		rest = fmt.Sprintf("\n  … and %s more (--payload writes all)", plural(len(payload)-n, "byte"))
		payload = payload[:n]
	}
	text := string(payload)
	if !utf8.Valid(payload) {
		text = hex.Dump(payload)
	}
	return "  " + strings.ReplaceAll(printableLines(strings.TrimRight(text, "\n")), "\n", "\n  ") + rest
}

// writeHistory writes the attempts.
func writeHistory(out io.Writer, history []postrider.AttemptInfo) {
	if len(history) == 0 {
		return
	}
	fmt.Fprintln(out, "\nhistory")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, a := range history {
		attempt := "-"
		if a.Attempt > 0 {
			attempt = "attempt " + strconv.Itoa(a.Attempt)
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", moment(a.At), attempt, printable(a.Cause))
	}
	_ = w.Flush()
}
