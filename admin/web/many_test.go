package web_test

import (
	"fmt"
	"html"
	"regexp"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/store"
)

// TestMoreThanASearchLooksAt: API and pages say what was not looked at, and how to go on. On a busy machine, a search ends before its limit.
func TestMoreThanASearchLooksAt(t *testing.T) {
	t.Parallel()
	many, err := webtest.Many(t.Context())
	must(t, err)
	s := serveService(t, admin.New(many, admin.Config{Name: "shop", Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}}), web.Config{}).signIn(admin.Viewer)
	p := admin.Principal{Subject: "anna", Role: admin.Viewer}
	const why = `Only \d\d,000 dead letters were looked at, `
	reason := regexp.MustCompile("^" + why)
	var causes store.FoundCauses
	s.read(p, "/dead/causes", nil, &causes)
	if causes.Complete || len(causes.Incomplete) != 1 || !reason.MatchString(causes.Incomplete[0].Text) || causes.Incomplete[0].Until.IsZero() ||
		len(causes.Causes) != 2 || causes.Causes[0].DeadLetters < 9_999 || !causes.Causes[0].AtLeast {
		t.Errorf("causes: %+v", causes)
	}
	var found admin.DeadPage
	for pages := 0; len(found.DeadLetters) == 0; pages++ {
		given := map[string]string{"type": "order.late", "after": fmt.Sprint(found.Next)}
		before := found.Next
		found = admin.DeadPage{}
		s.read(p, "/dead", given, &found)
		if found.Complete || !reason.MatchString(found.Incomplete[0].Text) || pages == 6 || len(found.DeadLetters) == 0 && found.Next <= before {
			t.Fatalf("page %d: %+v", pages, found)
		}
	}
	if found.Total != 1 || len(found.DeadLetters) != 1 || found.Next != 0 {
		t.Errorf("the last page: %+v", found)
	}
	for path, words := range map[string][]string{
		"/":                               {`\d\d?,999\+ dead letters from ledger`, `Review \d\d?,999\+`, ` ago or before, last `},
		"/dead":                           {`\d\d,000\+ open dead letters`, `Not all dead letters were looked at\.`, why + "from the newest back to ", `Review \d\d?,999\+`},
		admin.GroupPath(causes.Causes[0]): {`\d\d?,\d{3}\+ messages to`, `Not all dead letters were looked at\.`, why, "Next page"},
		"/dead?view=all":                  {`\d\d,000\+ open dead letters`, why + "up to ", `50 of \d\d,000\+`, "Next page"},
		"/dead?view=all&type=order.late":  {"No open dead letters found so far", why + "up to ", "Continue searching"},
	} {
		_, body := s.get(path)
		for _, w := range words {
			if !regexp.MustCompile(w).MatchString(text(body)) {
				t.Errorf("%s does not say %q: %s", path, w, text(body))
			}
		}
	}
	_, body := s.get("/messages?q=order+1+%26+2")
	says(t, "a search for a key", text(body), "There are many dead letters, and not all of them were searched for this key")
	search := regexp.MustCompile(`href="([^"]+)">search all of them`).FindStringSubmatch(body)
	if search == nil {
		t.Fatalf("a search for a key has no way to go on: %s", body)
	}
	for name, path := range map[string]string{"the search by type": "/dead?view=all&type=order.late", "the search for a key": html.UnescapeString(search[1])} {
		s.searches(t, name, path)
	}
}

// searches continues a search until it has found the one dead letter that matches.
func (s *site) searches(t *testing.T, name, path string) {
	t.Helper()
	for range 7 {
		_, body := s.get(path)
		next := regexp.MustCompile(`href="([^"]+)">Continue searching`).FindStringSubmatch(body)
		if next == nil {
			says(t, name+", continued", text(body), "1 of 1+")
			return
		}
		path = html.UnescapeString(next[1])
	}
	t.Errorf("%s does not end", name)
}
