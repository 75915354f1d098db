package web_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
)

// request sends a request with headers, and returns the answer without following redirects.
func (s *site) request(method, path, body string, headers map[string]string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url+path, strings.NewReader(body))
	must(s.t, err)
	for name, value := range headers {
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	browser := *s.browser
	browser.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	answer, err := browser.Do(r)
	must(s.t, err)
	s.t.Cleanup(func() { answer.Body.Close() })
	return answer
}

var form = map[string]string{"Content-Type": "application/x-www-form-urlencoded"}

func with(base map[string]string, pairs ...string) map[string]string {
	out := map[string]string{}
	for k, v := range base {
		out[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

// TestOtherSitesChangeNothing: a form or script of another site is refused, although the browser sends the cookie.
func TestOtherSitesChangeNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{Hosts: web.Loopback}).signIn(admin.Operator)
	for name, headers := range map[string]map[string]string{
		"another site":   with(form, "Sec-Fetch-Site", "cross-site"),
		"a sibling":      with(form, "Sec-Fetch-Site", "same-site"),
		"another origin": with(form, "Origin", "https://evil.example"),
		"no origin":      with(form, "Origin", "null"),
	} {
		for _, path := range []string{"/dead/1/discard", "/reviews", "/signout", "/signin", "/held/to-hook/order%2F42/decide"} {
			if r := s.request("POST", path, "reason=x&action=discard&code=x", headers); r.StatusCode != http.StatusForbidden {
				t.Errorf("%s, %s: %d", name, path, r.StatusCode)
			}
		}
		api := with(headers, "Content-Type", "application/json")
		if r := s.request("POST", "/api/v1/dead/1/discard", `{"reason": "x"}`, api); r.StatusCode != http.StatusForbidden {
			t.Errorf("%s, API: %d", name, r.StatusCode)
		}
	}
	if r := s.request("POST", "/api/v1/dead/1/discard", `{"reason": "x"}`, with(form)); r.StatusCode != http.StatusBadRequest {
		t.Errorf("a form at the API: %d", r.StatusCode)
	}
	if r := s.request("GET", "/", "", map[string]string{"Host": "evil.example"}); r.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("another host: %d", r.StatusCode)
	}
	for _, path := range []string{"/dead/1/discard", "/dead/1/redrive", "/reviews/x", "/redrives/1/cancel"} {
		if r := s.request("GET", path, "", nil); r.StatusCode != http.StatusNotFound && r.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("GET %s: %d", path, r.StatusCode)
		}
	}
	if l, err := deadletter.New(s.shop).ShowDead(t.Context(), 1); err != nil || l.State != store.DeadOpen {
		t.Errorf("dead letter 1 is %s, %v", l.State, err)
	}
}

func TestHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Viewer)
	for _, path := range []string{"/", "/dead", "/signin", "/nowhere", "/api/v1/status", "/api/v1/nowhere", "/dead/x"} {
		h := s.request("GET", path, "", nil).Header
		if !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") ||
			h.Get("Cache-Control") != "no-store" || h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s: %v", path, h)
		}
	}
	for _, c := range s.request("POST", "/signout", "", form).Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode {
			t.Errorf("cookie %+v", c)
		}
	}
}

// TestNoHTTPSForLoopback: a browser is not told to require HTTPS of every program on a loopback address.
func TestNoHTTPSForLoopback(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{Secure: true})
	for host, want := range map[string]bool{"localhost:8686": false, "127.0.0.1": false, "[::1]:8686": false, "postrider.example.org": true} {
		if got := s.request("GET", "/signin", "", map[string]string{"Host": host}).Header.Get("Strict-Transport-Security"); (got != "") != want {
			t.Errorf("%s: %q", host, got)
		}
	}
}

// unreadable is a shop whose store fails when a dead letter is read.
type unreadable struct{ admin.Store }

func (u unreadable) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	if op.Method == "ShowDead" {
		return errors.New("dial tcp 10.0.0.7:5432: connection refused")
	}
	return u.Store.View(ctx, op, do)
}

// TestStoreErrorsAreNotShown: the page of an edit that the store cannot take keeps the text, and does not show the error.
func TestStoreErrorsAreNotShown(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	var err error
	s.service = admin.New(unreadable{s.shop}, admin.Config{})
	s.handler, err = web.New(s.service, web.Config{})
	must(t, err)
	s.server.Config.Handler = s.handler
	s.signIn(admin.Operator)
	status, body := s.post("/dead/2/edit", url.Values{"payload": {`{"mine": 1}`}, "seen": {"0"}, "reason": {"x"}})
	if status != http.StatusServiceUnavailable || strings.Contains(body, "10.0.0.7") || !strings.Contains(body, "mine") || !strings.Contains(body, "The store cannot be") {
		t.Errorf("%d\n%s", status, body)
	}
}

