// Package web_test shows the administration in Chromium: its pages at several widths, in light and dark, and an incident from
// the problem to the redrive.
package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store"
)

// pictures is the folder for the pictures of all pages; "" takes none.
var pictures = os.Getenv("POSTRIDER_TEST_PICTURES")

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// somebody is signed in with a role.
type somebody admin.Role

// Authorize implements web.Authorizer.
func (s somebody) Authorize(*http.Request) (admin.Principal, error) {
	return admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Role(s), SagaRoles: []string{"finance"}}, nil
}

// site is a served administration of a shop.
type site struct {
	shop    *webtest.Shop
	service *admin.Service
	url     string
}

func serve(t *testing.T, hostile bool) site {
	t.Helper()
	shop, err := webtest.New(t.Context(), hostile)
	must(t, err)
	text := ""
	if hostile {
		text = webtest.Hostile
	}
	service := admin.New(shop, admin.Config{Name: "shop", Checks: webtest.Checks(text), Show: []admin.Rule{
		{Type: "*", Show: []string{"/number", "/currency", "/total", "/lines"}, Headers: []string{"trace"}, Keys: admin.Viewer},
	}})
	handler, err := web.New(service, web.Config{
		Authorizer: somebody(admin.Admin), Environment: web.Environment{Name: "Production", Tone: "production"}, Version: "v1.4.0",
	})
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return site{shop, service, server.URL}
}

