package web

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web/internal/markdown"
	"github.com/postrider/postrider/docs"
)

// errNoDoc: no page of the docs has this name.
var errNoDoc = fmt.Errorf("%w: there is no such page of the docs", admin.ErrNotFound)

// docEntry is a page of the docs in a list.
type docEntry struct{ Title, Path string }

// helpData is what the page of help shows.
type helpData struct{ Runbooks, Manual []docEntry }

// docData is a page of the docs.
type docData struct {
	markdown.Page
	// Sections are its headings, if there are several.
	Sections []markdown.Block
	dir      string
}

// Target is where a link in the docs leads: a path of this server, a part of this page, or another site; "" for a page that is not served.
func (d docData) Target(link string) string {
	name, part, _ := strings.Cut(link, "#")
	if part != "" {
		part = "#" + part
	}
	switch {
	case name == "", strings.HasPrefix(link, "https://"):
		return link
	case !strings.HasSuffix(name, ".md"):
		return ""
	}
	file := path.Join(d.dir, name)
	if _, err := fs.Stat(docs.Pages, file); err != nil {
		return ""
	}
	return docPath(file) + part
}

// docPath is the path of a page of the docs.
func docPath(file string) string { return "/help/" + strings.TrimSuffix(file, ".md") }

// isPath reports whether a target is a path of this server.
func isPath(target string) bool { return strings.HasPrefix(target, "/") }

func readDoc(file string) (d docData, err error) {
	text, err := docs.Pages.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrInvalid) {
		return d, errNoDoc
	}
	if err != nil {
		return d, err
	}
	d = docData{Page: markdown.Parse(string(text)), dir: path.Dir(file)}
	for _, b := range d.Blocks {
		if b.Kind == markdown.Heading {
			d.Sections = append(d.Sections, b)
		}
	}
	if len(d.Sections) < 4 {
		d.Sections = nil
	}
	return d, nil
}

// listed returns the pages of a folder of the docs.
func listedDocs(dir string) (out []docEntry, err error) {
	files, err := fs.Glob(docs.Pages, dir+"/*.md")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		d, err := readDoc(file)
		if err != nil {
			return nil, err
		}
		out = append(out, docEntry{d.Title, docPath(file)})
	}
	return out, nil
}

// help shows the keys, the words and the docs of this version.
func (h *Handler) help(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "", "Help", "help", func(out *page) (err error) {
		var d helpData
		if d.Runbooks, err = listedDocs("operations/runbooks"); err != nil {
			return err
		}
		if d.Manual, err = listedDocs("operations"); err != nil {
			return err
		}
		out.Data = d
		return nil
	})
}

// doc shows a page of the docs.
func (h *Handler) doc(w http.ResponseWriter, r *http.Request, p admin.Principal) {
	h.show(w, r, p, "", "Help", "doc", func(out *page) error {
		d, err := readDoc(r.PathValue("page") + ".md")
		if err != nil {
			return err
		}
		out.Title, out.Crumbs, out.Data = d.Title, []crumb{{"Help", "/help"}, {d.Title, ""}}, d
		return nil
	})
}

// runbooks are those of problems and of findings of the doctor, by their status or check.
var runbooks = map[string]string{
	string(admin.NotRunning): "relay-not-running", string(admin.Down): "destination-down", string(admin.Stalled): "relay-stalled",
	string(admin.Late): "delivery-late", string(admin.Holding): "held-keys", "Failed for good": "dead-letters", "Likely still happening": "dead-letters", "Stuck": "sagas",
	"relay.no_process": "relay-not-running", "relay.unowned": "partition-unowned", "relay.stalled": "relay-stalled", "relay.held": "held-keys",
	"relay.dead": "dead-letters", "route.untaken": "unrouted", "db.disk": "disk-filling", "db.maintenance": "maintenance", "destination": "destination-down",
}

// runbook is the path of the page that says what to do about a problem or a finding: its runbook, or its row in the table of the checks.
func runbook(name string) string {
	if page := runbooks[name]; page != "" {
		return docPath("operations/runbooks/" + page)
	}
	if area, _, is := strings.Cut(name, "."); is { // destination.to-nats is described as destination.NAME
		switch {
		case area == "destination", strings.HasPrefix(name, "relay.horizon"):
			name = name[:strings.LastIndex(name, ".")] + ".NAME"
		}
		return docPath("operations/doctor") + "#" + markdown.Slug(name)
	}
	return ""
}