// TestErrorsKeepTheNavigation: the page of an error leads on, also while the store cannot be read; to nobody who is not signed in.
func TestErrorsKeepTheNavigation(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	var err error
	s.service = admin.New(unreadable{s.shop}, admin.Config{})
	s.handler, err = web.New(s.service, web.Config{})
	must(t, err)
	s.server.Config.Handler = s.handler
	const link = `<a href="/dead"`
	if status, body := s.get("/nowhere"); status != http.StatusNotFound || strings.Contains(body, link) {
		t.Errorf("to somebody not signed in: %d\n%s", status, body)
	}
	s.signIn(admin.Viewer)
	for path, want := range map[string]int{
		"/nowhere": http.StatusNotFound, "/dead/x": http.StatusBadRequest, "/redrives/4711": http.StatusNotFound, "/dead/2": http.StatusServiceUnavailable,
	} {
		if status, body := s.get(path); status != want || !strings.Contains(body, link) || !strings.Contains(body, "anna") {
			t.Errorf("%s: %d\n%s", path, status, body)
		}
	}
	if status, body := s.post("/dead/2/discard", url.Values{"reason": {"x"}}); status != http.StatusForbidden || !strings.Contains(body, link) {
		t.Errorf("an action of a larger role: %d\n%s", status, body)
	}
}

// TestSessions: a code signs in once; a session ends when somebody signs out, also where its cookie was copied to.
func TestSessions(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	if r := s.request("GET", "/dead?view=all", "", nil); r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != "/signin?return_to=%2Fdead%3Fview%3Dall" {
		t.Errorf("signed out: %d to %s", r.StatusCode, r.Header.Get("Location"))
	}
	if r := s.request("GET", "/", "", map[string]string{"Postrider-Part": "1"}); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a part while signed out: %d", r.StatusCode)
	}
	code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Viewer})
	if status, body := s.get("/signin?code=" + code); status != http.StatusOK || !strings.Contains(body, code) { // a preview of the link
		t.Errorf("the link: %d", status)
	}
	for back, want := range map[string]string{
		"//evil.example": "/", `/\evil.example`: "/", "https://evil.example": "/", "/dead": "/dead", "/dead\r\nX: y": "/", "": "/",
	} {
		code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Viewer})
		r := s.request("POST", "/signin", url.Values{"code": {code}, "return_to": {back}}.Encode(), form)
		if r.StatusCode != http.StatusSeeOther || r.Header.Get("Location") != want {
			t.Errorf("return to %q: %d to %q", back, r.StatusCode, r.Header.Get("Location"))
		}
	}
	first := s.request("POST", "/signin", url.Values{"code": {code}}.Encode(), form).Cookies()
	if len(first) != 1 {
		t.Fatalf("cookies: %v", first)
	}
	if r := s.request("POST", "/signin", url.Values{"code": {code}}.Encode(), form); r.StatusCode != http.StatusForbidden {
		t.Errorf("the code a second time: %d", r.StatusCode)
	}
	s.browser = s.newBrowser()
	cookie := map[string]string{"Cookie": first[0].Name + "=" + first[0].Value}
	if r := s.request("GET", "/", "", cookie); r.StatusCode != http.StatusOK {
		t.Errorf("with the cookie: %d", r.StatusCode)
	}
	raw, err := base64.RawURLEncoding.DecodeString(first[0].Value)
	must(t, err)
	for i := range raw {
		changed := slices.Clone(raw)
		changed[i] ^= 1
		if r := s.request("GET", "/", "", map[string]string{"Cookie": first[0].Name + "=" + base64.RawURLEncoding.EncodeToString(changed)}); r.StatusCode != http.StatusSeeOther {
			t.Fatalf("with byte %d of the cookie changed: %d", i, r.StatusCode)
		}
	}
	other, err := web.New(s.service, web.Config{})
	must(t, err)
	s.server.Config.Handler = other // another process with the same store
	if r := s.request("GET", "/", "", cookie); r.StatusCode != http.StatusSeeOther {
		t.Errorf("at another process: %d", r.StatusCode)
	}
	s.server.Config.Handler = s.handler
	if r := s.request("POST", "/signout", "", with(form, "Cookie", cookie["Cookie"])); r.StatusCode != http.StatusSeeOther {
		t.Errorf("sign out: %d", r.StatusCode)
	}
	if r := s.request("GET", "/", "", cookie); r.StatusCode != http.StatusSeeOther {
		t.Errorf("with the cookie after signing out: %d", r.StatusCode)
	}
}

