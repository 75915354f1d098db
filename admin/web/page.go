package web

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"html/template"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/inspect"
	"github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// page is what the templates get.
type page struct {
	h *Handler
	// Title is that of the window, Section the path of the entry of the navigation.
	Title, Section string
	Store          string
	Environment    Environment
	Principal      admin.Principal
	Version        string
	Now            time.Time
	Problems       int
	Nav            []navEntry
	Crumbs         []crumb
	Note           *notice
	// Refresh is after how many seconds the script asks again, 0 for never.
	Refresh  int
	Tab      string
	Activity []admin.Entry
	Data     any
}

// navEntry is a destination of the navigation.
type navEntry struct {
	Name, Path, Count string
	Current           bool
}

// crumb is a step of the way back; the last one has no path.
type crumb struct{ Name, Path string }

// notice is the result of an action.
type notice struct{ Tone, Icon, Lead, Text string }

// URL is the address of a path.
func (p *page) URL(path string) string { return p.h.cfg.Prefix + path }

// Asset is the address of an asset.
func (p *page) Asset(name string) string { return p.URL(p.h.assets[name].path) }

// CanSignOut reports whether sessions are this handler's.
func (p *page) CanSignOut() bool { return p.h.cfg.Authorizer == nil && p.Principal.Via == "browser" }

// May reports whether the principal may do something.
func (p *page) May(action string) bool { return p.Principal.Role.May(admin.Action(action)) }

// ShowsKeys reports whether the principal sees the keys of all types.
func (p *page) ShowsKeys() bool { return p.h.service.ShowsKeys(p.Principal, "") }

// KeyPath is the page of the key of a message.
func (p *page) KeyPath(m *postrider.Message) string {
	if !p.ShowsKeys() {
		return admin.KeyPath(admin.HiddenKey(m.ID))
	}
	return admin.KeyPath(m.Key)
}

// Target is that of relays.
func (p *page) Target() time.Duration { return p.h.cfg.Target }

// In names the environment in sentences: " in production".
func (p *page) In() string {
	if p.Environment.Name == "" {
		return ""
	}
	return " in " + strings.ToLower(p.Environment.Name)
}

// newPage returns a page with navigation.
func (h *Handler) newPage(r *http.Request, p admin.Principal, section, title string) (*page, error) {
	o, err := h.service.Overview(r.Context(), p)
	if err != nil {
		return nil, err
	}
	out := &page{
		h: h, Title: title, Section: section, Store: h.service.Name(), Environment: h.cfg.Environment, Principal: p, Version: h.cfg.Version,
		Now: o.At, Problems: len(o.Problems), Data: o, Note: noticeOf(r),
	}
	shown := func(n int64) string {
		switch {
		case n == 0:
			return ""
		case n > 99:
			return "99+"
		}
		return admin.Grouped(n)
	}
	counts := map[string]int64{"/dead": o.Dead.N, "/held": o.Held.N, "/sagas": o.StuckSagas, "/health": int64(o.Faults)}
	out.Nav = destinations()
	for i := range out.Nav {
		e := &out.Nav[i]
		e.Current, e.Count = e.Path == section, shown(counts[e.Path])
	}
	return out, nil
}

// destinations are the entries of the navigation, without counts.
func destinations() []navEntry {
	return []navEntry{
		{Name: "Overview", Path: "/"}, {Name: "Dead letters", Path: "/dead"}, {Name: "Held keys", Path: "/held"},
		{Name: "Messages", Path: "/messages"}, {Name: "Sagas", Path: "/sagas"}, {Name: "Health", Path: "/health"}, {Name: "Activity", Path: "/activity"},
	}
}

// notices are what a page says after an action that led to it.
var notices = map[string]notice{
	"discarded": {"ok", "check", "Discarded.", "It stays on record."},
	"edited":    {"ok", "check", "Saved.", "Redrive it when it is right."},
	"cancelled": {"ok", "check", "Cancelled.", "What was sent stays sent."},
	"applied":   {"ok", "check", "Done.", "The decision is applied."},
	"answered":  {"ok", "check", "Answered.", "The saga continues."},
	"paused":    {"info", "pause", "Paused.", "Its processes start nothing from their next heartbeat on; what is in progress finishes."},
	"resumed":   {"ok", "check", "Resumed.", "Its processes continue with their next heartbeat."},
	"asked":     {"info", "clock", "Asked for.", "The engine decides when one of its processes runs; what happened says what it decided."},
	"recorded":  {"info", "clock", "Recorded.", "The process that works on it applies the decision when its present attempt has ended."},
}

func noticeOf(r *http.Request) *notice {
	n, ok := notices[r.URL.Query().Get("done")]
	if !ok {
		return nil
	}
	return &n
}

// compile makes one set of templates for each page: the layout with its content.
func (h *Handler) compile(base *template.Template, names []string) (map[string]*template.Template, error) {
	out := make(map[string]*template.Template)
	for _, name := range names {
		t, err := base.Clone()
		if err == nil {
			t, err = t.New("content").Parse(`{{template "` + name + `" .}}`)
		}
		if err != nil {
			return nil, err
		}
		out[name] = t
	}
	return out, nil
}

// execute writes a template. An error can only concern the connection, or is an error of the templates, which tests find.
func (h *Handler) execute(w io.Writer, name string, p *page) {
	t := h.base
	if set, ok := h.sets[name]; ok {
		t, name = set, "layout"
	}
	if err := t.ExecuteTemplate(w, name, p); err != nil {
		h.cfg.Logger.Debug("a page was not written", "page", name, "error", err)
	}
}

