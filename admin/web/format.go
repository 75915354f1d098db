package web

import (
	"fmt"
	"html/template"
	"math"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
)

// mark is an icon and its tone, with a word.
type mark struct{ Tone, Icon, Text string }

// functions are those of the templates. None returns markup: texts are escaped where they are inserted.
func (h *Handler) functions() template.FuncMap {
	return template.FuncMap{
		"visible": visible, "visibleLines": visibleLines, "line": line, "slots": slots, "shortkey": shortKey, "hiddenkey": isHidden, "shortid": shortID,
		"count": count, "num": admin.Number, "dur": admin.Duration, "rate": admin.Rate, "share": share,
		"stamp":       func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") },
		"clock":       func(t time.Time) string { return clock(t, "15:04:05") },
		"clockMillis": func(t time.Time) string { return clock(t, "15:04:05.000") },
		"hms":         func(t time.Time) string { return t.UTC().Format("15:04:05") }, "hm": func(t time.Time) string { return t.UTC().Format("15:04") },
		"ago":    func(now, t time.Time) string { return admin.Duration(now.Sub(t).Truncate(time.Second)) },
		"until":  until,
		"recent": func(now, t time.Time) bool { return now.Sub(t) < 10*time.Minute },
		"tone":   toneMark, "word": wordMark, "state": func(tone, icon, text string) mark { return mark{tone, icon, text} },
		"result": resultMark, "level": levelMark, "redriveStatus": redriveMark, "sagaStatus": sagaMark, "sagaVerb": sagaVerb, "deadState": deadState, "parkReason": parkReason,
		"ispath": isPath, "runbook": runbook, "shortcut": shortcut,
		"relayPath": admin.RelayPath, "heldPath": admin.HeldPath,
		"messagePath": func(id string) string { return "/messages/" + url.PathEscape(id) }, "keyPath": admin.KeyPath,
		"sagaPath": func(id string) string { return "/sagas/" + url.PathEscape(id) }, "groupPath": admin.GroupPath, "query": query,
		"join": func(list []string) string { return strings.Join(list, ", ") }, "listed": admin.Listed,
		"upper": upper,
		"sub":   func(a, b int) int { return a - b },
		"int64": func(n int) int64 { return int64(n) },
		"owned": owned, "spark": spark, "chart": chart, "chartLine": chartLine, "chartRows": chartRows, "meter": meter,
		"verb": verb, "answerers": answerers, "entry": func(p *page, e admin.Entry) didData { return didData{p, e} },
		"pageOf": func(p *page, data any) pageData { return pageData{p, data} },
	}
}

// pageData is a part of a page with its data.
type pageData struct {
	Page *page
	Data any
}

// didData is an entry of the audit in a sentence.
type didData struct {
	Page  *page
	Entry admin.Entry
}

// Verb is what somebody did, in a sentence.
func (d didData) Verb() string {
	verbs := map[admin.Action]string{
		"ExecuteReview": "started", "RedriveDead": "started", "DiscardDead": "discarded", "EditDead": "edited", "CancelRedrive": "cancelled",
		"ContinueRedrive": "continued", "PauseRelay": "paused", "ResumeRelay": "resumed",
		"Decide": "decided", "Reveal": "looked at hidden values of", "CreateToken": "created", "RevokeToken": "revoked",
		"ImportDead": "imported", "PurgeDead": "purged", "Erase": "erased", "ResumeErasure": "resumed", "PlaceHold": "placed", "ReleaseHold": "released",
		"StartReplay": "started", "PauseReplay": "paused", "ResumeReplay": "resumed", "CancelReplay": "cancelled", "RemoveRelay": "removed",
		"OperateSaga": "asked for", "AnswerSaga": "answered",
	}
	text := verbs[d.Entry.Action]
	if text == "" {
		text = "asked for " + strings.ToLower(verb(d.Entry)) + ":"
	}
	if d.Entry.Result != admin.Done {
		text = "tried: " + verb(d.Entry) + ":"
	}
	return text
}

