package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/store"
)

// pageRoutes are the pages that change nothing.
func (h *Handler) pageRoutes() map[string]handler {
	return map[string]handler{
		"GET /{$}": h.overview, "GET /relays/{name}": h.relay, "GET /held": h.heldKeys, "GET /held/{relay}/{key}": h.heldKey,
		"GET /dead": h.deadLetters, "GET /causes/{fingerprint}": h.group, "GET /dead/{number}": h.deadLetter,
		"GET /dead/{number}/edit": h.showEdit, "GET /dead/{number}/reveal": h.showReveal, "GET /reviews/{id}": h.review,
		"GET /redrives/{id}": h.redrive, "GET /messages": h.find, "GET /messages/{id}": h.message, "GET /keys/{key}": h.key,
		"GET /sagas": h.sagas, "GET /sagas/{id}": h.saga, "GET /health": h.health, "GET /activity": h.activity,
		"GET /help": h.help, "GET /help/{page...}": h.doc,
	}
}

// refreshEvery is after how many seconds pages ask again; a running redrive asks each second.
const refreshEvery = 5

// show renders a page, or the error of its data.
func (h *Handler) show(w http.ResponseWriter, r *http.Request, p admin.Principal, section, title, name string, fill func(*page) error) {
	out, err := h.newPage(r, p, section, title)
	if err == nil {
		err = fill(out)
	}
	if err != nil {
		h.failWith(w, r, err)
		return
	}
	h.render(w, r, name, out)
}

func (h *Handler) overview(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/", "Overview", "overview", func(out *page) (err error) {
		out.Refresh = refreshEvery
		if p.Role.May("Activity") {
			out.Activity, _, err = h.service.Activity(r.Context(), p, "", 5)
		}
		return err
	})
}

func (h *Handler) relay(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	name := r.PathValue("name")
	h.show(w, r, p, "/", name, "relay", func(out *page) (err error) {
		out.Refresh, out.Crumbs = refreshEvery, []crumb{{"Overview", "/"}, {name, ""}}
		out.Data, err = h.service.Relay(r.Context(), p, name)
		return err
	})
}

// heldShown is how many held keys a page shows.
const heldShown = 200

func (h *Handler) heldKeys(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/held", "Held keys", "held", func(out *page) (err error) {
		out.Refresh = refreshEvery
		out.Data, err = h.service.HeldKeys(r.Context(), p, r.URL.Query().Get("relay"), heldShown)
		return err
	})
}

// heldKeyData is a held key with its messages.
type heldKeyData struct {
	Held   store.HeldInfo
	Queued []admin.Queued
}

func (h *Handler) heldKey(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	relay, key := r.PathValue("relay"), r.PathValue("key")
	h.show(w, r, p, "/held", key, "heldkey", func(out *page) (err error) {
		var d heldKeyData
		d.Held, d.Queued, err = h.service.HeldKey(r.Context(), p, relay, key, 100)
		if errors.Is(err, store.ErrNotHeld) {
			err = fmt.Errorf("key %s is not held at %s any more: %w", visible(key), visible(relay), store.ErrNotHeld)
		}
		out.Refresh, out.Crumbs, out.Data = refreshEvery, []crumb{{"Held keys", "/held"}, {shortKey(key), ""}}, d
		return err
	})
}

// deadData is what the pages of dead letters show.
type deadData struct {
	Filter   store.DeadFilter
	Filtered bool
	Names    []string
	Total    store.Count
	Newest   time.Time
	// Gaps are sentences about what was not looked at.
	Gaps   []store.SearchGap
	Causes []store.CauseCount
	State  string
	States []string
	List   []admin.Dead
	// Next is the address of the next page.
	Next string
}

const (
	causesShown = 100
	deadShown   = 50
)

// deadFilter reads a filter from the address of a page or from a form.
func deadFilter(v url.Values) store.DeadFilter {
	return store.DeadFilter{
		Relay: v.Get("relay"), Type: strings.TrimSpace(v.Get("type")), Key: strings.TrimSpace(v.Get("key")),
		Fingerprint: v.Get("fingerprint"), State: store.DeadState(v.Get("state")),
	}
}

func (h *Handler) deadLetters(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	v := r.URL.Query()
	f := deadFilter(v)
	d := deadData{Filter: f, Filtered: f.Relay != "" || f.Type != "" || f.Key != "", State: "open", States: []string{"open", "redriven", "discarded", "any"}}
	if f.State != "" {
		d.State = string(f.State)
	}
	if v.Get("view") == "all" || f.State != "" || f.Key != "" {
		h.allDead(w, r, p, d)
		return
	}
	h.show(w, r, p, "/dead", "Dead letters", "dead", func(out *page) (err error) {
		out.Refresh, out.Tab = refreshEvery, "causes"
		found, err := h.service.Causes(r.Context(), p, f, causesShown)
		if err != nil {
			return err
		}
		d.Causes, d.Gaps, d.Total.AtLeast = found.Causes, found.Incomplete, !found.Complete
		for _, c := range d.Causes {
			if d.Total.N += c.DeadLetters; c.Newest.After(d.Newest) {
				d.Newest = c.Newest
			}
		}
		d.names(out)
		out.Data = d
		return nil
	})
}