func TestCodesEndAfterManyGuesses(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Admin})
	for i := range 25 {
		s.request("POST", "/signin", url.Values{"code": {fmt.Sprint("guess", i)}}.Encode(), form)
	}
	if r := s.request("POST", "/signin", url.Values{"code": {code}}.Encode(), form); r.StatusCode != http.StatusForbidden {
		t.Errorf("after 25 guesses, the code signs in: %d", r.StatusCode)
	}
}

// TestTokensAreNoGuesses: signing in with access tokens, valid or not, does not end codes.
func TestTokensAreNoGuesses(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Viewer})
	token, _, err := s.service.CreateToken(t.Context(), admin.Principal{Subject: "ada", Role: admin.Admin}, "ci", admin.Viewer, nil, admin.UsePeople, time.Hour)
	must(t, err)
	for range 25 {
		if r := s.request("POST", "/signin", url.Values{"code": {token}}.Encode(), form); r.StatusCode != http.StatusSeeOther {
			t.Fatalf("the token: %d", r.StatusCode)
		}
	}
	if r := s.request("POST", "/signin", url.Values{"code": {code}}.Encode(), form); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the code after 25 tokens: %d", r.StatusCode)
	}
}

// TestSignInIsSmall: a large body is not read before somebody has signed in.
func TestSignInIsSmall(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{})
	code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: admin.Viewer})
	large := url.Values{"code": {code}, "more": {strings.Repeat("x", 20<<10)}}.Encode()
	if r := s.request("POST", "/signin", large, form); r.StatusCode != http.StatusForbidden {
		t.Errorf("a large form: %d", r.StatusCode)
	}
	if r := s.request("POST", "/signin", url.Values{"code": {code}}.Encode(), form); r.StatusCode != http.StatusSeeOther {
		t.Errorf("the code: %d", r.StatusCode)
	}
}

// TestViewersChangeNothing: what pages leave out is refused too.
func TestViewersChangeNothing(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}).signIn(admin.Viewer)
	for _, path := range []string{
		"/dead/1/discard", "/dead/1/redrive", "/dead/1/edit", "/dead/1/reveal", "/reviews/x", "/redrives/1/cancel", "/held/to-hook/order%2F42/decide",
		"/relays/payments/pause", "/relays/payments/resume", "/sagas/fulfilment-4711/operate",
	} {
		status, body := s.post(path, url.Values{"reason": {"x"}, "verb": {"skip"}, "digest": {"x"}, "for": {"1h"}})
		if status != http.StatusForbidden || !strings.Contains(body, "role") {
			t.Errorf("%s: %d", path, status)
		}
	}
	if _, body := s.get("/dead/1"); strings.Contains(body, "<pre tabindex=\"0\">{") || strings.Contains(body, `action="/dead/1/`) {
		t.Error("a viewer sees a payload, or a form")
	}
}

type embedding struct{ p admin.Principal }

func (e embedding) Authorize(r *http.Request) (admin.Principal, error) {
	if r.Header.Get("Host-Session") == "" {
		return admin.Principal{}, errors.New("not signed in")
	}
	return e.p, nil
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{Prefix: "/ops/postrider", Authorizer: embedding{admin.Principal{Issuer: "host", Subject: "u1", Role: admin.Operator}}})
	for path, want := range map[string]int{"/": 401, "/api/v1/status": 401, "/signin": 404} {
		if r := s.request("GET", path, "", nil); r.StatusCode != want {
			t.Errorf("%s without a session: %d, want %d", path, r.StatusCode, want)
		}
	}
	if r := s.request("GET", "/", "", map[string]string{"Host-Session": "1"}); r.StatusCode != http.StatusOK {
		t.Errorf("with a session: %d", r.StatusCode)
	}
	nobody := serve(t, false, web.Config{Authorizer: embedding{}})
	if r := nobody.request("GET", "/", "", map[string]string{"Host-Session": "1"}); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a principal without a subject: %d", r.StatusCode)
	}
}

