package web_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

// keyed are the keys, subjects and IDs of sagas in the shop.
var keyed = regexp.MustCompile(`order(?:/|%2F)\d|tenant/acme|customer/ada|fulfilment-47|"customer": ?"42"|<dd><bdi>42</bdi>`)

// keyIn is what keyed finds first. It searches only texts with a part of what it finds: under the race detector a search takes milliseconds.
func keyIn(text string) string {
	for _, part := range []string{"order/", "order%2F", "tenant/acme", "customer/ada", "fulfilment-47", `"customer": `, `"customer":"`, "<bdi>42<"} {
		if strings.Contains(text, part) {
			return keyed.FindString(text)
		}
	}
	return ""
}

// arguments of the operations of the API that need some.
func (s *site) arguments(path string, p admin.Principal) []map[string]string {
	s.t.Helper()
	first := func(path string, given map[string]string, into any) {
		out, err := s.handler.Read(s.t.Context(), p, path, given)
		must(s.t, err)
		text, err := json.Marshal(out)
		must(s.t, err)
		must(s.t, json.Unmarshal(text, into))
	}
	var held []store.HeldInfo
	first("/held", map[string]string{"relay": "to-hook"}, &held)
	switch path {
	case "/held/{relay}/{key}":
		return []map[string]string{{"relay": "to-hook", "key": held[0].Key}, {"relay": "to-hook", "key": held[1].Key}}
	case "/keys/{key}":
		return []map[string]string{{"key": held[0].Key}}
	case "/messages/{id}":
		return []map[string]string{{"id": held[0].MessageID}, {"id": s.shop.Delivered}, {"id": s.shop.Dead}}
	case "/messages/{id}/causation":
		return []map[string]string{{"id": s.shop.Delivered}, {"id": s.shop.Dead}, {"id": s.shop.Dead, "search": "thorough"}}
	case "/relays/{relay}":
		return []map[string]string{{"relay": "to-hook"}, {"relay": "orders-view"}}
	case "/dead/{number}":
		return []map[string]string{{"number": "1"}}
	case "/dead":
		return []map[string]string{{}, {"key": admin.HiddenKey(s.shop.Dead)}}
	case "/redrives/{number}":
		return []map[string]string{{"number": "1"}}
	case "/reviews/{id}":
		r, err := s.service.StartReview(s.t.Context(), admin.Principal{Subject: "olga", Role: admin.Operator}, admin.ReviewRedrive, store.DeadFilter{Key: admin.HiddenKey(s.shop.Dead)})
		must(s.t, err)
		return []map[string]string{{"id": r.ID}}
	case "/sagas/{id}":
		var sagas struct{ Sagas []store.SagaSummary }
		first("/sagas", nil, &sagas)
		return []map[string]string{{"id": sagas.Sagas[0].ID}}
	}
	return []map[string]string{{}}
}

// aboveIt is a role above each role, to which rules show keys.
var aboveIt = map[admin.Role]admin.Role{admin.Viewer: admin.Operator, admin.Operator: admin.Admin, admin.Admin: ""}

// TestKeysAreHidden: without a rule that shows them to a role, no answer of the API, which MCP answers too, has a key, a subject, or the ID of
// a saga. Everything stays within reach: by the ID of a message, or of the run of a saga. TestEveryPage looks at the pages.
func TestKeysAreHidden(t *testing.T) {
	t.Parallel()
	for role, shown := range aboveIt {
		s := serve(t, false, web.Config{}, admin.Rule{Type: "order.paid", Keys: shown}, admin.Rule{Type: "*", Show: []string{"/number"}, Keys: shown})
		_, err := deadletter.New(s.shop).StartRedrive(t.Context(), deadletter.Plan{Filter: store.DeadFilter{Key: s.shop.Held, State: store.DeadAny}, By: "ops"})
		if err == nil {
			t.Fatal("the held key has dead letters") // the next one has
		}
		_, err = deadletter.New(s.shop).StartRedrive(t.Context(), deadletter.Plan{Filter: store.DeadFilter{Key: "order/1001"}, By: "ops"})
		must(t, err)
		p := admin.Principal{Issuer: "test", Subject: "anna", Role: role}
		for _, read := range s.handler.Reads() {
			if read.Action != "" && !role.May(read.Action) {
				continue
			}
			for _, given := range s.arguments(read.Path, p) {
				out, err := s.handler.Read(t.Context(), p, read.Path, given)
				text, broken := json.Marshal(out)
				must(t, broken)
				if found := keyed.FindString(string(text)); err != nil || found != "" {
					t.Errorf("%s gets %q from %s %v: %v", role, found, read.Path, given, err)
				}
			}
		}
	}
}

