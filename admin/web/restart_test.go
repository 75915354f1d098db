package web_test

import (
	"bytes"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

// TestRestart: the process ends between the review and its execution. Another one with the same key of sessions continues.
func TestRestart(t *testing.T) {
	t.Parallel()
	c := web.Config{Key: bytes.Repeat([]byte{7}, 32)}
	s := serve(t, false, c)
	restart := func() {
		t.Helper()
		s.service = admin.New(s.shop, admin.Config{Name: "shop"})
		handler, err := web.New(s.service, c)
		must(t, err)
		s.server.Config.Handler = handler
	}
	boss := admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin}
	token, _, err := s.service.CreateToken(t.Context(), boss, "anna", admin.Operator, nil, admin.UsePeople, time.Hour)
	must(t, err)
	if status, _ := s.post("/signin", url.Values{"code": {token}}); status != http.StatusOK {
		t.Fatalf("signing in: %d", status)
	}
	causes, err := s.service.Causes(t.Context(), boss, webtest.Open, 1)
	must(t, err)
	review, err := s.service.StartReview(t.Context(), boss, admin.ReviewRedrive, webtest.Of(causes.Causes[0]))
	must(t, err)
	restart()
	in := url.Values{"digest": {review.Digest}, "rate": {"50"}, "reason": {"receiver fixed"}, "start": {"first"}, "stop": {"5"}}
	if status, body := s.post("/reviews/"+review.ID, in); status != http.StatusOK || !strings.Contains(body, "Redrive 1 waits for its first message") {
		t.Fatalf("%d\n%s", status, body)
	}
	must(t, s.shop.Step(t.Context()))
	restart()
	if status, body := s.get("/redrives/1"); status != http.StatusOK || !strings.Contains(body, "1 of 200 sent") {
		t.Errorf("%d\n%s", status, body)
	}
	if status, body := s.get("/activity"); status != http.StatusOK || !strings.Contains(body, "receiver fixed") {
		t.Errorf("%d: the record has no reason", status)
	}
}

// TestTwoVersions: while the next version of the program serves next to this one, each may get what a page of the other asks for: assets
// under another hash, and forms without the fields that it has. Reviews, and sessions with the same key, are good at both.
func TestTwoVersions(t *testing.T) {
	t.Parallel()
	c := web.Config{Key: bytes.Repeat([]byte{7}, 32)}
	s := serve(t, false, c)
	boss := admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin}
	token, _, err := s.service.CreateToken(t.Context(), boss, "anna", admin.Operator, nil, admin.UsePeople, time.Hour)
	must(t, err)
	if status, _ := s.post("/signin", url.Values{"code": {token}}); status != http.StatusOK {
		t.Fatalf("signing in: %d", status)
	}
	for path, want := range map[string]string{
		regexp.MustCompile(`/assets/[0-9a-f]+/style.css`).FindString(second(s.get("/dead"))): "public, max-age=31536000, immutable", "/assets/000000000000/style.css": "no-store",
	} {
		r, err := s.browser.Get(s.url + path)
		must(t, err)
		status, body := read(t, r)
		if status != http.StatusOK || r.Header.Get("Cache-Control") != want || !strings.Contains(body, "--muted") || r.Header.Get("Content-Type") != "text/css; charset=utf-8" {
			t.Errorf("%s: %d, kept: %s", path, status, r.Header.Get("Cache-Control"))
		}
	}
	if status, _ := s.get("/assets/000000000000/other.css"); status != http.StatusNotFound {
		t.Errorf("an asset that no version has: %d", status)
	}
	causes, err := s.service.Causes(t.Context(), boss, webtest.Open, 1)
	must(t, err)
	review, err := s.service.StartReview(t.Context(), boss, admin.ReviewRedrive, webtest.Of(causes.Causes[0]))
	must(t, err)
	s.service = admin.New(s.shop, admin.Config{Name: "shop"})
	s.server.Config.Handler, err = web.New(s.service, c)
	must(t, err)
	form := url.Values{"digest": {review.Digest}, "reason": {"fixed"}, "field of another version": {"x"}} // no rate, no first message, no limit
	if status, body := s.post("/reviews/"+review.ID, form); status != http.StatusOK || !strings.Contains(body, "Redrive 1 is running") {
		t.Errorf("a form of another version: %d", status)
	}
}

func second(_ int, body string) string { return body }