// steps runs steps one after the other. A page replaces its content while it shows something new, so the element that a step has found may
// be gone before it is used: then the step looks again.
func steps(ctx context.Context, list ...chromedp.Action[chromedp.Void]) error {
	for _, step := range list {
		if _, err := chromedp.Run(ctx, func(ctx context.Context, t *chromedp.Target) (out chromedp.Void, err error) {
			for {
				if out, err = step(ctx, t); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "Could not find node with given id") {
					return out, err
				}
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// browser starts Chromium.
func browser(t *testing.T) context.Context {
	t.Helper()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(servertest.Get(t, servertest.ChromiumBin)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.UserDataDir(t.TempDir()))
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	must(t, chromedp.Do(ctx))
	ctx, cancel = context.WithTimeout(ctx, 20*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// pages are the addresses of all kinds of pages, by name.
func (s site) pages(t *testing.T) map[string]string {
	t.Helper()
	anna := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Admin}
	causes, err := s.service.Causes(t.Context(), anna, webtest.Open, 10)
	must(t, err)
	review, err := s.service.StartReview(t.Context(), anna, admin.ReviewRedrive, webtest.Of(causes.Causes[0]))
	must(t, err)
	for i := range 3 {
		_, err = s.service.RedriveDead(t.Context(), anna, int64(20+i), "")
		must(t, err)
	}
	must(t, s.service.DiscardDead(t.Context(), anna, 30, "duplicate of 16"))
	must(t, s.shop.Step(t.Context()))
	stopped, err := deadletter.New(s.shop).StartRedrive(t.Context(), deadletter.Plan{Filter: webtest.Of(causes.Causes[0]), Rate: 50, StopAt: 0.05, By: "anna"})
	must(t, err)
	must(t, s.shop.Step(t.Context()))
	must(t, s.shop.Own())
	must(t, s.shop.Stop(t.Context(), stopped.ID, store.RedriveGuard{StopAt: 0.05, Made: 20, Failed: 6, Stopped: store.StoppedLimit}))
	return map[string]string{
		"overview": "/", "relay-not-running": "/relays/to-nats", "relay-held": "/relays/to-hook", "relay-idle": "/relays/payments", "relay-down": "/relays/to-audit", "relay-waiting": "/relays/fulfilment",
		"dead": "/dead", "dead-all": "/dead?view=all", "dead-group": admin.GroupPath(causes.Causes[0]), "dead-one": "/dead/2", "dead-redriven": "/dead/20",
		"dead-edit": "/dead/2/edit", "dead-empty": "/dead?relay=payments", "review": "/reviews/" + review.ID, "redrive": "/redrives/1",
		"redrive-stopped": fmt.Sprintf("/redrives/%d", stopped.ID),
		"held":            "/held", "held-key": admin.HeldPath("to-hook", s.shop.Held), "messages": "/messages", "messages-none": "/messages?q=nothing",
		"message-dead": "/messages/" + s.shop.Dead, "message-delivered": "/messages/" + s.shop.Delivered, "key": admin.KeyPath(s.shop.Held),
		"sagas": "/sagas", "saga": "/sagas/fulfilment-4711", "health": "/health", "help-doctor": "/help/operations/doctor", "activity": "/activity", "not-found": "/nowhere",
	}
}

// layout finds what a page that scrolls sideways, or cells outside of their panel, have wrong.
const layout = `(() => {
	const wrong = [];
	if (document.documentElement.scrollWidth > innerWidth) wrong.push('the page is ' + document.documentElement.scrollWidth + ' px wide');
	for (const cell of document.querySelectorAll('td, th')) {
		const panel = cell.closest('.panel'), c = cell.getBoundingClientRect();
		if (!panel || !c.width || getComputedStyle(cell).clipPath !== 'none' || cell.closest('thead') && getComputedStyle(cell.closest('thead')).clipPath !== 'none') continue;
		const p = panel.getBoundingClientRect();
		if (c.right > p.right + 1 || c.left < p.left - 1) { wrong.push('a cell is outside of its panel: ' + cell.textContent.slice(0, 60)); break; }
	}
	for (const a of document.querySelectorAll('.nav a, .btn, summary')) {
		const r = a.getBoundingClientRect();
		if (r.height && r.height < 18) wrong.push('too low: ' + a.textContent);
	}
	return wrong.join('; ');
})()`

// TestPages: every page fits every width, in light and dark, with ordinary and with hostile texts, and at twice the size. axe-core finds no
// barriers, on a phone in light and on a screen in dark.
func TestPages(t *testing.T) {
	t.Parallel()
	for _, hostile := range []bool{false, true} {
		serve(t, hostile).all(t, hostile, func(width int64, scheme string) bool {
			return !hostile && (width == 360 && scheme == "light" || width == 1440 && scheme == "dark")
		})
	}
}

// TestPagesTorture is the long form of TestPages: axe-core looks at each page on a phone, a tablet and a screen, in light and dark.
func TestPagesTorture(t *testing.T) {
	if pictures == "" && os.Getenv("POSTRIDER_TORTURE") == "" {
		t.Skip("neither POSTRIDER_TEST_PICTURES nor POSTRIDER_TORTURE is set")
	}
	serve(t, false).all(t, false, func(width int64, _ string) bool { return width != 1024 })
}

// all checks all pages: at each width in light, and in dark, which changes no layout, where it is examined with axe-core too.
func (s site) all(t *testing.T, hostile bool, examined func(width int64, scheme string) bool) {
	t.Helper()
	script := axe(t)
	ctx := browser(t)
	for name, path := range s.pages(t) {
		for _, width := range []int64{360, 768, 1024, 1440} {
			for _, scheme := range []string{"light", "dark"} {
				if hostile && width == 1024 || scheme == "dark" && !examined(width, scheme) {
					continue
				}
				s.page(t, ctx, hostile, name, path, width, scheme)
				if examined(width, scheme) {
					noBarriers(t, ctx, script, name, width, scheme)
				}
			}
		}
		if !hostile {
			s.zoomed(t, ctx, name, path)
		}
	}
}

// barriers runs axe-core, and returns what it finds of the rules of WCAG 2.2 (A and AA) and of good practice.
const barriers = `axe.run(document, {resultTypes: ['violations'], runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})
	.then(r => r.violations.map(v => v.id + ': ' + v.help + ' at ' + v.nodes.slice(0, 3).map(n => n.target.join(' ') + ' (' +
		n.failureSummary.split('\\n').slice(1, 2).join('').trim() + ')').join(', ')).join('; '))`

// axe is the program axe-core.
func axe(t *testing.T) string {
	t.Helper()
	script, err := os.ReadFile(servertest.Get(t, servertest.Axe))
	must(t, err)
	return string(script)
}

// noBarriers checks the page that is open.
func noBarriers(t *testing.T, ctx context.Context, axe, name string, width int64, scheme string) {
	t.Helper()
	must(t, steps(ctx, chromedp.Evaluate[chromedp.Void](axe)))
	wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](barriers, chromedp.EvalAwaitPromise))
	if must(t, err); wrong != "" {
		t.Errorf("%s at %d px, %s: %s", name, width, scheme, wrong)
	}
}

// inScheme makes pages light or dark.
func inScheme(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}

func (s site) page(t *testing.T, ctx context.Context, hostile bool, name, path string, width int64, scheme string) {
	t.Helper()
	must(t, steps(ctx, inScheme(scheme), chromedp.EmulateViewport(width, 900), chromedp.Navigate(s.url+path)))
	wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](layout))
	must(t, err)
	var picture []byte
	if pictures != "" && !hostile {
		picture, err = chromedp.Run(ctx, chromedp.FullScreenshot(100))
		must(t, err)
	}
	if wrong != "" {
		t.Errorf("%s at %d px: %s", name, width, wrong)
	}
	if picture != nil {
		must(t, os.WriteFile(filepath.Join(pictures, fmt.Sprintf("%s-%d-%s.png", name, width, scheme)), picture, 0o600))
	}
}

// zoomed checks that a page fits when everything is twice as large, by the zoom of the browser and by a larger font alone.
func (s site) zoomed(t *testing.T, ctx context.Context, name, path string) {
	t.Helper()
	for _, width := range []int64{768, 1440} {
		must(t, steps(ctx, chromedp.EmulateViewport(width/2, 450, chromedp.EmulateScale(2)), chromedp.Navigate(s.url+path)))
		wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](layout))
		if must(t, err); wrong != "" {
			t.Errorf("%s at %d px and 200%%: %s", name, width, wrong)
		}
	}
	must(t, steps(ctx, textSize(32), chromedp.EmulateViewport(1440, 900), chromedp.Navigate(s.url+path)))
	wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](layout))
	if must(t, err); wrong != "" {
		t.Errorf("%s with text twice as large: %s", name, wrong)
	}
	must(t, steps(ctx, textSize(16)))
}