// TestNothingIsFoundByAHiddenKey: neither pages nor the API say whether something has a key that the role may not see.
func TestNothingIsFoundByAHiddenKey(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, admin.Rule{Type: "*", Keys: admin.Operator}).signIn(admin.Viewer)
	p := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Viewer}
	for _, key := range []string{s.shop.Held, "order/none", "hidden:none"} {
		for path, given := range map[string]map[string]string{
			"/keys/{key}": {"key": key}, "/held/{relay}/{key}": {"relay": "to-hook", "key": key}, "/dead": {"key": key}, "/dead/causes": {"key": key},
		} {
			if out, err := s.handler.Read(t.Context(), p, path, given); err == nil {
				t.Errorf("%s of %q: %v", path, key, out)
			}
		}
		if found, err := s.service.Find(t.Context(), p, key); err != nil || len(found.Found) > 0 {
			t.Errorf("a search for %q finds %v, %v", key, found, err)
		}
		if status, body := s.get("/keys/" + url.PathEscape(key)); status != http.StatusForbidden && status != http.StatusNotFound || strings.Contains(body, "held at") {
			t.Errorf("the page of %q: %d", key, status)
		}
	}
	if _, err := s.service.Saga(t.Context(), p, "fulfilment-4711"); err == nil {
		t.Error("a saga is found by its ID")
	}
	p.Role = admin.Operator
	if found, err := s.service.Find(t.Context(), p, s.shop.Held); err != nil || len(found.Found) != 1 || found.Found[0].Kind != "key" {
		t.Errorf("an operator, who sees keys, finds %v, %v", found, err)
	}
}

// TestDecisionAboutAHiddenKey: who does not see a key can decide about it, from its page, and the record names it to those who do.
func TestDecisionAboutAHiddenKey(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, admin.Rule{Type: "*", Keys: admin.Admin}).signIn(admin.Operator)
	must(t, s.shop.Own())
	p := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Operator, Via: admin.ViaBrowser}
	held, err := s.service.HeldKeys(t.Context(), p, "to-hook", 1)
	must(t, err)
	path := admin.HeldPath("to-hook", held[0].Key)
	if status, body := s.get(path); status != http.StatusOK || !strings.Contains(body, "A hidden key is held at") {
		t.Errorf("its page: %d", status)
	}
	status, body := s.post(path+"/decide", url.Values{"verb": {"skip"}, "reason": {"agreed"}, "message": {held[0].MessageID}})
	if status != http.StatusOK || keyed.MatchString(body) || !strings.Contains(body, "Recorded.") {
		t.Errorf("the decision: %d, %q", status, keyed.FindString(body))
	}
	if status, body := s.get("/activity"); status != http.StatusOK || keyed.MatchString(body) || !strings.Contains(body, "Skip: key hidden of to-hook") {
		t.Errorf("the operator's activity: %d, %q", status, keyed.FindString(body))
	}
	entries, _, err := s.service.Activity(t.Context(), admin.Principal{Subject: "ada", Role: admin.Admin}, "", 10)
	must(t, err)
	if e := entries[0]; !keyed.MatchString(e.Key) || e.On != "Skip: key "+e.Key+" of to-hook" || e.Path != admin.HeldPath("to-hook", e.Key) || time.Since(e.At) > time.Hour {
		t.Errorf("the record: %+v", e)
	}
	if _, body := s.get(admin.KeyPath(admin.HiddenKey(webtest.Secret))); keyed.MatchString(body) {
		t.Errorf("the page of an unknown message has %q", keyed.FindString(body))
	}
}