func verb(e admin.Entry) string {
	verbs := map[admin.Action]string{
		"ExecuteReview": "Redrive", "RedriveDead": "Redrive", "DiscardDead": "Discard", "EditDead": "Edit", "CancelRedrive": "Cancel",
		"ContinueRedrive": "Continue", "PauseRelay": "Pause", "ResumeRelay": "Resume",
		"Decide": "Decide", "Reveal": "Show hidden values", "CreateToken": "Create", "RevokeToken": "Revoke", "StartReview": "Review",
		"ImportDead": "Import", "PurgeDead": "Purge", "PlaceHold": "Place", "ReleaseHold": "Release", "StartReplay": "Replay",
		"PauseReplay": "Pause", "ResumeReplay": "Resume", "CancelReplay": "Cancel", "RemoveRelay": "Remove", "OperateSaga": "Saga",
		"AnswerSaga": "Answer",
	}
	if e.Action == "ExecuteReview" && strings.HasPrefix(e.On, "discard") {
		return "Discard"
	}
	if text := verbs[e.Action]; text != "" {
		return text
	}
	return string(e.Action)
}

// visible shows characters that hide or reorder text as escapes, in one line.
func visible(v any) string {
	return escapeRunes(fmt.Sprint(v), false)
}

// visibleLines is visible for a text of several lines.
func visibleLines(text string) string { return escapeRunes(text, true) }

func escapeRunes(text string, lines bool) string {
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == '\n' && lines, r == '\t' && lines, r == '\u00a0':
			b.WriteRune(r)
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], "\ufffd"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Zl, unicode.Zp), r == '\u115f', r == '\u3164', r == '\u2800':
			if r > 0xffff {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxLine is how many characters of a text a line of a table shows.
const maxLine = 160

// line is the first line of a text, cut.
func line(text string) string {
	text, _, more := strings.Cut(strings.TrimSpace(text), "\n")
	if runes := []rune(text); len(runes) > maxLine {
		return string(runes[:maxLine-1]) + "…"
	}
	if more {
		return text + " …"
	}
	return text
}

// slot is a part of a cause: a text, or the place of a number or an identifier.
type slot struct {
	Text string
	Slot bool
}

// slots finds the # that stand for numbers and identifiers.
func slots(cause string) (out []slot) {
	for i, part := range strings.Split(visible(cause), "#") {
		if n := len(out); i > 0 && n > 1 && !out[n-1].Slot && strings.Trim(out[n-1].Text, ".:") == "" {
			out = out[:n-1] // the address #.#.#.#:# is one
		} else if i > 0 {
			out = append(out, slot{Slot: true})
		}
		if part != "" {
			out = append(out, slot{Text: part})
		}
	}
	return out
}

// shortKey cuts a key in the middle: keys differ at their ends. A hidden one has the end of the ID of a message instead.
func shortKey(key string) string {
	if id, hidden := admin.Hidden(key); hidden {
		return strings.TrimSpace("hidden key " + string([]rune(visible(id))[max(0, len([]rune(visible(id)))-6):]))
	}
	runes := []rune(visible(key))
	if len(runes) <= 48 {
		return string(runes)
	}
	return string(runes[:28]) + "…" + string(runes[len(runes)-16:])
}

// shortcut is the key after g that leads to a destination; the script has the same.
func shortcut(name string) string {
	if name == "Health" {
		return "e"
	}
	return strings.ToLower(name[:1])
}

func isHidden(key string) bool {
	_, hidden := admin.Hidden(key)
	return hidden
}

func shortID(id string) string {
	runes := []rune(visible(id))
	if len(runes) <= 16 {
		return string(runes)
	}
	return string(runes[:8]) + "…" + string(runes[len(runes)-4:])
}

func count(n any) string {
	switch n := n.(type) {
	case int64:
		return admin.Grouped(n)
	case int:
		return admin.Grouped(int64(n))
	}
	return fmt.Sprint(n)
}

func share(of float64) string {
	switch {
	case of < 0:
		return "unknown"
	case of > 0 && of < 0.01:
		return "<1%"
	}
	return fmt.Sprintf("%.0f%%", math.Round(100*of))
}

// clock is the time of a day, with the day if it is not today.
func clock(t time.Time, layout string) string {
	if t = t.UTC(); t.Format(time.DateOnly) != time.Now().UTC().Format(time.DateOnly) {
		return t.Format("2 Jan 15:04")
	}
	return t.Format(layout)
}

func until(now, t time.Time) string {
	if d := t.Sub(now); d > 0 {
		return "in " + admin.Duration(d)
	}
	return "now"
}

func query(path string, pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			v.Set(pairs[i], pairs[i+1])
		}
	}
	if len(v) == 0 {
		return path
	}
	return path + "?" + v.Encode()
}

