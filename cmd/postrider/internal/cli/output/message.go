package output

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

// Message writes a message for people.
func Message(out io.Writer, m *postrider.Message) {
	fmt.Fprintln(out, "\nmessage")
	f := NewFields(out)
	for _, v := range []struct{ name, value string }{
		{"id", m.ID}, {"type", m.Type}, {"topic", m.Topic}, {"key", m.Key}, {"source", m.Source}, {"subject", m.Subject},
		{"tenant", m.Tenant}, {"content type", m.ContentType}, {"correlation id", m.CorrelationID}, {"causation id", m.CausationID},
		{"schema version", Nonzero(int64(m.SchemaVersion))},
		{"aggregate version", Nonzero(m.AggregateVersion)},
	} {
		f.Add(v.name, v.value)
	}
	if !m.Time.IsZero() {
		f.Add("time", Moment(m.Time))
	}
	f.Add("stored", storedAs(m))
	for _, name := range slices.Sorted(maps.Keys(m.Headers)) {
		f.Add("header "+name, m.Headers[name])
	}
	f.Flush()
	fmt.Fprintf(out, "\npayload, %s\n%s\n", Plural(len(m.Payload), "byte"), Payload(m.Payload))
}

// storedAs says when a message was stored and with which sequence. A relay's message was stored in the log when it was
// published; a consumer's when it was parked, with a sequence that is not in the log; an imported one in another outbox.
func storedAs(m *postrider.Message) string {
	var parts []string
	if !m.CreatedAt.IsZero() {
		parts = append(parts, Moment(m.CreatedAt))
	}
	switch {
	case m.Sequence > 0:
		parts = append(parts, "with sequence "+Nonzero(m.Sequence))
	case m.Sequence < 0:
		parts = append(parts, "where it was imported from")
	}
	return strings.Join(parts, " ")
}

// Nonzero formats a number, "" for zero.
func Nonzero(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// Payload formats JSON indented, other text unchanged and everything else in hexadecimal, up to shownPayload bytes.
func Payload(payload []byte) string {
	var indented bytes.Buffer
	if len(payload) <= shownPayload && json.Indent(&indented, payload, "  ", "  ") == nil {
		return "  " + PrintableLines(indented.String())
	}
	rest := ""
	if n := shownPayload; len(payload) > n {
		for n > 0 && !utf8.RuneStart(payload[n]) {
			n-- // do not split a character
		}
		rest = fmt.Sprintf("\n  … and %s more (--payload writes all)", Plural(len(payload)-n, "byte"))
		payload = payload[:n]
	}
	text := string(payload)
	if !utf8.Valid(payload) {
		text = hex.Dump(payload)
	}
	return "  " + strings.ReplaceAll(PrintableLines(strings.TrimRight(text, "\n")), "\n", "\n  ") + rest
}

// History writes the attempts.
func History(out io.Writer, history []postrider.AttemptInfo) {
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
		fmt.Fprintf(w, "  %s\t%s\t%s\n", Moment(a.At), attempt, Printable(a.Cause))
	}
	_ = w.Flush()
}
