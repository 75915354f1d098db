package web

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/store"
)

// placeRow is a place of a message or key in a table.
type placeRow struct {
	inspect.Place
	Mark           mark
	Text, NextText string
	// Path is the page that the state leads to, Dead the number of open dead letters of a key.
	Path string
	Dead int64
}

// placeText says what a state means, and how bad it is: 3 needs somebody, 0 needs nothing.
func placeText(p inspect.Place) (row placeRow, bad int) {
	row = placeRow{Place: p, Mark: mark{"quiet", "check", ""}, NextText: p.Next.Text}
	delivered := "Delivered"
	if p.Kind == store.KindConsumer {
		delivered = "Applied"
	}
	switch p.State {
	case inspect.Dead:
		row.Mark, row.Text, bad = mark{"bad", "octagon", ""}, "Dead letter", 3
	case inspect.Blocking, inspect.Held:
		row.Mark, row.Text, bad = mark{"warn", "lock", ""}, "Held: it failed and is retried", 2
		if p.State == inspect.Held {
			row.Text = "Held"
		}
	case inspect.Queued:
		row.Mark, row.Text, bad = mark{"warn", "clock", ""}, "Parked behind a held key", 2
	case inspect.Parked:
		row.Mark, row.Text, bad = mark{"info", "clock", ""}, parkReason(p.Reason), 1
	case inspect.Waiting:
		row.Mark, row.Text, bad = mark{"quiet", "clock", ""}, "Waiting", 1
	case inspect.NotBegun:
		row.Mark, row.Text, bad = mark{"warn", "clock", ""}, "Waiting for a process", 2
	case inspect.Delivered, inspect.DeliveredOrSkipped:
		row.Text, row.NextText = delivered, ""
	case inspect.NotTaken:
		row.Mark, row.Text, row.NextText = mark{"quiet", "dash", ""}, "Not routed here: takes "+strings.Join(p.Topics, ", "), ""
	case inspect.Discarded:
		row.Mark, row.Text, row.NextText = mark{"quiet", "dash", ""}, "Discarded", ""
	case inspect.NotHeld:
		row.Text = "Not held"
	default:
		row.Mark, row.Text = mark{"quiet", "dash", ""}, "Unknown"
	}
	if d := p.DeadLetter; d != nil {
		row.Text, row.Path = fmt.Sprintf("%s %d", row.Text, d.Number), fmt.Sprintf("/dead/%d", d.Number)
		if p.State == inspect.Discarded {
			row.Text = fmt.Sprintf("Discarded: dead letter %d", d.Number)
		}
	} else if p.HeldKey != nil {
		row.Path = admin.HeldPath(p.Name, p.HeldKey.Key)
	}
	if p.Load != nil {
		row.Dead = p.Load.Dead.N
	}
	if row.NextText = upper(row.NextText); p.Ahead != nil && p.Ahead.N > 0 && p.State == inspect.Queued {
		row.NextText = fmt.Sprintf("%d %s ahead of it. %s", p.Ahead.N, map[bool]string{true: "message is", false: "messages are"}[p.Ahead.N == 1], row.NextText)
	}
	return row, bad
}

// upper begins a sentence.
func upper(text string) string {
	if text == "" || strings.HasPrefix(text, "nothing: ") {
		return strings.TrimPrefix(text, "nothing: ")
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// places describes the places, those that need somebody first.
func places(list []inspect.Place) (rows []placeRow, worst int) {
	rank := make(map[string]int)
	for _, p := range list {
		row, bad := placeText(p)
		rank[p.Name], worst = bad, max(worst, bad)
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b placeRow) int { return rank[b.Name] - rank[a.Name] })
	return rows, worst
}

// link is a button to another page.
type link struct{ Text, Path string }

func unknown(p placeRow) bool { return p.State == inspect.Unknown && p.Kind == store.KindRelay }

// messageData is what the page of a message shows.
type messageData struct {
	// Unknown are the relays at which nothing is known about it.
	Unknown  string
	E        inspect.Explanation
	Mark     mark
	Sentence []string
	Primary  *link
	Places   []placeRow
	Events   []event
	// Decide is the relay at which the message waits by itself, "" if it does at none.
	Decide string
	Chain  causationData
	// Saga is the one that it belongs to, if that is known and shown; OfKey is the page of its key.
	Saga     *link
	OfKey    string
	Payload  []admin.Segment
	HiddenBy string
}

func (h *Handler) message(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/messages", shortID(r.PathValue("id")), "message", func(out *page) error {
		e, err := h.service.Message(r.Context(), p, r.PathValue("id"))
		if err != nil {
			return err
		}
		d := messageData{E: e}
		var worst int
		d.Places, worst = places(e.Places)
		d.Mark = [...]mark{{"muted", "check", ""}, {"muted", "clock", ""}, {"warn", "triangle", ""}, {"bad", "octagon", ""}}[worst]
		if known := slices.DeleteFunc(slices.Clone(d.Places), unknown); len(known) > 0 {
			var names []string
			for _, place := range d.Places {
				if unknown(place) {
					names = append(names, place.Name)
				}
			}
			d.Places, d.Unknown = known, strings.Join(names, ", ")
		}
		d.sentence()
		d.Chain = h.causation(r, p, e.Message.ID)
		if err := h.related(r, p, &d); err != nil {
			return err
		}
		d.Events = timeline(e)
		for i := range d.Events {
			if d.Events[i].Path != "" {
				d.Events[i].Path = out.URL(d.Events[i].Path)
			}
		}
		if err := h.payloadOf(r, p, &d); err != nil {
			return err
		}
		out.Title, out.Refresh = visible(e.Message.Type), refreshEvery
		out.Crumbs, out.Data = []crumb{{"Messages", "/messages"}, {e.Message.Type, ""}}, d
		return nil
	})
}

