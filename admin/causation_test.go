package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/inspect"
)

func chainOf(t *testing.T) *webtest.Chain {
	t.Helper()
	c, err := webtest.NewChain(t.Context(), "order/"+secret)
	must(t, err)
	return c
}

// TestCausationIsRedacted (scenario D11): what a chain says of messages, of whatever store, has no key, subject, correlation ID, header or payload
// that the principal may not see, nor does what it says about a store that cannot be reached have that store's address.
func TestCausationIsRedacted(t *testing.T) {
	t.Parallel()
	c := chainOf(t)
	for name, tt := range map[string]struct {
		rules []admin.Rule
		shown int // keys and correlation IDs, of seven messages
	}{
		"no rule":                   {nil, 0},
		"a rule for another role":   {[]admin.Rule{{Type: "*", All: true, Keys: admin.Operator}}, 0},
		"a rule for one type":       {[]admin.Rule{{Type: "invoice.created", Keys: admin.Viewer}}, 2},
		"a rule that hides one":     {[]admin.Rule{{Type: "invoice.created"}, {Type: "*", All: true, Keys: admin.Viewer}}, 12},
		"a rule for everything":     {[]admin.Rule{{Type: "*", All: true, Headers: []string{"*"}, Causes: true, Keys: admin.Viewer}}, 14},
		"a rule for other services": {[]admin.Rule{{Type: "payment.*", All: true, Keys: admin.Viewer}}, 4},
	} {
		service := admin.New(c.Shop, admin.Config{Name: "shop", Others: c.Others(false), Show: tt.rules, Logger: slog.New(slog.DiscardHandler)})
		for range 2 { // what is kept for others is not what was hidden
			text := chainText(t, service, viewer, c.Paid)
			if n := strings.Count(text, secret); n != tt.shown || strings.Contains(text, webtest.Secret) || strings.Contains(text, "10.0.0.9") {
				t.Errorf("%s: %d keys and correlation IDs, want %d: %s", name, n, tt.shown, text)
			}
			for _, kind := range []string{"order.placed", "payment.requested", "payment.accepted", "order.confirmed", "mail.requested", "invoice.created", "invoice.archived"} {
				if !strings.Contains(text, kind) {
					t.Errorf("%s: %s is missing", name, kind)
				}
			}
		}
	}
}

func chainText(t *testing.T, service *admin.Service, p admin.Principal, id string) string {
	t.Helper()
	chain, err := service.Causation(t.Context(), p, id, inspect.CausationSearch{})
	must(t, err)
	text, err := json.Marshal(chain)
	must(t, err)
	return string(text)
}

// TestHiddenKeysLeadOnlyHere: a hidden key of another store does not lead to a page that this store does not have.
func TestHiddenKeysLeadOnlyHere(t *testing.T) {
	t.Parallel()
	c := chainOf(t)
	service := admin.New(c.Shop, admin.Config{Name: "shop", Others: c.Others(true)})
	chain, err := service.Causation(t.Context(), operator, c.Requested, inspect.CausationSearch{})
	must(t, err)
	if !chain.Complete || chain.Message.Key != admin.HiddenKey(c.Requested) || chain.Effects[0].Store != "billing" || chain.Effects[0].Key != "hidden" {
		t.Errorf("%+v", chain)
	}
}

// TestAStoreThatCannotBeReachedIsNamed: the answer names it and says that it is not complete; its error, which has addresses, goes to the log.
func TestAStoreThatCannotBeReachedIsNamed(t *testing.T) {
	t.Parallel()
	c := chainOf(t)
	var log bytes.Buffer
	service := admin.New(c.Shop, admin.Config{Name: "shop", Others: c.Others(false), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	chain, err := service.Causation(t.Context(), viewer, c.Order, inspect.CausationSearch{})
	must(t, err)
	if chain.Complete || len(chain.Incomplete) != 1 || chain.Incomplete[0].Text != "Store stock cannot be read." || !strings.Contains(log.String(), webtest.ErrUnreachable.Error()) {
		t.Errorf("%+v; log: %s", chain.Incomplete, &log)
	}
	if _, err := service.Causation(t.Context(), viewer, "none", inspect.CausationSearch{}); !errors.Is(err, webtest.ErrUnreachable) {
		t.Errorf("a message that may be in that store: %v", err)
	}
	service = admin.New(c.Shop, admin.Config{Name: "shop", Others: c.Others(true)})
	if _, err := service.Causation(t.Context(), viewer, "none", inspect.CausationSearch{}); !errors.Is(err, inspect.ErrNotFound) {
		t.Errorf("a message that is nowhere: %v", err)
	}
}

// TestOneSearchServesManyViewers: pages that are asked again every few seconds do not have the logs read again each time.
func TestOneSearchServesManyViewers(t *testing.T) {
	t.Parallel()
	c := chainOf(t)
	var opened atomic.Int64
	counted := inspect.Source{Name: "billing", Open: func(context.Context) (inspect.Store, error) {
		opened.Add(1)
		return c.Billing, nil
	}}
	service := admin.New(c.Shop, admin.Config{Name: "shop", Others: []inspect.Source{counted}})
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if _, err := service.Causation(t.Context(), viewer, c.Order, inspect.CausationSearch{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := opened.Load(); n > 2 { // each serves for a second at least
		t.Errorf("%d searches for 50 viewers", n)
	}
}
