package web_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store/memory"
)

type parcel struct{}

// parcels is an engine whose instances charge, and are stuck before they ship until the carrier works.
type parcels struct {
	*site
	store   *memory.Store
	saga    *saga.Saga[*memory.Tx, parcel]
	box     *outbox.Outbox[*memory.Tx]
	carrier atomic.Bool
}

func serveParcels(t *testing.T, publish bool) *parcels {
	t.Helper()
	p := &parcels{}
	nothing := func(context.Context, *memory.Tx, *parcel) error { return nil }
	p.serve(t, publish, saga.Local[parcel, *memory.Tx]{Name: "charge", Pivot: true, Do: nothing},
		saga.Local[parcel, *memory.Tx]{Name: "ship", Attempts: 1, NoUndo: true, Do: func(context.Context, *memory.Tx, *parcel) error {
			if !p.carrier.Load() {
				return errors.New("the carrier does not answer")
			}
			return nil
		}})
	return p
}

// serve serves the administration of an engine with a saga of these steps.
func (p *parcels) serve(t *testing.T, publish bool, steps ...saga.Step[parcel]) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	p.store = memory.New(memory.Config{})
	var err error
	p.box, err = outbox.New(p.store, outbox.Config{Source: "shop"})
	must(t, err)
	engine, err := saga.New(p.store, p.box, saga.Config{Name: "shop", Logger: quiet})
	must(t, err)
	p.saga, err = saga.Register(engine, saga.Definition[parcel]{Name: "parcels", Version: 1, Steps: steps})
	must(t, err)
	r, err := relay.New(p.store, relay.Config{Name: "sagas", Topics: engine.Topics(), Logger: quiet})
	must(t, err)
	must(t, engine.Relay(r))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
	})
	c := admin.Config{Name: "shop", Logger: quiet, Show: []admin.Rule{{Type: "*", Keys: admin.Viewer}}}
	if publish {
		c.Publish = func(ctx context.Context, m *postrider.Message) error {
			_, err := p.box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
				_, err := p.box.Publish(ctx, tx, m)
				return err
			})
			return err
		}
	}
	p.site = &site{t: t, service: admin.New(p.store, c)}
	p.handler, err = web.New(p.service, web.Config{})
	must(t, err)
	p.server = httptest.NewServer(p.handler)
	t.Cleanup(p.server.Close)
	p.url, p.browser = p.server.URL, p.newBrowser()
}

// stuck starts an instance, and waits until it is stuck.
func (p *parcels) stuck(id string) {
	p.t.Helper()
	p.start(id)
	p.is(id, saga.Stuck)
}

func (p *parcels) start(id string) {
	p.t.Helper()
	_, err := p.box.InTx(p.t.Context(), func(ctx context.Context, tx *memory.Tx) error {
		_, err := p.saga.Start(ctx, tx, parcel{}, saga.ID(id))
		return err
	})
	must(p.t, err)
}

func (p *parcels) is(id string, want saga.Status) {
	p.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		r, err := p.saga.Get(p.t.Context(), id)
		if err == nil && r.Status == want {
			return
		}
		if time.Since(begun) > 2*time.Minute {
			p.t.Fatalf("instance %s is %s, %v; want %s", id, r.Status, err, want)
		}
	}
}

var revision = regexp.MustCompile(`name="rev" value="(\d+)"`)

// rev is the revision that the page of an instance shows.
func (p *parcels) rev(id string) string {
	p.t.Helper()
	_, body := p.get("/sagas/" + id)
	found := revision.FindStringSubmatch(body)
	if found == nil {
		p.t.Fatalf("the page of %s offers no decision:\n%s", id, body)
	}
	return found[1]
}

