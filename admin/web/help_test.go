package web_test

import (
	"io/fs"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/docs"
)

var (
	ids     = regexp.MustCompile(` id="([^"]+)"`)
	inside  = regexp.MustCompile(`href="(/help[^"]*|#[^"]+)"`)
	typed   = regexp.MustCompile("```|\\]\\(|^#+ |\\*\\*")
	code    = regexp.MustCompile(`(?s)<pre.*?</pre>|<code>.*?</code>`)
	toFixes = regexp.MustCompile(`href="(/help/[^"]+)">What to do</a>`)
)

// TestDocsAreServed: the glossary, the manual and every runbook are pages of the server, whose links lead to pages and parts that exist.
func TestDocsAreServed(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Viewer)
	pages := map[string]string{}
	get := func(path string) string {
		if _, known := pages[path]; !known {
			status, body := s.get(path)
			if pages[path] = body; status != http.StatusOK {
				t.Errorf("%s: %d", path, status)
			}
		}
		return pages[path]
	}
	check := func(from, link string) {
		path, part, _ := strings.Cut(link, "#")
		if path == "" {
			path = from
		}
		if body := get(path); part != "" && !strings.Contains(body, ` id="`+part+`"`) {
			t.Errorf("%s has a link to %s, which is no part of %s", from, part, path)
		}
	}
	n := 0
	must(t, fs.WalkDir(docs.Pages, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		n++
		path := "/help/" + strings.TrimSuffix(file, ".md")
		body := get(path)
		for _, m := range inside.FindAllStringSubmatch(body, -1) {
			check(path, m[1])
		}
		wellWritten(t, path, body)
		if !strings.Contains(get("/help"), `href="`+path+`"`) {
			t.Errorf("the page of help does not lead to %s", path)
		}
		return nil
	}))
	if n < 30 {
		t.Errorf("only %d pages", n)
	}
	for _, path := range []string{"/help/none", "/help/operations", "/help/../../go", "/help/embed"} {
		if status, _ := s.get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	rules, err := os.ReadFile("../../deploy/prometheus/postrider.rules.yml")
	must(t, err)
	for _, m := range regexp.MustCompile(`runbook_url: .*/operations/runbooks/([a-z-]+)`).FindAllStringSubmatch(string(rules), -1) {
		check("an alert", "/help/operations/runbooks/"+m[1])
		n++
	}
	if n < 40 {
		t.Errorf("with the runbooks of alerts only %d", n)
	}
}

// TestFindingsLeadToTheDocs: each problem that has a runbook, and each finding, says where to read what to do.
func TestFindingsLeadToTheDocs(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Viewer)
	for path, want := range map[string][]string{
		"/":       {"/help/operations/runbooks/relay-not-running", "/help/operations/runbooks/destination-down", "/help/operations/runbooks/dead-letters", "/help/operations/runbooks/sagas"},
		"/health": {"/help/operations/runbooks/dead-letters"},
	} {
		_, body := s.get(path)
		for _, to := range want {
			if !strings.Contains(body, `href="`+to+`">What to do</a>`) {
				t.Errorf("%s does not lead to %s", path, to)
			}
		}
		for _, m := range toFixes.FindAllStringSubmatch(body, -1) {
			page, part, _ := strings.Cut(m[1], "#")
			if status, at := s.get(page); status != http.StatusOK || !strings.Contains(at, ` id="`+part+`"`) && part != "" {
				t.Errorf("%s leads to %s: %d", path, m[1], status)
			}
		}
	}
	report, err := s.service.Doctor(t.Context(), admin.Principal{Subject: "anna", Role: admin.Viewer}, nil)
	must(t, err)
	_, manual := s.get("/help/operations/doctor")
	for _, r := range report.Results {
		if strings.HasPrefix(r.Check, "destination.") || strings.HasPrefix(r.Check, "relay.horizon.") {
			continue
		}
		if !strings.Contains(manual, ` id="`+r.Check+`"`) {
			t.Errorf("the manual does not describe %s", r.Check)
		}
	}
}

// wellWritten checks a page of the docs.
func wellWritten(t *testing.T, path, body string) {
	t.Helper()
	if len(body) > 60_000 {
		t.Errorf("%s has %d bytes", path, len(body))
	}
	seen := map[string]bool{}
	for _, m := range ids.FindAllStringSubmatch(body, -1) {
		if seen[m[1]] {
			t.Errorf("%s has two parts %s", path, m[1])
		}
		seen[m[1]] = true
	}
	_, content, _ := strings.Cut(body, `<main`)
	if found := typed.FindString(code.ReplaceAllString(content, "")); found != "" {
		t.Errorf("%s shows %q as it is typed", path, found)
	}
}
