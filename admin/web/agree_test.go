package web_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// nulls lists the places of null in a value.
func nulls(value any, at string) (out []string) {
	switch v := value.(type) {
	case nil:
		return []string{at}
	case map[string]any:
		for name, inner := range v {
			out = append(out, nulls(inner, at+"/"+name)...)
		}
	case []any:
		for n, inner := range v {
			out = append(out, nulls(inner, fmt.Sprintf("%s/%d", at, n))...)
		}
	}
	return out
}

// TestNothingIsNull: an answer of the API has an empty list or object where there is nothing, and no field for what is not there: of a shop
// with something of everything, and of a store with nothing.
func TestNothingIsNull(t *testing.T) {
	t.Parallel()
	p := admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin}
	check := func(h *web.Handler, path string, given map[string]string) {
		out, err := h.Read(t.Context(), p, path, given)
		if err != nil {
			t.Errorf("%s %v: %v", path, given, err)
			return
		}
		text, err := json.Marshal(out)
		must(t, err)
		var value any
		must(t, json.Unmarshal(text, &value))
		for _, at := range nulls(value, path) {
			t.Errorf("%s is null", at)
		}
	}
	s := serve(t, false, web.Config{}, rules)
	_, err := s.service.RedriveDead(t.Context(), p, 20, "")
	must(t, err)
	for _, read := range s.handler.Reads() {
		for _, given := range s.arguments(read.Path, p) {
			check(s.handler, read.Path, given)
		}
	}
	empty := memory.New(memory.Config{})
	must(t, empty.Enroll(t.Context(), "view"))
	h, err := web.New(admin.New(empty, admin.Config{Name: "shop"}), web.Config{})
	must(t, err)
	for _, path := range []string{"/status", "/doctor", "/held", "/dead", "/dead/causes", "/redrives", "/sagas", "/activity"} {
		check(h, path, nil)
	}
	check(h, "/relays/{relay}", map[string]string{"relay": "view"})
}

var (
	tags  = regexp.MustCompile(`<[^>]*>`)
	space = regexp.MustCompile(`[\s\x{00a0}]+`)
)

// text is what a page says.
func text(body string) string {
	_, body, _ = strings.Cut(body, "<body")
	return space.ReplaceAllString(html.UnescapeString(tags.ReplaceAllString(body, " ")), " ")
}

// answered is what the API answers about a relay.
type answered struct {
	Name                  string
	Status                string
	Waiting, Held, Parked store.Count
	Dead                  store.Count `json:"open_dead_letters"`
	HeldKeys              store.Count `json:"held_keys"`
	Oldest                float64     `json:"oldest_undelivered_seconds"`
	Processes             int
}

// read decodes an answer of the API.
func (s *site) read(p admin.Principal, path string, given map[string]string, into any) {
	s.t.Helper()
	out, err := s.handler.Read(s.t.Context(), p, path, given)
	must(s.t, err)
	body, err := json.Marshal(out)
	must(s.t, err)
	must(s.t, json.Unmarshal(body, into))
}

func says(t *testing.T, page, content string, parts ...string) {
	t.Helper()
	if want := space.ReplaceAllString(strings.Join(parts, " "), " "); !strings.Contains(content, want) {
		t.Errorf("%s does not say %q, as the API does", page, want)
	}
}

// agrees compares what the API says about a relay with its row on the overview, its page and its own answer.
func (s *site) agrees(p admin.Principal, r answered, overview string) {
	t := s.t
	row := regexp.MustCompile(`(?s)<tr[^>]*>(?:[^<]|<[^/]|</[^t]|</t[^r])*/relays/` + r.Name + `"(?:[^<]|<[^/]|</[^t]|</t[^r])*</tr>`).FindString(overview)
	row = text("<body" + row)
	says(t, "the row of "+r.Name, row, r.Status)
	says(t, "the row of "+r.Name, row, admin.Number(r.Waiting))
	if r.Dead.N > 0 {
		says(t, "the row of "+r.Name, row, admin.Number(r.Dead))
	}
	_, body := s.get(admin.RelayPath(r.Name))
	own := text(body)
	says(t, "the page of "+r.Name, own, "Waiting", admin.Number(r.Waiting))
	says(t, "the page of "+r.Name, own, "Held keys", admin.Number(r.HeldKeys))
	says(t, "the page of "+r.Name, own, "Dead letters", admin.Number(r.Dead))
	var alone struct {
		answered
		Held []store.HeldInfo
	}
	s.read(p, "/relays/{relay}", map[string]string{"relay": r.Name}, &alone)
	if alone.Status != r.Status || alone.Waiting != r.Waiting || alone.Dead != r.Dead || int64(len(alone.Held)) != r.HeldKeys.N {
		t.Errorf("%s is %+v in the status, and %+v by itself", r.Name, r, alone)
	}
}

// inMemory serves a browser without a network.
type inMemory struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (h inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	body := r.Body
	if body == nil {
		body = http.NoBody
	}
	served := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.RequestURI(), body)
	served.Header, served.Host = r.Header, r.URL.Host
	w := httptest.NewRecorder()
	h.ServeHTTP(w, served)
	return w.Result(), nil
}

// TestNumbersAgree: the overview, the pages of relays, dead letters and held keys, and the API say the same numbers and states. The clock
// stands meanwhile: what is said of a message that waits changes with every second.
func TestNumbersAgree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testNumbersAgree)
}

func testNumbersAgree(t *testing.T) {
	shop, err := webtest.New(t.Context(), false)
	must(t, err)
	s := &site{t: t, shop: shop, service: admin.New(shop, admin.Config{Name: "shop", Show: []admin.Rule{rules}}), url: "http://shop.test"}
	s.handler, err = web.New(s.service, web.Config{})
	must(t, err)
	s.browser = s.newBrowser()
	s.browser.Transport = inMemory{s.handler}
	s.signIn(admin.Viewer)
	p := admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Viewer}
	var status struct {
		Title    string
		Problems []admin.Problem
		Relays   []answered
		Dead     store.Count `json:"open_dead_letters"`
		Held     store.Count `json:"held_keys"`
	}
	s.read(p, "/status", nil, &status)
	_, body := s.get("/")
	overview := text(body)
	says(t, "the overview", overview, status.Title)
	for _, problem := range status.Problems {
		says(t, "the overview", overview, problem.Text)
		says(t, "the overview", overview, problem.Detail)
	}
	var dead, held int64
	for _, r := range status.Relays {
		dead, held = dead+r.Dead.N, held+r.HeldKeys.N
		s.agrees(p, r, body)
	}
	if dead != status.Dead.N || held != status.Held.N || dead == 0 || held == 0 {
		t.Errorf("relays have %d dead letters and %d held keys, the status has %d and %d", dead, held, status.Dead.N, status.Held.N)
	}
	var causes store.FoundCauses
	s.read(p, "/dead/causes", nil, &causes)
	_, list := s.get("/dead")
	var sum int64
	for _, c := range causes.Causes {
		sum += c.DeadLetters
	}
	says(t, "the list of causes", text(list), admin.Grouped(sum), "open dead letters")
	var page struct{ Total int64 }
	s.read(p, "/dead", nil, &page)
	if sum != dead || page.Total != dead {
		t.Errorf("%d open dead letters: by cause %d, in the list %d", dead, sum, page.Total)
	}
	var keys []store.HeldInfo
	s.read(p, "/held", nil, &keys)
	if int64(len(keys)) != held {
		t.Errorf("%d held keys, and %d in the list", held, len(keys))
	}
}
