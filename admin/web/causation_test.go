package web_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/inspect"
)

// TestCausesAndEffectsOnThePage: the page of a message shows what caused it and what it caused, in other stores too, and names what is
// missing. Only messages of this store are links, below the prefix of the embedding program.
func TestCausesAndEffectsOnThePage(t *testing.T) {
	t.Parallel()
	chain, err := webtest.NewChain(t.Context(), "order/42")
	must(t, err)
	s := serveService(t, admin.New(chain.Shop, admin.Config{
		Name: "shop", Others: chain.Others(false), Show: []admin.Rule{{Type: "payment.*", Keys: admin.Viewer}}, Logger: slog.New(slog.DiscardHandler),
	}), web.Config{Prefix: "/ops"})
	s.signIn(admin.Viewer)
	status, body := s.get("/messages/" + chain.Requested)
	if status != http.StatusOK {
		t.Fatalf("status %d", status)
	}
	_, section, _ := strings.Cut(body, `id="causation"`)
	section, _, _ = strings.Cut(section, "</section>")
	at := 0
	for _, want := range []string{
		`<a href="/ops/messages/` + chain.Order + `"><bdi>order.placed`, `aria-current="true"`, `<b><bdi>payment.requested`, "this message", "<ul>",
		"<bdi>payment.accepted", `<code title="order/42/7">`, "in <bdi>billing", "<ul>", "order.confirmed", "mail.requested", "invoice.created", "Dead letter 1 in billing", "<ul>",
		"invoice.archived", "audit.noted", "This list is not complete", "Store stock cannot be read.",
	} {
		i := strings.Index(section[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing after character %d of:\n%s", want, at, section)
		}
		at += i + len(want)
	}
	for _, wrong := range []string{"/messages/" + chain.Paid, "/dead/1", webtest.Secret, "10.0.0.9", "Continue searching"} {
		if strings.Contains(section, wrong) {
			t.Errorf("the list has %q", wrong)
		}
	}
	if n := strings.Count(section, `<code title=`); n != 1 {
		t.Errorf("%d keys are shown, want that of the payment, which is not that of the message", n)
	}
}

// TestSearchesThatAreNotComplete: a search that has read enough says how far it came and offers to go on; what it then finds is shown.
func TestSearchesThatAreNotComplete(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, rules).signIn(admin.Viewer)
	must(t, s.shop.Effects(t.Context(), s.shop.Delivered, 6_000))
	_, body := s.get("/messages/" + s.shop.Delivered)
	if !strings.Contains(body, "5000 messages of the log of shop were searched for effects, up to ") || !strings.Contains(body, `<a href="?search=thorough#causation">Continue searching`) ||
		strings.Contains(body, "order.late") {
		t.Errorf("a quick search: %s", body)
	}
	_, body = s.get("/messages/" + s.shop.Delivered + "?search=thorough")
	if !strings.Contains(body, "order.late") || strings.Contains(body, "not complete") {
		t.Errorf("a thorough search: %s", body)
	}
	chain, err := s.handler.Read(t.Context(), admin.Principal{Subject: "anna", Role: admin.Viewer}, "/messages/{id}/causation", map[string]string{"id": s.shop.Delivered})
	must(t, err)
	if c := chain.(inspect.Causation); c.Complete || c.Incomplete[0].Reason != inspect.GapMessages || c.Incomplete[0].Until.IsZero() {
		t.Errorf("the API: %+v", c)
	}
}
