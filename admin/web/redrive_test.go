package web_test

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/store"
)

// TestRedriveWithCare: the form of a redrive suggests to begin with one message and to stop when messages fail, and warns of newer
// messages; the page of one that has stopped says why, and continues it.
func TestRedriveWithCare(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Operator)
	causes, err := s.service.Causes(t.Context(), admin.Principal{Subject: "x", Role: admin.Viewer}, webtest.Open, 10)
	must(t, err)
	operator := admin.Principal{Subject: "x", Role: admin.Operator}
	r, err := s.service.StartReview(t.Context(), operator, admin.ReviewRedrive, webtest.Of(causes.Causes[0]))
	must(t, err)
	if r.Newer == 0 || r.Newer > r.Keys || r.NewerMore {
		t.Errorf("newer messages of %d of %d keys", r.Newer, r.Keys)
	}
	_, body := s.get("/reviews/" + r.ID)
	for _, want := range []string{"Newer messages were delivered.", `name="start" value="first" checked`, `name="stop" value="5"`} {
		if !strings.Contains(body, want) {
			t.Errorf("the form has no %q", want)
		}
	}
	form := url.Values{"digest": {r.Digest}, "rate": {"50"}, "reason": {"fixed"}, "start": {"first"}, "stop": {"100"}}
	if status, body := s.post("/reviews/"+r.ID, form); status != http.StatusBadRequest || !strings.Contains(body, "percentage") {
		t.Errorf("a share of 100%%: %d", status)
	}
	form.Set("stop", "5")
	if status, body := s.post("/reviews/"+r.ID, form); status != http.StatusOK || !strings.Contains(body, "Redrive 1 waits for its first message") {
		t.Fatalf("%d\n%s", status, body)
	}
	must(t, s.shop.Step(t.Context()))
	redrive, err := s.service.Redrive(t.Context(), operator, 1)
	if must(t, err); redrive.Done != 1 || redrive.Guard == nil || redrive.Guard.StopAt != 0.05 {
		t.Errorf("it begins with %d messages: %+v", redrive.Done, redrive.Guard)
	}
	if status, _ := s.post("/redrives/1/continue", nil); status != http.StatusConflict {
		t.Errorf("continuing one that is not stopped: %d", status)
	}
	must(t, s.shop.Stop(t.Context(), 1, store.RedriveGuard{First: true, Stopped: store.StoppedFirst}))
	if _, body := s.get("/redrives/1"); !strings.Contains(body, "Redrive 1 has stopped: 1 of 200 sent") || !strings.Contains(body, "The first message failed") {
		t.Errorf("stopped:\n%s", body)
	}
	must(t, s.shop.Stop(t.Context(), 1, store.RedriveGuard{StopAt: 0.05, Made: 20, Failed: 6, Stopped: store.StoppedLimit}))
	if _, body := s.get("/redrives/1"); !strings.Contains(body, "6 of 20 first attempts failed, more than 5%.") {
		t.Errorf("stopped by the limit:\n%s", body)
	}
	if _, body := s.get("/activity"); !strings.Contains(body, "Stopped by limit") || !strings.Contains(body, "<h1>1 redrive has stopped</h1>") {
		t.Error("the list does not say that it has stopped")
	}
	if o, err := admin.New(s.shop, admin.Config{}).Overview(t.Context(), operator); err != nil || !slices.ContainsFunc(o.Problems, func(p admin.Problem) bool {
		return p.Text == "Redrive 1 has stopped" && p.Path == "/redrives/1" && strings.Contains(p.Detail, "199 not sent")
	}) {
		t.Errorf("the overview: %+v, %v", o.Problems, err)
	}
	if status, body := s.post("/redrives/1/continue", nil); status != http.StatusOK || !strings.Contains(body, "Redrive 1 is running") {
		t.Errorf("continued: %d\n%s", status, body)
	}
}

// TestDiscardOfManyIsConfirmed: a review that discards a hundred or more is carried out when their number was typed in.
func TestDiscardOfManyIsConfirmed(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Operator)
	p := admin.Principal{Subject: "anna", Role: admin.Operator}
	causes, err := s.service.Causes(t.Context(), p, webtest.Open, 10)
	must(t, err)
	r, err := s.service.StartReview(t.Context(), p, admin.ReviewDiscard, webtest.Of(causes.Causes[0]))
	must(t, err)
	for _, tt := range []struct {
		typed string
		done  bool
	}{{"", false}, {"20", false}, {" 200 ", true}} {
		_, body := s.post("/reviews/"+r.ID, url.Values{"digest": {r.Digest}, "reason": {"written off"}, "confirm": {tt.typed}})
		if strings.Contains(body, "type 200 to confirm") == tt.done || strings.Contains(body, "It stays on record.") != tt.done {
			t.Errorf("typed %q:\n%s", tt.typed, body)
		}
	}
}
