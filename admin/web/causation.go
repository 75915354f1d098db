package web

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/inspect"
)

// thoroughly is the value of the parameter search for a thorough search for causes and effects.
const thoroughly = "thorough"

var causationParameters = []parameter{{name: "search", words: []string{"quick", thoroughly}}, {name: "limit", least: 1, most: 200}}

func (h *Handler) apiCausation(c call) (any, error) {
	return h.service.Causation(c.r.Context(), c.p, c.path("id"), inspect.CausationSearch{Thorough: c.v.Get("search") == thoroughly, Limit: c.limit()})
}

// linkRow is a message in the list of causes and effects.
type linkRow struct {
	inspect.Linked
	Mark mark
	// Path is the page of the message, "" if it is in another store; State is what needs somebody, and StatePath its page.
	Path, State, StatePath string
	// Elsewhere: the message is in another store. This: it is that of the page.
	Elsewhere, This bool
	// OtherKey is its key if it is shown and not that of the message of the page.
	OtherKey string
	Effects  []linkRow
}

// causationData is the list of causes and effects of a message.
type causationData struct {
	Causes, Effects []linkRow
	This            linkRow
	More            int
	// Gaps are sentences about what is missing; Continue says that a thorough search may find it.
	Gaps     []string
	Continue bool
	// Failed is why there is no list.
	Failed string
}

// Alone: nothing caused the message, and it caused nothing.
func (d causationData) Alone() bool { return len(d.Causes)+len(d.Effects)+len(d.Gaps) == 0 }

// causation finds the causes and effects of a message. Without them, the page has the rest.
func (h *Handler) causation(r *http.Request, p admin.Principal, id string) (d causationData) {
	search := inspect.CausationSearch{Thorough: r.URL.Query().Get("search") == thoroughly}
	c, err := h.service.Causation(r.Context(), p, id, search)
	if err != nil {
		_, d.Failed = h.explain(r, err)
		return d
	}
	d.Causes, d.Effects, d.More = h.linkRows(c.Causes, c.Message.Key), h.linkRows(c.Effects, c.Message.Key), c.More
	d.This = h.linkRows([]inspect.Linked{c.Message}, c.Message.Key)[0]
	d.This.This = true
	for _, g := range c.Incomplete {
		d.Gaps = append(d.Gaps, g.Text)
	}
	d.Continue = !search.Thorough && slices.ContainsFunc(c.Incomplete, func(g inspect.Gap) bool {
		return g.Reason == inspect.GapTime || g.Reason == inspect.GapMessages || g.Reason == inspect.GapCauseNotFound
	})
	return d
}

func (h *Handler) linkRows(list []inspect.Linked, key string) (rows []linkRow) {
	for _, l := range list {
		row := linkRow{Linked: l, Mark: mark{"muted", "dot", ""}, Elsewhere: l.Store != h.service.Name(), Effects: h.linkRows(l.Effects, key)}
		if !row.Elsewhere {
			row.Path = h.cfg.Prefix + "/messages/" + escapePath(l.ID)
		}
		if l.Key != key && !isHidden(l.Key) {
			row.OtherKey = l.Key
		}
		if l.DeadLetter > 0 {
			row.Mark, row.State = mark{"bad", "octagon", ""}, fmt.Sprintf("Dead letter %d", l.DeadLetter)
			if l.DeadIn == h.service.Name() {
				row.StatePath = fmt.Sprintf("%s/dead/%d", h.cfg.Prefix, l.DeadLetter)
			} else {
				row.State += " in " + l.DeadIn
			}
		}
		rows = append(rows, row)
	}
	return rows
}