func toneMark(tone any) mark {
	icons := map[string]string{"bad": "octagon", "warn": "triangle", "info": "arrows", "quiet": "check", "ok": "check"}
	name := fmt.Sprint(tone)
	return mark{name, icons[name], ""}
}

func wordMark(w admin.Word) mark {
	icons := map[admin.Word]string{admin.Delivering: "check", admin.Idle: "dash", admin.Paused: "pause", admin.Waiting: "clock", admin.Holding: "clock"}
	m := toneMark(w.Tone())
	if icon := icons[w]; icon != "" {
		m.Icon = icon
	}
	m.Text = string(w)
	return m
}

func resultMark(e admin.Entry) mark {
	return map[admin.Result]mark{
		admin.Done: {"quiet", "check", "Done"}, admin.Refused: {"warn", "triangle", "Refused"}, admin.Failed: {"bad", "octagon", "Failed"},
	}[e.Result]
}

func redriveMark(r store.Redrive) mark {
	switch r.Stopped() {
	case "":
	case store.StoppedWaiting:
		return mark{"warn", "clock", "Waiting for first message"}
	case store.StoppedBlocked:
		return mark{"warn", "clock", "Waiting for attempts"}
	case store.StoppedFirst:
		return mark{"warn", "triangle", "First message failed"}
	default:
		return mark{"warn", "triangle", "Stopped by limit"}
	}
	return map[store.RedriveState]mark{
		store.RedriveRunning: {"info", "arrows", "Running"}, store.RedriveFinished: {"quiet", "check", "Finished"},
		store.RedriveCancelled: {"quiet", "dash", "Cancelled"}, store.RedriveFailed: {"bad", "octagon", "Failed"},
	}[r.State]
}

func sagaMark(s store.SagaSummary) mark {
	m := map[store.SagaStatus]mark{
		store.SagaRunning: {"quiet", "arrows", "Running"}, store.SagaCompensating: {"info", "arrows", "Compensating"},
		store.SagaStuck: {"bad", "octagon", "Stuck"}, store.SagaCompleted: {"quiet", "check", "Completed"},
		store.SagaCompensated: {"quiet", "check", "Compensated"}, store.SagaAbandoned: {"warn", "dash", "Abandoned"},
	}[s.Status]
	if s.Paused {
		m.Text += ", paused"
	}
	return m
}

func deadState(s store.DeadState) string {
	return map[store.DeadState]string{store.DeadOpen: "Open", store.DeadRedriven: "Redriven", store.DeadDiscarded: "Discarded"}[s]
}

func parkReason(r any) string {
	text := map[store.ParkReason]string{
		store.ParkRetry: "Retrying after a failure", store.ParkSnoozed: "Put off by its handler",
		store.ParkHeld: "Queued after the blocking message of its key", store.ParkDelayed: "Delayed until its time",
		store.ParkSlow: "Takes longer than usual", store.ParkUnhandled: "No handler or route takes it", store.ParkRedriven: "Redriven",
		store.ParkReturned: "Its process stopped before working on it", store.ParkReplayed: "Replayed",
		store.ParkFailed: "Queued in its key, then dead-lettered",
		store.ParkAlone:  "Committed late, with a message that failed", store.ParkDead: "Its blocking message is a dead letter",
	}[store.ParkReason(fmt.Sprint(r))]
	if text == "" {
		return visible(r)
	}
	return text
}

func owned(partitions []store.PartitionStatus, owner string) (n int) {
	for _, p := range partitions {
		if p.Owner == owner {
			n++
		}
	}
	return n
}

// tidy sorts and removes duplicates and empty names.
func tidy(names []string) []string {
	names = slices.DeleteFunc(names, func(n string) bool { return n == "" })
	slices.Sort(names)
	return slices.Compact(names)
}