// payloadOf adds the payload of a message that is a dead letter, and the forms of one that waits by itself.
func (h *Handler) payloadOf(r *http.Request, p admin.Principal, d *messageData) error {
	for _, place := range d.Places {
		if place.State == inspect.Parked && p.Role.May("Decide") {
			d.Decide = place.Name
		}
		if place.DeadLetter == nil || d.Payload != nil || !p.Role.May("Content") {
			continue
		}
		l, _, err := h.service.DeadLetter(r.Context(), p, place.DeadLetter.Number)
		if err != nil {
			return err
		}
		d.Payload, d.HiddenBy = l.Payload, l.HiddenBy
	}
	return nil
}

// delivered returns a sentence if every relay that takes the message has delivered it.
func (d *messageData) delivered() (text string, all bool) {
	var names []string
	for _, p := range d.Places {
		switch p.State {
		case inspect.Delivered, inspect.DeliveredOrSkipped:
			names = append(names, p.Name)
		case inspect.NotTaken, inspect.Unknown:
		default:
			return "", false
		}
	}
	switch n := len(names); {
	case n == 0:
		return "", false
	case n <= 3:
		return "Delivered by " + admin.Listed(names), true
	default:
		return fmt.Sprintf("Delivered by all %d relays that take it", n), true
	}
}

// sentence answers where the message is: the worst first, at most two places.
func (d *messageData) sentence() {
	if text, all := d.delivered(); all {
		d.Sentence = []string{text}
		return
	}
	more := 0
	for _, p := range d.Places {
		if p.State == inspect.NotTaken || p.State == inspect.Unknown {
			continue
		}
		if len(d.Sentence) == 2 {
			more++
			continue
		}
		text := map[inspect.State]string{
			inspect.Dead: "Failed at " + p.Name, inspect.Blocking: "Failing at " + p.Name + ", which holds its key.",
			inspect.Queued: "Waiting at " + p.Name + " behind a held key.", inspect.Parked: "Parked at " + p.Name + ".",
			inspect.Waiting: "Waiting for " + p.Name + ".", inspect.NotBegun: "Waiting for a process of " + p.Name + ".",
			inspect.Discarded: "Discarded at " + p.Name + ".",
		}[p.State]
		switch {
		case text == "":
			text = p.Mark.Text + p.Text + " by " + p.Name + "."
		case p.DeadLetter != nil && p.State == inspect.Dead:
			text += fmt.Sprintf(": dead letter %d.", p.DeadLetter.Number)
			if d.Primary == nil {
				d.Primary = &link{fmt.Sprintf("Open dead letter %d", p.DeadLetter.Number), p.Path}
			}
		case p.HeldKey != nil && d.Primary == nil:
			d.Primary = &link{"Open held key", p.Path}
		}
		d.Sentence = append(d.Sentence, text)
	}
	switch {
	case len(d.Sentence) == 0 && d.E.Unrouted:
		d.Sentence = []string{"No relay takes this message."}
	case len(d.Sentence) == 0:
		d.Sentence = []string{"Published, and not delivered yet."}
	case more > 0:
		d.Sentence = append(d.Sentence, fmt.Sprintf("And %d more.", more))
	}
	if len(d.Sentence) == 1 { // a title
		d.Sentence[0] = strings.TrimSuffix(d.Sentence[0], ".")
	}
}

// related finds the pages of the message's saga and key.
func (h *Handler) related(r *http.Request, p admin.Principal, d *messageData) error {
	if key := d.E.Message.Key; key != "" {
		d.OfKey = admin.KeyPath(key)
	}
	of := d.Chain.This.CorrelationID
	if of == "" || isHidden(of) {
		return nil
	}
	s, err := h.service.SagaOf(r.Context(), p, of)
	if errors.Is(err, store.ErrNoSaga) {
		return nil
	}
	d.Saga = &link{s.Saga, "/sagas/" + escapePath(s.Run)}
	return err
}

// findData is the search page.
type findData struct {
	Query string
	admin.Search
}

func (h *Handler) find(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	d := findData{Query: strings.TrimSpace(r.URL.Query().Get("q"))}
	var err error
	if d.Search, err = h.service.Find(r.Context(), p, d.Query); err != nil {
		h.failWith(w, r, err)
		return
	}
	if len(d.Found) == 1 {
		http.Redirect(w, r, h.cfg.Prefix+d.Found[0].Path, http.StatusSeeOther)
		return
	}
	h.show(w, r, p, "/messages", "Messages", "find", func(out *page) error {
		out.Data = d
		return nil
	})
}

// keyData is a key at each relay and consumer.
type keyData struct {
	E      inspect.Explanation
	Places []placeRow
	HeldAt []string
}

func (h *Handler) key(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	key := r.PathValue("key")
	h.show(w, r, p, "/messages", shortKey(key), "keypage", func(out *page) error {
		e, err := h.service.Key(r.Context(), p, key)
		if err != nil {
			return err
		}
		d := keyData{E: e}
		d.Places, _ = places(e.Places)
		for _, place := range d.Places {
			if place.State == inspect.Held {
				d.HeldAt = append(d.HeldAt, visible(place.Name))
			}
		}
		out.Refresh, out.Crumbs, out.Data = refreshEvery, []crumb{{"Messages", "/messages"}, {"Key " + shortKey(key), ""}}, d
		return nil
	})
}

// errNoneOpen: all were resolved.
var errNoneOpen = errors.New("no dead letters")