// render writes a page. If the client has it already, only that is said.
func (h *Handler) render(w http.ResponseWriter, r *http.Request, name string, p *page) {
	var b bytes.Buffer
	h.execute(&b, name, p)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	if p.Refresh > 0 {
		tag := etag(b.Bytes())
		w.Header().Set("ETag", tag)
		if r.Header.Get("If-None-Match") == tag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	_, _ = w.Write(b.Bytes())
}

// etag identifies what a page shows, without the time of the reading.
func etag(text []byte) string {
	before, rest, _ := bytes.Cut(text, []byte(`<span class="updated"`))
	_, after, _ := bytes.Cut(rest, []byte(`</nav>`))
	sum := sha256.Sum256(append(append([]byte(nil), before...), after...))
	return `"` + hex.EncodeToString(sum[:16]) + `"`
}

// errorData is the page of an error.
type errorData struct{ Title, Text, Path, Link string }

// fail answers with an error in the form that the client reads.
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, status int, text string) {
	if strings.HasPrefix(r.URL.Path, h.cfg.Prefix+"/api/") {
		writeProblem(w, status, text)
		return
	}
	if r.Header.Get("Postrider-Part") != "" {
		http.Error(w, text, status)
		return
	}
	text = sentence(text)
	title := map[int]string{
		http.StatusNotFound: "Not found", http.StatusForbidden: "Not allowed", http.StatusUnauthorized: "You are signed out",
		http.StatusConflict: "It has changed", http.StatusBadRequest: "Not understood", http.StatusServiceUnavailable: "The store cannot be read",
	}[status]
	if title == "" {
		title = "Something failed"
	}
	p := &page{
		h: h, Title: title, Store: h.service.Name(), Environment: h.cfg.Environment, Version: h.cfg.Version, Now: time.Now(),
		Data: errorData{title, text, "/", "Open the overview"},
	}
	if p.Principal = h.known(r, status); p.Principal.Subject != "" {
		p.Nav = destinations()
	}
	if status == http.StatusUnauthorized && h.cfg.Authorizer == nil {
		p.Data = errorData{title, text, "/signin", "Sign in"}
	}
	if status == http.StatusServiceUnavailable && r.Method == http.MethodGet {
		p.Data = errorData{title, text, strings.TrimPrefix(returnTo(r.URL.RequestURI()), h.cfg.Prefix), "Try again"}
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	h.execute(w, "error", p)
}

// sentence writes the text of an error as one.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if text = string(unicode.ToUpper(first)) + text[size:]; !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// known is who gets the page of an error; nobody if that is not known without asking the store that may have failed.
func (h *Handler) known(r *http.Request, status int) admin.Principal {
	if p, ok := r.Context().Value(principalKey{}).(admin.Principal); ok {
		return p
	}
	if status == http.StatusUnauthorized || status >= http.StatusInternalServerError {
		return admin.Principal{}
	}
	p, err := h.principal(r)
	if err != nil {
		return admin.Principal{}
	}
	return p
}

// failWith answers with the status that an error of the service has.
func (h *Handler) failWith(w http.ResponseWriter, r *http.Request, err error) {
	status, text := h.explain(r, err)
	h.fail(w, r, status, text)
}

// explain returns the status and the text of an error. The text of an error of the store is only logged.
func (h *Handler) explain(r *http.Request, err error) (status int, text string) {
	status, text = statusOf(err), err.Error()
	if status == http.StatusServiceUnavailable {
		h.cfg.Logger.Warn("the administration cannot read or write the store", "path", r.URL.Path, "error", err)
		text = "The store cannot be read or written now. Relays run in their own processes and may still be delivering."
		if errors.Is(err, admin.ErrNotAsked) {
			text = "The engine was not asked: nothing can be published. The database role of this server needs the rights of a publisher."
		}
	}
	return status, text
}

// statusOf is the HTTP status of an error of the service.
func statusOf(err error) int {
	is := func(targets ...error) bool {
		for _, t := range targets {
			if errors.Is(err, t) {
				return true
			}
		}
		return false
	}
	switch {
	case is(admin.ErrForbidden, admin.ErrAgent, admin.ErrCannotPublish, admin.ErrKeyHidden):
		return http.StatusForbidden
	case is(admin.ErrToken, errSignedOut):
		return http.StatusUnauthorized
	case is(deadletter.ErrNotFound, store.ErrNoRedrive, store.ErrNotHeld, store.ErrNoParked, store.ErrNoSaga, store.ErrUnknownRelay,
		inspect.ErrNotFound, admin.ErrNoReview, admin.ErrNoToken, admin.ErrNotFound, saga.ErrNotFound):
		return http.StatusNotFound
	case is(deadletter.ErrResolved, deadletter.ErrEdited, deadletter.ErrRedriveEnded, deadletter.ErrNotStopped, deadletter.ErrRedrivenTooOften,
		held.ErrRefused, held.ErrSeveral, admin.ErrReviewChanged, store.ErrRecordChanged, pause.ErrPaused, pause.ErrNotPaused, admin.ErrSagaRefused):
		return http.StatusConflict
	case is(admin.ErrReason, admin.ErrMarker, admin.ErrNotShown, admin.ErrInput, pause.ErrInvalid):
		return http.StatusBadRequest
	}
	if _, invalid := errors.AsType[*postrider.ValidationError](err); invalid {
		return http.StatusBadRequest
	}
	return http.StatusServiceUnavailable
}
