package web_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// state is a page that the shop of the other tests does not have.
type state struct {
	site
	path string
}

// as serves the administration of a service to somebody with a role.
func as(t *testing.T, role admin.Role, service *admin.Service) site {
	t.Helper()
	handler, err := web.New(service, web.Config{
		Authorizer: somebody(role), Environment: web.Environment{Name: "Production", Tone: "production"}, Version: "v1.4.0",
		Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return site{service: service, url: server.URL}
}

// broken is a store that cannot be read.
type broken struct{ *memory.Store }

func (broken) Status(context.Context) (store.Status, error) {
	return store.Status{}, errors.New("connection refused")
}

// states are pages of a new store, of one in which everything works, of one that cannot be read, and what others see or do at the shop.
func states(t *testing.T) map[string]state {
	t.Helper()
	out := make(map[string]state)
	empty := as(t, admin.Admin, admin.New(memory.New(memory.Config{}), admin.Config{Name: "shop"}))
	for name, path := range map[string]string{
		"new-overview": "/", "new-dead": "/dead", "new-dead-all": "/dead?view=all", "new-held": "/held", "new-sagas": "/sagas", "new-health": "/health", "new-activity": "/activity",
	} {
		out[name] = state{empty, path}
	}
	out["unreadable"] = state{as(t, admin.Admin, admin.New(broken{memory.New(memory.Config{})}, admin.Config{Name: "shop", Logger: slog.New(slog.DiscardHandler)})), "/"}
	out["healthy"] = state{parcels(t, nil, saga.Completed), "/"}
	out["saga-decide"] = state{parcels(t, errors.New("the carrier does not answer"), saga.Stuck), "/sagas/4711"}
	for name, role := range map[string]string{"saga-question": "finance", "saga-question-of-others": "legal"} {
		asking := asks(t, role)
		out[name], out[name+"-list"] = state{asking, "/sagas/4711"}, state{asking, "/sagas?view=asking"}
	}

	shop := serve(t, false)
	must(t, shop.shop.Own())
	anna := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Admin}
	_, err := shop.service.PauseRelay(t.Context(), anna, "payments", "partner maintenance", 15*time.Minute)
	must(t, err)
	out["relay-paused"] = state{shop, "/relays/payments"}
	causes, err := shop.service.Causes(t.Context(), anna, webtest.Open, 10)
	must(t, err)
	review, err := shop.service.StartReview(t.Context(), anna, admin.ReviewDiscard, webtest.Of(causes.Causes[0]))
	must(t, err)
	out["review-discard"] = state{shop, "/reviews/" + review.ID}
	agent := admin.Principal{Issuer: "token", Subject: "assistant", Role: admin.Operator, Via: admin.ViaAgent}
	review, err = shop.service.Plan(t.Context(), agent, webtest.Of(causes.Causes[0]), "the receiver answers again since 14:02")
	must(t, err)
	out["review-agent"] = state{shop, "/reviews/" + review.ID}
	out["reveal"] = state{shop, "/dead/2/reveal"}
	out["help"], out["help-runbook"] = state{shop, "/help"}, state{shop, "/help/operations/runbooks/held-keys"}
	hidden := as(t, admin.Operator, admin.New(shop.shop, admin.Config{Name: "shop"}))
	key := url.PathEscape(admin.HiddenKey(shop.shop.Dead))
	out["hidden-dead-one"], out["hidden-dead-all"], out["hidden-held"] = state{hidden, "/dead/2"}, state{hidden, "/dead?view=all&key=" + key}, state{hidden, "/held"}
	out["hidden-key"], out["hidden-message"] = state{hidden, "/keys/" + key}, state{hidden, "/messages/" + shop.shop.Dead}
	viewer := as(t, admin.Viewer, shop.service)
	out["viewer-dead-one"], out["viewer-activity"] = state{viewer, "/dead/2"}, state{viewer, "/activity"}
	chain, err := webtest.NewChain(t.Context(), "order/42")
	must(t, err)
	keys := []admin.Rule{{Type: "*", Keys: admin.Viewer}}
	everywhere := as(t, admin.Operator, admin.New(chain.Shop, admin.Config{Name: "shop", Others: chain.Others(true), Show: keys}))
	partly := as(t, admin.Operator, admin.New(chain.Shop, admin.Config{Name: "shop", Others: chain.Others(false), Show: keys, Logger: slog.New(slog.DiscardHandler)}))
	out["message-causes"], out["message-causes-incomplete"] = state{everywhere, "/messages/" + chain.Requested}, state{partly, "/messages/" + chain.Requested}
	out["viewer-not-found"] = state{viewer, "/redrives/4711"}
	return out
}

// parcels is the administration of an engine with an instance, 4711, whose last step ends with an error.
func parcels(t *testing.T, ship error, want saga.Status) site {
	t.Helper()
	nothing := func(context.Context, *memory.Tx, *parcel) error { return nil }
	return fulfilment(t, want,
		saga.Local[parcel, *memory.Tx]{Name: "reserve", Do: nothing, Undo: nothing},
		saga.Local[parcel, *memory.Tx]{Name: "charge", Pivot: true, Do: nothing},
		saga.Local[parcel, *memory.Tx]{Name: "ship", Attempts: 1, NoUndo: true, Do: func(context.Context, *memory.Tx, *parcel) error { return ship }})
}

type parcel struct{}

// fulfilment is the administration of an engine with an instance, 4711, of a saga with these steps.
func fulfilment(t *testing.T, want saga.Status, steps ...saga.Step[parcel]) site {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	s := memory.New(memory.Config{})
	box, err := outbox.New(s, outbox.Config{Source: "shop"})
	must(t, err)
	engine, err := saga.New(s, box, saga.Config{Name: "shop", Logger: quiet})
	must(t, err)
	instances, err := saga.Register(engine, saga.Definition[parcel]{Name: "order-fulfilment", Version: 1, Steps: steps})
	must(t, err)
	r, err := relay.New(s, relay.Config{Name: "sagas", Topics: engine.Topics(), Logger: quiet})
	must(t, err)
	must(t, engine.Relay(r))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	_, err = box.InTx(t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := instances.Start(ctx, tx, parcel{}, saga.ID("4711"))
		return err
	})
	must(t, err)
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		found, err := instances.Get(t.Context(), "4711")
		reported, unread := s.SagaDefinitions(t.Context()) // lists and plans need it
		if must(t, unread); err == nil && found.Status == want && len(reported) > 0 {
			break
		}
		if time.Since(begun) > 2*time.Minute {
			t.Fatalf("the instance is %s, %v; want %s", found.Status, err, want)
		}
	}
	return as(t, admin.Operator, admin.New(s, admin.Config{Name: "shop", Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}, Publish: func(ctx context.Context, m *postrider.Message) error {
		_, err := box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
			_, err := box.Publish(ctx, tx, m)
			return err
		})
		return err
	}}))
}