// textSize sets the size of text as in the settings of the browser.
func textSize(pixels int64) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, page.SetFontSizes, page.SetFontSizesParams{FontSizes: &page.FontSizes{Standard: pixels, Fixed: pixels}})
		return err
	})
}

// TestIncident: from the problem on the overview to the redrive, with the mouse and with the script: on a phone, a tablet and a screen, in
// light and dark, and on a screen with everything twice as large.
func TestIncident(t *testing.T) {
	t.Parallel()
	ctx := browser(t)
	for _, at := range []struct {
		width, zoom int64
		scheme      string
	}{
		{360, 1, "light"}, {360, 1, "dark"}, {768, 1, "light"}, {768, 1, "dark"}, {1440, 1, "light"}, {1440, 1, "dark"}, {1440, 2, "light"}, {768, 2, "dark"},
	} {
		s := serve(t, false)
		must(t, steps(ctx, inScheme(at.scheme), chromedp.EmulateViewport(at.width/at.zoom, 900/at.zoom, chromedp.EmulateScale(float64(at.zoom)))))
		s.incident(t, ctx)
	}
}

// incident goes from the problem on the overview to the redrive, and cancels it.
func (s site) incident(t *testing.T, ctx context.Context) {
	t.Helper()
	must(t, steps(ctx, chromedp.Navigate(s.url+"/"),
		chromedp.Click(`//a[contains(., "Review 200")]`), chromedp.WaitVisible(`//h1[contains(., "failed for this reason")]`),
		chromedp.Click(`//button[contains(., "Review redrive of 200")]`), chromedp.WaitVisible(`#why`),
		chromedp.SendKeys(`#why`, "receiver fixed"), chromedp.Click(`//button[contains(., "Redrive 200 dead letters in production")]`),
		chromedp.WaitVisible(`//h1[contains(., "Redrive 1")]`)))
	address, err := chromedp.Run(ctx, chromedp.Location())
	must(t, err)
	must(t, steps(ctx,
		chromedp.Click(`//button[contains(., "Cancel redrive")]`), chromedp.WaitVisible(`//h1[contains(., "was cancelled")]`),
		chromedp.Navigate(s.url+"/activity")))
	title, err := chromedp.Run(ctx, chromedp.Text("main"))
	must(t, err)
	if !strings.HasSuffix(address, "/redrives/1") || !strings.Contains(title, "receiver fixed") || !strings.Contains(title, "anna") {
		t.Errorf("at %s, activity:\n%s", address, title)
	}
}

