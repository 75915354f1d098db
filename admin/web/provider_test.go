package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
)

// everybody is a provider that signs in each browser as an admin.
type everybody struct{}

func (everybody) Name() string { return "Everybody" }

func (everybody) Begin(context.Context) (string, []byte, error) {
	return "https://id.example", []byte("nonce"), nil
}

func (everybody) Finish(context.Context, []byte, url.Values) (admin.Principal, error) {
	return admin.Principal{Issuer: "https://id.example", Subject: "eve", Role: admin.Admin}, nil
}

func (everybody) SignOut() string { return "" }

// TestSessionsOfOtherStores: servers with the same key take each other's sessions, and sign-ins that have begun, whatever their addresses;
// those of other stores or environments do not.
func TestSessionsOfOtherStores(t *testing.T) {
	t.Parallel()
	shop, err := webtest.New(t.Context(), false)
	must(t, err)
	key := make([]byte, 32)
	handler := func(name, environment, listen string) http.Handler {
		h, err := web.New(admin.New(shop, admin.Config{Name: name}), web.Config{
			Key: key, Listen: listen, Provider: everybody{}, Environment: web.Environment{Name: environment},
		})
		must(t, err)
		return h
	}
	get := func(h http.Handler, path string, cookies []*http.Cookie) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
		for _, c := range cookies {
			r.AddCookie(c)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Result()
	}
	const here, there = "10.0.0.7:8686", "10.0.0.8:8686"
	// named gives cookies the name that a server's own have, so that it opens them.
	named := func(h http.Handler, suffix string, cookies []*http.Cookie) (out []*http.Cookie) {
		own := strings.TrimSuffix(get(h, "/signin/begin", nil).Cookies()[0].Name, "-away")
		for _, c := range cookies {
			out = append(out, &http.Cookie{Name: own + suffix, Value: c.Value})
		}
		return out
	}
	mine := handler("shop", "Staging", here)
	begun := get(mine, "/signin/begin", nil).Cookies()
	var session []*http.Cookie
	for _, c := range get(mine, "/signin/callback", begun).Cookies() {
		if c.Value != "" {
			session = append(session, c)
		}
	}
	for name, tt := range map[string]struct {
		handler        http.Handler
		page, callback int
	}{
		"itself":              {mine, http.StatusOK, http.StatusSeeOther},
		"another process":     {handler("shop", "Staging", there), http.StatusOK, http.StatusSeeOther},
		"another store":       {handler("payments", "Staging", here), http.StatusSeeOther, http.StatusForbidden},
		"another environment": {handler("shop", "Production", here), http.StatusSeeOther, http.StatusForbidden},
	} {
		mySession, myBegun := session, begun
		if tt.page != http.StatusOK {
			mySession, myBegun = named(tt.handler, "", session), named(tt.handler, "-away", begun)
		}
		if r := get(tt.handler, "/dead", mySession); r.StatusCode != tt.page {
			t.Errorf("%s: a page: %d, want %d", name, r.StatusCode, tt.page)
		}
		if r := get(tt.handler, "/signin/callback", myBegun); r.StatusCode != tt.callback {
			t.Errorf("%s: the end of a sign-in: %d, want %d", name, r.StatusCode, tt.callback)
		}
	}
}

// TestCodesOfTwoServers: servers on one host with one key, whose sessions begin with codes, do not overwrite each other's. Signing in as
// somebody whose session both take replaces the one of the code.
func TestCodesOfTwoServers(t *testing.T) {
	t.Parallel()
	shop, err := webtest.New(t.Context(), false)
	must(t, err)
	jar := make(map[string]string) // of a browser, to which both servers are one host
	do := func(h http.Handler, method, path string, form url.Values) *http.Response {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		for name, value := range jar {
			r.AddCookie(&http.Cookie{Name: name, Value: value})
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		for _, c := range w.Result().Cookies() {
			if jar[c.Name] = c.Value; c.MaxAge < 0 {
				delete(jar, c.Name)
			}
		}
		return w.Result()
	}
	var servers []*web.Handler
	for _, listen := range []string{"127.0.0.1:8686", "127.0.0.1:8687"} {
		h, err := web.New(admin.New(shop, admin.Config{Name: "shop"}), web.Config{Key: make([]byte, 32), Listen: listen, Provider: everybody{}})
		must(t, err)
		code := h.IssueCode(admin.Principal{Subject: listen, Role: admin.Viewer})
		if r := do(h, http.MethodPost, "/signin", url.Values{"code": {code}}); r.StatusCode != http.StatusSeeOther {
			t.Fatalf("sign in at %s: %d", listen, r.StatusCode)
		}
		servers = append(servers, h)
	}
	want := func(server int, status int) {
		t.Helper()
		if r := do(servers[server], http.MethodGet, "/dead", nil); r.StatusCode != status {
			t.Errorf("a page of server %d: %d, want %d", server, r.StatusCode, status)
		}
	}
	want(0, http.StatusOK)
	want(1, http.StatusOK)
	do(servers[0], http.MethodPost, "/signout", nil)
	want(0, http.StatusSeeOther)
	want(1, http.StatusOK)
	do(servers[1], http.MethodGet, "/signin/begin", nil)
	do(servers[1], http.MethodGet, "/signin/callback", nil)
	want(0, http.StatusOK)
	do(servers[0], http.MethodPost, "/signout", nil)
	want(1, http.StatusSeeOther)
}