// TestIncidentWithoutScripts: from the cause to the redrive with forms alone. A second click starts nothing twice.
func TestIncidentWithoutScripts(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, rules).signIn(admin.Operator)
	causes, err := s.service.Causes(t.Context(), admin.Principal{Subject: "x", Role: admin.Viewer}, webtest.Open, 10)
	must(t, err)
	c := causes.Causes[0]
	status, body := s.post("/reviews", url.Values{"relay": {c.Relay}, "type": {c.Type}, "fingerprint": {c.Fingerprint}, "action": {"redrive"}})
	if status != http.StatusOK || !strings.Contains(body, "Redrive 200 dead letters?") {
		t.Fatalf("review: %d\n%s", status, body)
	}
	_, rest, _ := strings.Cut(body, `name="digest" value="`)
	digest, _, _ := strings.Cut(rest, `"`)
	_, rest, _ = strings.Cut(body, `action="/reviews/`)
	id, _, _ := strings.Cut(rest, `"`)
	if status, body := s.post("/reviews/"+id, url.Values{"digest": {digest}, "rate": {"0"}}); status != http.StatusBadRequest || !strings.Contains(body, "rate") {
		t.Errorf("a rate of 0: %d", status)
	}
	if status, _ := s.post("/reviews/"+id, url.Values{"digest": {digest}, "rate": {"50"}}); status != http.StatusBadRequest {
		t.Errorf("without a reason: %d", status)
	}
	for range 2 {
		status, body = s.post("/reviews/"+id, url.Values{"digest": {digest}, "rate": {"50"}, "reason": {"receiver fixed"}})
		if status != http.StatusOK || !strings.Contains(body, "Redrive 1 is running") {
			t.Fatalf("redrive: %d\n%s", status, body)
		}
	}
	must(t, s.shop.Step(t.Context()))
	if _, body := s.get("/redrives/1"); !strings.Contains(body, "of 200 sent") {
		t.Errorf("progress:\n%s", body)
	}
	if _, body := s.get("/activity"); !strings.Contains(body, "receiver fixed") {
		t.Error("the activity has no reason")
	}
	n := 0
	for range deadletter.New(s.shop).ListRedrives(t.Context(), "") {
		n++
	}
	if n != 1 {
		t.Errorf("%d redrives were started", n)
	}
}

func TestHeldKeyAndEdit(t *testing.T) {
	t.Parallel()
	s := serve(t, false, web.Config{}, rules).signIn(admin.Operator)
	path := admin.HeldPath("to-hook", s.shop.Held)
	if status, body := s.get(path); status != http.StatusOK || !strings.Contains(body, "2 more messages wait after it") {
		t.Errorf("held key: %d\n%s", status, body)
	}
	if status, _ := s.post(path+"/decide", url.Values{"verb": {"skip"}}); status != http.StatusBadRequest {
		t.Errorf("skip without a reason: %d", status)
	}
	if status, body := s.post(path+"/decide", url.Values{"verb": {"dead"}, "message": {"another"}, "reason": {"x"}}); status != http.StatusConflict {
		t.Errorf("a decision about another message: %d %s", status, body)
	}
	for _, verb := range []string{"skip", "dead", "dead-all"} {
		if status, body := s.post(path+"/decide", url.Values{"verb": {verb}, "reason": {"x"}}); status != http.StatusBadRequest || !strings.Contains(body, "message_id") {
			t.Errorf("%s of whatever blocks the key: %d", verb, status)
		}
	}
	h, _, err := s.service.HeldKey(t.Context(), admin.Principal{Subject: "x", Role: admin.Viewer}, "to-hook", s.shop.Held, 0)
	must(t, err)
	if status, _ := s.post(path+"/decide", url.Values{"verb": {"dead-all"}, "message": {h.MessageID}, "reason": {"broken"}}); status != http.StatusOK {
		t.Errorf("dead-letter all: %d", status)
	}
	_, body := s.get("/dead/2/edit")
	if strings.Contains(body, webtest.Secret) || !strings.Contains(body, "hidden value of /customer") {
		t.Error("the editor shows the secret, or no marker")
	}
	text, edits, err := s.service.Content(t.Context(), admin.Principal{Subject: "x", Role: admin.Operator}, 2)
	must(t, err)
	text = strings.Replace(text, `"total":-3`, `"total":3`, 1)
	status, body := s.post("/dead/2/edit", url.Values{"payload": {text}, "seen": {fmt.Sprint(edits)}, "reason": {"right total"}})
	if status != http.StatusOK || !strings.Contains(body, "right total") {
		t.Errorf("edit: %d", status)
	}
	if status, body := s.post("/dead/2/edit", url.Values{"payload": {text}, "seen": {fmt.Sprint(edits)}, "reason": {"again"}}); status != http.StatusConflict || !strings.Contains(body, "Not saved.") {
		t.Errorf("an edit of an older version: %d", status)
	}
}