// TestRecordsWithoutTheirKey: entries of earlier versions do not say which key they name, and refused decisions name one too. Who does not see
// keys gets no name from them, except those of runs and messages; and not from a reason that names the key of its action.
func TestRecordsWithoutTheirKey(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, admin.Rule{Type: "*", Keys: admin.Operator})
	ctx, boss := t.Context(), admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin}
	sagas, err := s.shop.ListSagas(ctx, store.SagaFilter{}, "", 1)
	must(t, err)
	run := sagas[0].Run
	put := func(e admin.Entry) {
		e.ID, e.Result = postrider.NewID(), admin.Done
		body, err := json.Marshal(e)
		must(t, err)
		must(t, s.shop.Change(ctx, store.Operation{Method: "Test"}, func(w store.Writer) error {
			return w.PutRecord(ctx, store.Record{Table: store.AuditRecords, Kind: "action", ID: e.ID, Body: body})
		}))
	}
	put(admin.Entry{Action: "Decide", On: "Retry: key order/1001 of to-hook", Key: "order/1001", Reason: "order/1001 is paid"})
	put(admin.Entry{Action: "OperateSaga", On: "retry of saga fulfilment-4711", Path: "/sagas/fulfilment-4711", Error: "fulfilment-4711 moved on"})
	put(admin.Entry{Action: "OperateSaga", On: "retry of saga " + run, Path: "/sagas/" + run})
	put(admin.Entry{Action: "OperateSaga", On: "retry of 2 instances of saga parcels", Path: "/sagas"})
	put(admin.Entry{Action: "Decide", On: "Skip: key order/1001 of to-hook", Path: "/held/to-hook/order%2F1001"})
	put(admin.Entry{Action: "Decide", On: "Skip: message m1 of to-hook", Path: "/messages/m1"})
	nobody := admin.Principal{Issuer: "test", Subject: "vera", Role: admin.Viewer}
	if _, err := s.service.Decide(ctx, nobody, store.Decision{Relay: "to-hook", Key: "order/1001", Verb: store.VerbRetry}); err == nil {
		t.Error("a viewer decides")
	}
	if _, err := s.service.OperateSaga(ctx, nobody, "fulfilment-4711", saga.Operation{Verb: saga.Retry}); err == nil {
		t.Error("a viewer retries a saga")
	}
	want := []string{
		"retry of saga hidden ", "Retry: key hidden of to-hook ", "Skip: message m1 of to-hook /messages/m1", "Skip: key hidden ",
		"retry of 2 instances of saga parcels /sagas", "retry of saga " + run + " /sagas/" + run, "retry of saga hidden ",
		"Retry: key hidden of to-hook ",
	}
	hidden := admin.New(s.shop, admin.Config{})
	entries, _, err := hidden.Activity(ctx, boss, "", len(want))
	must(t, err)
	for i, e := range entries {
		text, err := json.Marshal(e)
		if must(t, err); keyed.Match(text) || e.On+" "+e.Path != want[i] {
			t.Errorf("entry %d, want %q: %s", i, want[i], text)
		}
	}
	entries, _, err = s.service.Activity(ctx, boss, "", len(want))
	if must(t, err); entries[1].Key != "order/1001" || entries[0].Key != "fulfilment-4711" || entries[6].Path != "/sagas/fulfilment-4711" {
		t.Errorf("who sees keys gets %+v", entries)
	}
}
