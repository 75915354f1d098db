package web_test

import (
	"fmt"
	"html"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// manyDead is a store with more dead letters than a search looks at: the last one has another type.
func manyDead(t *testing.T) *memory.Store {
	t.Helper()
	ctx, s := t.Context(), memory.New(memory.Config{})
	var dead []store.DeadLetterRequest
	for i := range store.SearchLimit + 1 {
		m := &postrider.Message{ID: fmt.Sprint("m-", i), Type: "order.placed", Topic: "orders", Source: "shop", Time: time.Unix(0, 0), Payload: []byte(`{}`)}
		if i == store.SearchLimit {
			m.Type = "order.late"
		}
		dead = append(dead, store.DeadLetterRequest{Reason: "refused", Cause: "no route to host", Message: m})
	}
	must(t, s.Enroll(ctx, "ledger"))
	tx, err := s.Begin(ctx)
	must(t, err)
	must(t, s.DeadLetter(ctx, tx, "ledger", dead, false))
	must(t, s.Commit(ctx, tx))
	return s
}

// TestMoreThanASearchLooksAt: API and pages say what was not looked at, and how to go on.
func TestMoreThanASearchLooksAt(t *testing.T) {
	t.Parallel()
	s := serveService(t, admin.New(manyDead(t), admin.Config{Name: "shop"}), web.Config{}).signIn(admin.Viewer)
	p := admin.Principal{Subject: "anna", Role: admin.Viewer}
	const why = "Only 50,000 dead letters were looked at, "
	var causes store.FoundCauses
	s.read(p, "/dead/causes", nil, &causes)
	if causes.Complete || len(causes.Incomplete) != 1 || !strings.HasPrefix(causes.Incomplete[0].Text, why+"from the newest back to ") || causes.Incomplete[0].Until.IsZero() ||
		len(causes.Causes) != 2 || causes.Causes[0].DeadLetters != store.SearchLimit-1 || !causes.Causes[0].AtLeast {
		t.Errorf("causes: %+v", causes)
	}
	var found admin.DeadPage
	s.read(p, "/dead", map[string]string{"type": "order.late"}, &found)
	if found.Complete || found.Total != 0 || len(found.DeadLetters) != 0 || found.Next != store.SearchLimit || !strings.HasPrefix(found.Incomplete[0].Text, why+"up to ") {
		t.Errorf("dead letters: %+v", found)
	}
	after := map[string]string{"type": "order.late", "after": fmt.Sprint(found.Next)}
	found = admin.DeadPage{}
	s.read(p, "/dead", after, &found)
	if found.Total != 1 || len(found.DeadLetters) != 1 || found.Next != 0 {
		t.Errorf("after that: %+v", found)
	}
	for path, words := range map[string][]string{
		"/":                               {"49,999+ dead letters from ledger", "Review 49,999+", " ago or before, last "},
		"/dead":                           {"50,000+ open dead letters", "Not all dead letters were looked at.", why + "from the newest back to ", "Review 49,999+"},
		admin.GroupPath(causes.Causes[0]): {"49,999+ messages to", "Not all dead letters were looked at.", why, "Next page"},
		"/dead?view=all":                  {"50,000+ open dead letters", why + "up to ", "50 of 50,000+", "Next page"},
		"/dead?view=all&type=order.late":  {"No open dead letters found so far", why + "up to ", "Continue searching"},
	} {
		_, body := s.get(path)
		for _, w := range words {
			says(t, path, text(body), w)
		}
	}
	_, body := s.get("/dead?view=all&type=order.late")
	next := regexp.MustCompile(`href="([^"]+)">Continue searching`).FindStringSubmatch(body)
	if next == nil {
		t.Fatal("no link to continue searching")
	}
	_, body = s.get(html.UnescapeString(next[1]))
	says(t, "the search that was continued", text(body), "1 of 1+")
}