// TestKeyboard: from the problem to the redrive with the keyboard alone. What has the focus is visible, and its outline too.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	ctx := browser(t)
	const focused = `(() => {
		const e = document.activeElement, r = e.getBoundingClientRect(), style = getComputedStyle(e);
		const outside = r.bottom < 0 || r.top > innerHeight || r.right < 0 || r.left > innerWidth || r.width === 0;
		const name = (e.labels && e.labels[0] ? e.labels[0].textContent : '') + ' ' + e.textContent + ' ' + (e.getAttribute('aria-label') || '');
		return JSON.stringify({Name: name.trim().replace(/\\s+/g, ' ').slice(0, 80), Hidden: outside, Outline: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0});
	})()`
	reach := func(name string) {
		t.Helper()
		for range 80 {
			must(t, steps(ctx, chromedp.KeyEvent(kb.Tab)))
			text, err := chromedp.Run(ctx, chromedp.Evaluate[string](focused))
			must(t, err)
			var at struct {
				Name            string
				Hidden, Outline bool
			}
			must(t, json.Unmarshal([]byte(text), &at))
			if at.Hidden || !at.Outline {
				t.Errorf("on the way to %s, the focus on %q cannot be seen: %s", name, at.Name, text)
			}
			if strings.Contains(at.Name, name) {
				return
			}
		}
		t.Fatalf("the key Tab does not lead to %s", name)
	}
	must(t, steps(ctx, chromedp.EmulateViewport(1024, 800), chromedp.Navigate(s.url+"/")))
	must(t, steps(ctx, chromedp.KeyEvent("?"), chromedp.WaitVisible(`//h1[text()="Help"]`)))
	must(t, steps(ctx, chromedp.Navigate(s.url+"/"), chromedp.KeyEvent("/"), chromedp.KeyEvent("?")))
	typed, err := chromedp.Run(ctx, chromedp.Evaluate[string](`document.getElementById('q').value`))
	must(t, err)
	if !strings.HasSuffix(typed, "?") { // in a field, it is a character (chromedp types the / too, although the page has handled it)
		t.Errorf("the search has %q", typed)
	}
	must(t, steps(ctx, chromedp.Navigate(s.url+"/")))
	reach("Review 200")
	must(t, steps(ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//h1[contains(., "failed for this reason")]`)))
	reach("Review redrive of 200")
	must(t, steps(ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`#why`)))
	reach("1 message")
	reach("Reason")
	must(t, steps(ctx, chromedp.KeyEvent("receiver fixed")))
	reach("Redrive 200 dead letters")
	must(t, steps(ctx, chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(`//h1[contains(., "Redrive 1")]`)))
}

// TestSignIn: the link fills in the code, and the button signs in.
func TestSignIn(t *testing.T) {
	t.Parallel()
	shop, err := webtest.New(t.Context(), false)
	must(t, err)
	handler, err := web.New(admin.New(shop, admin.Config{Name: "shop"}), web.Config{Environment: web.Environment{Name: "Production", Tone: "production"}})
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	code := handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Viewer})
	ctx := browser(t)
	must(t, steps(ctx, chromedp.EmulateViewport(1440, 900), chromedp.Navigate(server.URL+"/dead"), chromedp.WaitVisible("#code")))
	if pictures != "" {
		picture, err := chromedp.Run(ctx, chromedp.FullScreenshot(100))
		must(t, err)
		must(t, os.WriteFile(filepath.Join(pictures, "sign-in-1440-light.png"), picture, 0o600))
	}
	must(t, steps(ctx, chromedp.Navigate(server.URL+"/signin?code="+code), chromedp.Click(`//button[contains(., "Sign in")]`),
		chromedp.WaitVisible(`//h1[contains(., "problems in shop")]`), chromedp.Click(".user summary"),
		chromedp.Click(`//button[contains(., "Sign out")]`), chromedp.WaitVisible("#code")))
}