// names fills the menu of relays.
func (d *deadData) names(p *page) {
	if o, ok := p.Data.(admin.Overview); ok {
		for _, r := range o.Relays {
			d.Names = append(d.Names, r.Name)
		}
	}
	for _, c := range d.Causes {
		d.Names = append(d.Names, c.Relay)
	}
	d.Names = tidy(append(d.Names, d.Filter.Relay))
}

func (h *Handler) allDead(w http.ResponseWriter, r *http.Request, p admin.Principal, d deadData) {
	h.show(w, r, p, "/dead", "Dead letters", "deadall", func(out *page) (err error) {
		out.Refresh, out.Tab = refreshEvery, "all"
		if err := h.listDead(r, p, &d); err != nil {
			return err
		}
		d.names(out)
		out.Data = d
		return nil
	})
}

// listDead reads a page of dead letters.
func (h *Handler) listDead(r *http.Request, p admin.Principal, d *deadData) error {
	v := r.URL.Query()
	after, _ := strconv.ParseInt(v.Get("after"), 10, 64)
	found, err := h.service.DeadLetters(r.Context(), p, d.Filter, max(0, after), deadShown)
	if err != nil {
		return err
	}
	d.List, d.Total, d.Gaps = found.DeadLetters, found.Count(), found.Incomplete
	if found.Next > 0 {
		v.Set("after", strconv.FormatInt(found.Next, 10))
		v.Del("done")
		d.Next = strings.TrimPrefix(r.URL.Path, h.cfg.Prefix) + "?" + v.Encode()
	}
	return nil
}

// groupData is what the page of a cause shows.
type groupData struct {
	deadData
	Cause   store.CauseCount
	Example *admin.Dead
	// Forms are the actions that can be reviewed.
	Forms []string
}

func (h *Handler) group(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	f := deadFilter(r.URL.Query())
	f.Fingerprint, f.State = r.PathValue("fingerprint"), ""
	h.show(w, r, p, "/dead", "Dead letters of one cause", "group", func(out *page) error {
		found, err := h.service.Causes(r.Context(), p, f, 1)
		if err != nil {
			return err
		}
		causes := found.Causes
		if len(causes) == 0 {
			return fmt.Errorf("%w of this cause are open; they were redriven or discarded", errNoneOpen)
		}
		d := groupData{Cause: causes[0], Forms: []string{"discard", "redrive"}}
		d.Filter = f
		if err := h.listDead(r, p, &d.deadData); err != nil {
			return err
		}
		example, _, err := h.service.DeadLetter(r.Context(), p, causes[0].Number)
		if err != nil {
			return err
		}
		title := line(causes[0].Cause)
		out.Title, out.Refresh, d.Example = title, refreshEvery, &example
		out.Crumbs, out.Data = []crumb{{"Dead letters", "/dead"}, {title, ""}}, d
		return nil
	})
}

// number reads the number of a dead letter or redrive in a path.
func number(r *http.Request, name string) (int64, error) {
	n, err := strconv.ParseInt(r.PathValue(name), 10, 64)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%w: %q is not a number", admin.ErrInput, r.PathValue(name))
	}
	return n, nil
}

// deadLetterData is a dead letter with its attempts.
type deadLetterData struct {
	Dead       admin.Dead
	Attempts   []event
	Edits      []store.Edited
	Normalized bool
}

func (h *Handler) deadLetter(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/dead", "Dead letter "+r.PathValue("number"), "deadletter", func(out *page) error {
		n, err := number(r, "number")
		if err != nil {
			return err
		}
		var d deadLetterData
		if d.Dead, d.Edits, err = h.service.DeadLetter(r.Context(), p, n); err != nil {
			return err
		}
		d.Attempts = fold(attemptEvents(d.Dead.Relay, d.Dead.History))
		d.Normalized = d.Dead.Cause != "" && strings.Contains(d.Dead.Cause, "#")
		out.Crumbs, out.Data = []crumb{{"Dead letters", "/dead"}, {strconv.FormatInt(n, 10), ""}}, d
		return nil
	})
}

// editData is an editor for a payload.
type editData struct {
	Number       int64
	Text         string
	Seen         int
	Reason       string
	Error        string
	Shown        bool
	Payload      string
	Key, Subject string
	Headers      []admin.Header
	ErrorMessage string
}

func (h *Handler) showEdit(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/dead", "Edit dead letter "+r.PathValue("number"), "edit", func(out *page) error {
		n, err := number(r, "number")
		if err != nil {
			return err
		}
		d := editData{Number: n}
		d.Text, d.Seen, err = h.service.Content(r.Context(), p, n)
		if errors.Is(err, admin.ErrNotShown) {
			d.Error, err = "No rule shows this payload, so it cannot be edited here. postrider dead edit can.", nil
		}
		out.Crumbs, out.Data = deadCrumbs(n, "Edit"), d
		return err
	})
}

func deadCrumbs(n int64, last string) []crumb {
	return []crumb{{"Dead letters", "/dead"}, {fmt.Sprintf("Dead letter %d", n), fmt.Sprintf("/dead/%d", n)}, {last, ""}}
}

func (h *Handler) showReveal(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "/dead", "Hidden values", "reveal", func(out *page) error {
		n, err := number(r, "number")
		out.Crumbs, out.Data = deadCrumbs(n, "Hidden values"), editData{Number: n}
		return err
	})
}
