package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

// TestHealth: findings with their fixes, what could not be checked, and what passed; texts are only texts.
func TestHealth(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	s.service = admin.New(s.shop, admin.Config{Name: "shop", Checks: webtest.Checks(webtest.Hostile)})
	var err error
	s.handler, err = web.New(s.service, web.Config{})
	must(t, err)
	s.server.Config.Handler = s.handler
	_, err = s.service.Doctor(t.Context(), admin.Principal{Subject: "ada", Role: admin.Viewer}, nil)
	must(t, err)
	s.signIn(admin.Viewer)
	status, body := s.get("/health")
	for _, want := range []string{
		"<h1>2 faults and 2 warnings</h1>", "to-hook has 200 open dead letters", "postrider dead redrive --relay to-hook", "select pg_terminate_backend(4711);", "Could not check",
		"grant pg_read_all_stats to shop_ops;", "passed</summary>", "Its messages wait for its commit",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if status != http.StatusOK || strings.Contains(body, "<script>alert") || strings.Contains(body, "\u202e") {
		t.Errorf("status %d, or a text of the database is markup", status)
	}
	if _, body := s.get("/"); !strings.Contains(body, "A transaction that has published is open") || !strings.Contains(body, `href="/health"`) {
		t.Error("the overview does not show the fault of the database")
	}
	if status, body := s.get("/api/v1/doctor?check=db.blocked"); status != http.StatusOK || !strings.Contains(body, `"outcome": "could not check"`) {
		t.Errorf("one check: %d %s", status, body)
	}
	if status, _ := s.get("/api/v1/doctor?check=nothing"); status != http.StatusNotFound {
		t.Errorf("a check that does not exist: %d", status)
	}
}

// TestReviewOfAnAgent: what an agent planned is carried out by a person with a session, and the page says who asked and why.
func TestReviewOfAnAgent(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Operator)
	agent := admin.Principal{Issuer: "os", Subject: "assistant", Role: admin.Operator, Via: admin.ViaAgent}
	r, err := s.service.Plan(t.Context(), agent, webtest.Open, "the receiver answers <b>again</b>")
	must(t, err)
	status, body := s.get("/reviews/" + r.ID)
	if status != http.StatusOK || !strings.Contains(body, "Reason given by the agent") || !strings.Contains(body, "&lt;b&gt;again") {
		t.Errorf("%d: the page does not show the agent's reason", status)
	}
	if status, _ := s.post("/reviews/"+r.ID, map[string][]string{"digest": {r.Digest}, "reason": {"approved"}, "rate": {"50"}}); status != http.StatusOK {
		t.Errorf("approving it: %d", status)
	}
	entries, _, err := s.service.Activity(t.Context(), admin.Principal{Subject: "ada", Role: admin.Admin}, "", 10)
	must(t, err)
	if e := entries[0]; e.Action != "ExecuteReview" || e.By != "anna" || e.Result != admin.Done {
		t.Errorf("on record is %+v", e)
	}
}
