package web_test

import (
	"net/http/httptest"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

// notSaid is what is wrong with a page that should say that not all dead letters were looked at.
const notSaid = `(() => {
	const wrong = document.querySelector('main').innerText.includes('looked at') ? [] : ['it says nothing about what was not looked at'];
	for (const b of document.querySelectorAll('main .btn')) if (b.scrollWidth > b.clientWidth + 1) wrong.push('too narrow: ' + b.textContent);
	return wrong.join('; ');
})()`

// TestPagesOfMany: pages that say that not all dead letters were looked at fit a phone and a screen, in light and dark, and have no barriers.
func TestPagesOfMany(t *testing.T) {
	t.Parallel()
	many, err := webtest.Many(t.Context())
	must(t, err)
	service := admin.New(many, admin.Config{Name: "shop"})
	handler, err := web.New(service, web.Config{Authorizer: somebody(admin.Admin), Version: "v1.4.0"})
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	causes, err := service.Causes(t.Context(), admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Admin}, webtest.Open, 10)
	must(t, err)
	s, ctx, script := site{url: server.URL}, browser(t), axe(t)
	for name, path := range map[string]string{
		"many-dead": "/dead", "many-group": admin.GroupPath(causes.Causes[0]), "many-all": "/dead?view=all", "many-none-yet": "/dead?view=all&type=order.late",
	} {
		for _, width := range []int64{360, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				s.page(t, ctx, false, name, path, width, scheme)
				noBarriers(t, ctx, script, name, width, scheme)
				wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](notSaid))
				if must(t, err); wrong != "" {
					t.Errorf("%s at %d px: %s", name, width, wrong)
				}
			}
		}
	}
}