// TestStates: pages of stores that are new, healthy or cannot be read, and those of other roles, fit a phone in light and a screen in dark,
// without barriers.
func TestStates(t *testing.T) {
	t.Parallel()
	script := axe(t)
	ctx := browser(t)
	pages := states(t)
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		s := pages[name]
		for width, scheme := range map[int64]string{360: "light", 1440: "dark"} {
			s.page(t, ctx, false, name, s.path, width, scheme)
			noBarriers(t, ctx, script, name, width, scheme)
		}
	}
}

// TestTypedTextStays: the script replaces no page on which somebody has filled in something, also if the focus is elsewhere.
func TestTypedTextStays(t *testing.T) {
	t.Parallel()
	s := serve(t, false)
	ctx := browser(t)
	// refreshed marks the page, has the script look for news, and reports whether the page was replaced.
	refreshed := func() bool {
		t.Helper()
		replaced, err := chromedp.Run(ctx, chromedp.Evaluate[bool](`(async () => {
			document.activeElement.blur();
			document.getElementById('main').marked = true;
			await refresh();
			return !document.getElementById('main').marked;
		})()`, chromedp.EvalAwaitPromise))
		must(t, err)
		return replaced
	}
	must(t, steps(ctx, chromedp.EmulateViewport(1024, 800), chromedp.Navigate(s.url+admin.HeldPath("to-hook", s.shop.Held)), chromedp.WaitVisible(`#reason`)))
	if !refreshed() {
		t.Error("a page on which nothing is filled in is not replaced")
	}
	must(t, steps(ctx, chromedp.SendKeys(`#reason`, "upstream is back")))
	if refreshed() {
		t.Error("a page with a reason that was filled in is replaced")
	}
	must(t, steps(ctx, chromedp.Reload(), chromedp.WaitVisible(`#reason`), chromedp.Click(`input[value=skip]`)))
	if refreshed() {
		t.Error("a page with a decision that was chosen is replaced")
	}
	must(t, steps(ctx, chromedp.Navigate(s.url+"/relays/payments"), chromedp.WaitVisible(`#for`), chromedp.Evaluate[chromedp.Void](`document.getElementById('for').value = '1h'`)))
	if refreshed() {
		t.Error("a page with a time that was chosen is replaced")
	}
}
