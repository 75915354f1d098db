package web_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

// TestMessageLeadsToItsSagaAndKey: its page has links to both, as far as the role sees keys.
func TestMessageLeadsToItsSagaAndKey(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, admin.Rule{Type: "*", Keys: admin.Operator})
	operator := admin.Principal{Subject: "anna", Role: admin.Operator}
	d, _, err := s.service.DeadLetter(t.Context(), operator, 2)
	must(t, err)
	page := "/messages/" + url.PathEscape(d.Message.ID)
	links := regexp.MustCompile(`<a href="([^"]*)">Same (saga|key)`)
	s.signIn(admin.Operator)
	_, body := s.get(page)
	found := links.FindAllStringSubmatch(body, -1)
	if len(found) != 2 || found[0][2] != "saga" || found[1][2] != "key" {
		t.Fatalf("links: %v", found)
	}
	for _, link := range found {
		if status, body := s.get(link[1]); status != 200 || link[2] == "saga" && !strings.Contains(body, "4711") {
			t.Errorf("%s: %d", link[1], status)
		}
	}
	_, body = s.signIn(admin.Viewer).get(page)
	if found := links.FindAllStringSubmatch(body, -1); len(found) != 1 || found[0][2] != "key" || !strings.Contains(found[0][1], "hidden:") {
		t.Errorf("who sees no keys has the links %v", found)
	}
}

// TestFindByCorrelationID: the search lists the messages, for who sees keys.
func TestFindByCorrelationID(t *testing.T) {
	t.Parallel()
	c, err := webtest.NewChain(t.Context(), "checkout/81")
	must(t, err)
	s := serveService(t, admin.New(c.Shop, admin.Config{Name: "shop", Show: []admin.Rule{{Type: "*", Keys: admin.Operator}}}), web.Config{})
	_, body := s.signIn(admin.Operator).get("/messages?q=checkout/81")
	says(t, "the search", text(body), "7 matches")
	for _, id := range []string{c.Order, c.Requested} {
		if !strings.Contains(body, "/messages/"+id) {
			t.Errorf("message %s is not listed", id)
		}
	}
	_, body = s.signIn(admin.Viewer).get("/messages?q=checkout/81")
	says(t, "the search of who sees no keys", text(body), "Nothing matches")
}
