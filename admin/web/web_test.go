package web_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/admin/web/webtest"
	"github.com/postrider/postrider/store/memory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a served administration, and a browser without scripts.
type site struct {
	t       *testing.T
	shop    *webtest.Shop
	service *admin.Service
	handler *web.Handler
	server  *httptest.Server
	browser *http.Client
	// url is the address of the overview, without the last slash.
	url string
}

func serve(t *testing.T, hostile bool, c web.Config, rules ...admin.Rule) *site {
	t.Helper()
	shop, err := webtest.New(t.Context(), hostile)
	must(t, err)
	s := serveService(t, admin.New(shop, admin.Config{Name: "shop", Show: rules}), c)
	s.shop = shop
	return s
}

// serveService serves the administration of another store than the shop.
func serveService(t *testing.T, service *admin.Service, c web.Config) *site {
	t.Helper()
	s := &site{t: t, service: service}
	var err error
	s.handler, err = web.New(s.service, c)
	must(t, err)
	s.server = httptest.NewServer(s.handler)
	t.Cleanup(s.server.Close)
	s.url = s.server.URL + c.Prefix
	s.browser = s.newBrowser()
	return s
}

func (s *site) newBrowser() *http.Client {
	jar, err := cookiejar.New(nil)
	must(s.t, err)
	return &http.Client{Jar: jar}
}

// signIn begins a session with a one-time code.
func (s *site) signIn(role admin.Role) *site {
	s.t.Helper()
	code := s.handler.IssueCode(admin.Principal{Subject: "anna", Role: role})
	if status, _ := s.post("/signin", url.Values{"code": {code}}); status != http.StatusOK {
		s.t.Fatalf("signing in: %d", status)
	}
	return s
}

func (s *site) get(path string) (status int, body string) {
	s.t.Helper()
	r, err := s.browser.Get(s.url + path)
	must(s.t, err)
	return read(s.t, r)
}

func (s *site) post(path string, form url.Values) (status int, body string) {
	s.t.Helper()
	r, err := s.browser.PostForm(s.url+path, form)
	must(s.t, err)
	return read(s.t, r)
}

func read(t *testing.T, r *http.Response) (int, string) {
	t.Helper()
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	must(t, err)
	return r.StatusCode, string(body)
}

var (
	rules   = admin.Rule{Type: "*", Show: []string{"/number", "/total", "/lines"}, Keys: admin.Viewer}
	links   = regexp.MustCompile(`(?:href|action)="([^"#]+)"`)
	markup  = regexp.MustCompile(`(?i)<script>|<img|onerror=alert\(1\)>`)
	numbers = regexp.MustCompile(`\d+|[0-9a-f]{8}-[0-9a-f-]+`)
	noValue = []string{"<no value>", "%!", "ZgotmplZ"}
)

// crawl gets all pages that are linked from the overview.
func (s *site) crawl() map[string]string {
	s.t.Helper()
	pages, kinds := map[string]string{}, map[string]int{}
	next := []string{"/", "/dead?view=all&state=any", "/held", "/messages?q=nothing", "/sagas?view=running", "/activity"}
	for len(next) > 0 {
		path := next[0]
		next = next[1:]
		if _, seen := pages[path]; seen || strings.Contains(path, "N") {
			continue
		}
		kind := numbers.ReplaceAllString(path, "N")
		if kinds[kind]++; kinds[kind] > 4 {
			continue
		}
		status, body := s.get(path)
		if status != http.StatusOK {
			s.t.Errorf("%s: status %d", path, status)
		}
		pages[path] = body
		for _, m := range links.FindAllStringSubmatch(body, -1) {
			link := strings.ReplaceAll(m[1], "&amp;", "&")
			prefix := strings.TrimPrefix(s.url, s.server.URL)
			if inside, ok := strings.CutPrefix(link, prefix+"/"); ok && !strings.Contains(link, "assets/") && !strings.Contains(link, "/signout") &&
				!strings.Contains(link, "/api/") && !isAction(body, m[0]) {
				next = append(next, "/"+inside)
			}
		}
	}
	return pages
}

func isAction(body, attribute string) bool {
	return strings.HasPrefix(attribute, "action") && strings.Contains(body, `method="post" `+attribute)
}

