package web_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
)

// TestPauseOfARelay: the page of a relay pauses and resumes it, and says so.
func TestPauseOfARelay(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Operator)
	const path = "/relays/payments"
	if _, body := s.get(path); !strings.Contains(body, `action="/relays/payments/pause"`) {
		t.Error("there is no form to pause it")
	}
	for _, form := range []url.Values{{"for": {"1h"}}, {"for": {"x"}, "reason": {"r"}}, {"for": {"-1h"}, "reason": {"r"}}} {
		if status, _ := s.post(path+"/pause", form); status != http.StatusBadRequest {
			t.Errorf("%v: %d", form, status)
		}
	}
	status, body := s.post(path+"/pause", url.Values{"for": {"1h"}, "reason": {"<maintenance>"}})
	for _, text := range []string{"payments</span> is paused", "“<bdi>&lt;maintenance&gt;</bdi>”", ", until <time", `action="/relays/payments/resume"`, "Its processes start nothing"} {
		if status != http.StatusOK || !strings.Contains(body, text) {
			t.Errorf("%d, the page of the paused relay has no %s", status, text)
		}
	}
	if strings.Contains(body, `action="/relays/payments/pause"`) {
		t.Error("a paused relay has a form to pause it")
	}
	if status, _ := s.post(path+"/pause", url.Values{"for": {"0s"}, "reason": {"r"}}); status != http.StatusConflict {
		t.Errorf("a second pause: %d", status)
	}
	if _, body := s.get("/activity"); !strings.Contains(body, "payments for 1\u00a0h") {
		t.Error("the activity does not show it")
	}
	if status, body := s.post(path+"/resume", url.Values{}); status != http.StatusOK || strings.Contains(body, "is paused") || !strings.Contains(body, "Resumed.") {
		t.Errorf("resume: %d", status)
	}
	if status, _ := s.post("/relays/no/pause", url.Values{"for": {"0s"}, "reason": {"r"}}); status != http.StatusNotFound {
		t.Errorf("an unknown relay: %d", status)
	}
}