// TestStuckSaga: the page of a stuck instance offers what its engine would accept. It is tried again with one click, and abandoned with a
// reason; what is stale or incomplete is refused.
func TestStuckSaga(t *testing.T) {
	t.Parallel()
	p := serveParcels(t, true)
	p.signIn(admin.Operator)
	p.stuck("42")
	_, body := p.get("/sagas/42")
	for _, text := range []string{"Retry now", `value="complete"`, `value="abandon"`, `value="pause"`} {
		if !strings.Contains(body, text) {
			t.Errorf("the page has no %s", text)
		}
	}
	for _, text := range []string{`value="resume"`, `value="compensate"`} { // nothing is paused, and there is no way back
		if strings.Contains(body, text) {
			t.Errorf("the page offers %s", text)
		}
	}
	p.refuses(t)
	p.is("42", saga.Stuck)
	p.carrier.Store(true)
	if status, body := p.post("/sagas/42/operate", url.Values{"verb": {"retry"}, "rev": {p.rev("42")}}); status != http.StatusOK ||
		!strings.Contains(body, "The decision is applied") && !strings.Contains(body, "Asked for") {
		t.Errorf("a retry: %d\n%s", status, body)
	}
	p.is("42", saga.Completed)
	if _, body := p.get("/sagas/42"); strings.Contains(body, "/operate") {
		t.Error("the page of an instance that has ended offers decisions")
	}

	p.carrier.Store(false)
	p.stuck("43")
	if status, _ := p.post("/sagas/43/operate", url.Values{"verb": {"abandon"}, "rev": {p.rev("43")}, "reason": {"written off"}}); status != http.StatusOK {
		t.Errorf("abandoned: %d", status)
	}
	p.is("43", saga.Abandoned)
	entries, _, err := p.service.Activity(t.Context(), admin.Principal{Subject: "boss", Role: admin.Admin}, "", 100)
	must(t, err)
	results := map[admin.Result]int{}
	for _, e := range entries {
		if e.Action == "OperateSaga" {
			results[e.Result]++
		}
	}
	if results[admin.Done] != 2 || results[admin.Refused] != 2 || entries[0].Reason != "written off" || entries[0].Path != "/sagas/43" {
		t.Errorf("on record: %v, %+v", results, entries)
	}
}

// refuses checks what instance 42, which is stuck, is not asked for.
func (p *parcels) refuses(t *testing.T) {
	t.Helper()
	for name, tt := range map[string]struct {
		form   url.Values
		status int
	}{
		"no reason":        {url.Values{"verb": {"abandon"}, "rev": {p.rev("42")}, "reason": {" "}}, http.StatusBadRequest},
		"no revision":      {url.Values{"verb": {"abandon"}, "reason": {"x"}}, http.StatusBadRequest},
		"a stale revision": {url.Values{"verb": {"abandon"}, "rev": {"1"}, "reason": {"x"}}, http.StatusConflict},
		"another verb":     {url.Values{"verb": {"edit"}, "rev": {p.rev("42")}, "reason": {"x"}}, http.StatusBadRequest},
		"no way back":      {url.Values{"verb": {"compensate"}, "rev": {p.rev("42")}, "reason": {"x"}}, http.StatusConflict},
	} {
		if status, body := p.post("/sagas/42/operate", tt.form); status != tt.status {
			t.Errorf("%s: %d, want %d\n%s", name, status, tt.status, body)
		}
	}
	if status, _ := p.post("/sagas/none/operate", url.Values{"verb": {"retry"}, "rev": {"1"}}); status != http.StatusNotFound {
		t.Errorf("an unknown instance: %d", status)
	}
}

// TestSagaWithoutRight: who may not decide, and an administration that cannot publish, are shown no decision, and refused one.
func TestSagaWithoutRight(t *testing.T) {
	t.Parallel()
	form := url.Values{"verb": {"abandon"}, "rev": {"2"}, "reason": {"x"}}
	for _, tt := range []struct {
		publish bool
		role    admin.Role
		text    string
	}{{true, admin.Viewer, "needs the operator role"}, {false, admin.Operator, "postrider saga"}} {
		p := serveParcels(t, tt.publish)
		p.signIn(tt.role)
		p.stuck("42")
		if _, body := p.get("/sagas/42"); strings.Contains(body, "/operate") || !strings.Contains(body, tt.text) {
			t.Errorf("%s, publish %t: the page offers decisions, or does not say %q", tt.role, tt.publish, tt.text)
		}
		if status, body := p.post("/sagas/42/operate", form); status != http.StatusForbidden {
			t.Errorf("%s, publish %t: %d\n%s", tt.role, tt.publish, status, body)
		}
		p.is("42", saga.Stuck)
	}
}