// TestEveryPage: all pages that the overview leads to can be shown, to every role, are small, and have nothing that rules hide from it.
func TestEveryPage(t *testing.T) {
	t.Parallel()
	for _, role := range admin.Roles {
		s := serve(t, false, web.Config{Prefix: "/postrider", Environment: web.Environment{Name: "Production", Tone: "production"}},
			admin.Rule{Type: "*", Show: rules.Show, Keys: aboveIt[role]}).signIn(role)
		pages := s.crawl()
		if len(pages) < 25 {
			t.Errorf("%s: only %d pages", role, len(pages))
		}
		for path, body := range pages {
			for _, found := range noValue {
				if strings.Contains(body, found) {
					t.Errorf("%s as %s has %s", path, role, found)
				}
			}
			if strings.Contains(body, webtest.Secret) {
				t.Errorf("%s as %s shows the secret", path, role)
			}
			if found := keyIn(path + body); found != "" && !strings.HasPrefix(path, "/help/") { // the manual has examples
				t.Errorf("%s as %s shows %s", path, role, found)
			}
			if len(body) > 60_000+strings.Count(body, "<tr>")*700 {
				t.Errorf("%s has %d bytes", path, len(body))
			}
			if strings.Contains(body, "style=") || strings.Contains(body, "onclick") {
				t.Errorf("%s has inline style or script", path)
			}
			if strings.Count(body, "<h1") != 1 {
				t.Errorf("%s has %d titles", path, strings.Count(body, "<h1"))
			}
		}
	}
}

// TestAssetsAreSmall: style sheet and script together have 30 KB at most.
func TestAssetsAreSmall(t *testing.T) {
	t.Parallel()
	size := int64(0)
	for _, name := range []string{"assets/style.css", "assets/script.js"} {
		file, err := os.Stat(name)
		must(t, err)
		size += file.Size()
	}
	if size > 30_000 {
		t.Errorf("they have %d bytes", size)
	}
}

// TestManyViewers: 200 people who look at the overview cost the store what one costs who looks at it every second.
func TestManyViewers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int64
		s := memory.New(memory.Config{Fault: func(_ string, done bool) error {
			if !done {
				calls.Add(1)
			}
			return nil
		}})
		must(t, s.Enroll(t.Context(), "view"))
		handler, err := web.New(admin.New(s, admin.Config{Name: "shop"}), web.Config{Authorizer: anybody{}})
		must(t, err)
		look := func() {
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)); w.Code != http.StatusOK {
				t.Errorf("status %d", w.Code)
			}
		}
		calls.Store(0)
		look()
		once := calls.Load()
		time.Sleep(5 * time.Second)
		calls.Store(0)
		const seconds = 60
		var viewers sync.WaitGroup
		for i := range 200 {
			viewers.Go(func() {
				time.Sleep(time.Duration(i) * 25 * time.Millisecond) // the script asks every five seconds
				for range seconds / 5 {
					look()
					time.Sleep(5 * time.Second)
				}
			})
		}
		viewers.Wait()
		if n := calls.Load(); once == 0 || n > once*(seconds+5) {
			t.Errorf("200 viewers made %d calls of the store in %d s, and one look makes %d", n, seconds, once)
		}
	})
}

// anybody is who signs in nowhere.
type anybody struct{}

func (anybody) Authorize(*http.Request) (admin.Principal, error) {
	return admin.Principal{Issuer: "test", Subject: "anna", Role: admin.Viewer}, nil
}

// TestHostileTexts: names, keys, causes, headers and payloads appear as text.
func TestHostileTexts(t *testing.T) {
	t.Parallel()
	s := serve(t, true, web.Config{}, admin.Rule{Type: "*", All: true, Headers: []string{"*"}, Keys: admin.Viewer}).signIn(admin.Admin)
	pages := s.crawl()
	for path, body := range pages {
		if found := markup.FindString(body); found != "" {
			t.Errorf("%s has %s", path, found)
		}
		for _, r := range []string{"\u202e", "\x1b", "\u200b"} {
			if i := strings.Index(strings.ReplaceAll(body, `value="`, ""), r); i >= 0 && !strings.Contains(path, "edit") {
				t.Errorf("%s has the character %q: …%q", path, r, body[max(0, i-60):min(len(body), i+20)])
			}
		}
	}
	if len(pages) < 25 {
		t.Errorf("only %d pages", len(pages))
	}
}
