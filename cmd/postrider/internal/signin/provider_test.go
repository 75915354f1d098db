package signin_test

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
	"github.com/postrider/postrider/cmd/postrider/internal/signin"
	"github.com/postrider/postrider/store/memory"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// provider is an OpenID provider at which everybody is anna. A test changes what it says.
type provider struct {
	*httptest.Server
	key *rsa.PrivateKey

	mu        sync.Mutex
	algorithm string
	claims    map[string]any    // in addition to, and instead of, the usual ones
	answer    map[string]string // likewise, parameters of the address at which the browser comes back
	used      map[string]url.Values
	down      bool
	refuses   string // the error of the token endpoint
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	p := &provider{key: key, algorithm: "RS256", used: make(map[string]url.Values)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		p.write(w, map[string]any{
			"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
			"end_session_endpoint": p.URL + "/end", "authorization_response_iss_parameter_supported": true,
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		n, e := base64.RawURLEncoding.EncodeToString(key.N.Bytes()), base64.RawURLEncoding.EncodeToString(big.NewInt(int64(key.E)).Bytes())
		p.write(w, map[string]any{"keys": []any{map[string]any{"kty": "RSA", "use": "sig", "alg": "RS256", "kid": "1", "n": n, "e": e}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.token)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *provider) write(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// authorize sends the browser back with a code.
func (p *provider) authorize(w http.ResponseWriter, r *http.Request) {
	code := rand.Text()
	p.used[code] = r.URL.Query()
	back := url.Values{"code": {code}, "state": {r.URL.Query().Get("state")}, "iss": {p.URL}}
	for name, value := range p.answer {
		if back.Set(name, value); value == "" {
			back.Del(name)
		}
	}
	http.Redirect(w, r, r.URL.Query().Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

// token exchanges a code, once, for an ID token.
func (p *provider) token(w http.ResponseWriter, r *http.Request) {
	if p.refuses != "" {
		w.Header().Set("Content-Type", "application/json")
		status := http.StatusBadRequest
		if p.refuses == "slow_down" {
			status = http.StatusTooManyRequests
		}
		w.WriteHeader(status)
		p.write(w, map[string]any{"error": p.refuses})
		return
	}
	asked := p.used[r.PostFormValue("code")]
	delete(p.used, r.PostFormValue("code"))
	sum := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if asked == nil || asked.Get("code_challenge") != base64.RawURLEncoding.EncodeToString(sum[:]) {
		w.WriteHeader(http.StatusBadRequest)
		p.write(w, map[string]any{"error": "invalid_grant"})
		return
	}
	claims := map[string]any{
		"iss": p.URL, "aud": "postrider", "sub": "248289761001", "name": "Anna", "nonce": asked.Get("nonce"), "groups": []string{"sre"},
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	}
	maps.Copy(claims, p.claims)
	p.write(w, map[string]any{"access_token": "a", "token_type": "Bearer", "id_token": p.sign(claims)})
}

func (p *provider) sign(claims map[string]any) string {
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]string{"alg": p.algorithm, "kid": "1"}) + "." + part(claims)
	sum := sha256.Sum256([]byte(text))
	signature, _ := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	return text + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// says has the provider say something else until the test of it ends.
func (p *provider) says(algorithm string, claims map[string]any, answer map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.algorithm, p.claims, p.answer = algorithm, claims, answer
}

func (p *provider) setDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

// operations are the groups that may do something.
var operations = signin.Access{Claim: "groups", Roles: map[string]admin.Role{"sre": admin.Operator, "platform": admin.Admin}}

// serve serves an administration at which people sign in at a provider.
func serve(t *testing.T, p *provider, access signin.Access) string {
	t.Helper()
	return serveLogging(t, p, access, nil)
}

func serveLogging(t *testing.T, p *provider, access signin.Access, logger *slog.Logger) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	address := "http://" + server.Listener.Addr().String()
	at, err := signin.New(signin.Config{Issuer: p.URL, ClientID: "postrider", Secret: "s", Redirect: address + "/signin/callback", Name: "Example", Access: access})
	must(t, err)
	handler, err := web.New(admin.New(memory.New(memory.Config{}), admin.Config{Name: "shop"}), web.Config{Provider: at, Logger: logger})
	must(t, err)
	server.Config.Handler = handler
	server.Start()
	t.Cleanup(server.Close)
	return address
}

// browser has cookies.
func browser(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	return &http.Client{Jar: jar}
}

func get(t *testing.T, c *http.Client, address string) (status int, body string, at *url.URL) {
	t.Helper()
	r, err := c.Get(address)
	must(t, err)
	text, err := io.ReadAll(r.Body)
	must(t, err)
	must(t, r.Body.Close())
	return r.StatusCode, string(text), r.Request.URL
}

// me is who the browser is signed in as.
func me(t *testing.T, c *http.Client, address string) (name string, role admin.Role) {
	t.Helper()
	status, body, _ := get(t, c, address+"/api/v1/me")
	var who struct {
		Name string     `json:"name"`
		Role admin.Role `json:"role"`
	}
	if status == http.StatusOK {
		must(t, json.Unmarshal([]byte(body), &who))
	}
	return who.Name, who.Role
}

// TestSignIn: the button leads to the provider and back to the page that somebody wanted to see; the session survives an outage of the
// provider; signing out offers to sign out there too.
func TestSignIn(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	address, c := serve(t, p, operations), browser(t)
	if status, body, at := get(t, c, address+"/dead"); status != http.StatusOK || at.Path != "/signin" || !strings.Contains(body, "Sign in with Example") ||
		!strings.Contains(body, `href="/signin/begin?return_to=%2fdead"`) && !strings.Contains(body, `href="/signin/begin?return_to=%2Fdead"`) {
		t.Errorf("%d at %s:\n%s", status, at, body)
	}
	if status, _, at := get(t, c, address+"/signin/begin?return_to=%2Fdead"); status != http.StatusOK || at.Path != "/dead" {
		t.Errorf("%d at %s", status, at)
	}
	if name, role := me(t, c, address); name != "Anna" || role != admin.Operator {
		t.Errorf("signed in as %s, %s", name, role)
	}
	p.setDown(true)
	if name, _ := me(t, c, address); name != "Anna" {
		t.Error("the session ends with the provider")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address+"/signout", nil)
	must(t, err)
	r, err := c.Do(request)
	must(t, err)
	body, err := io.ReadAll(r.Body)
	must(t, err)
	must(t, r.Body.Close())
	if !strings.Contains(string(body), p.URL+"/end") {
		t.Errorf("signed out, without the link of the provider:\n%s", body)
	}
	if name, _ := me(t, c, address); name != "" {
		t.Error("the session goes on")
	}
	for _, to := range []string{"//evil.example", `/\evil.example`, "https://evil.example"} {
		p.setDown(false)
		if _, _, at := get(t, browser(t), address+"/signin/begin?"+url.Values{"return_to": {to}}.Encode()); !strings.HasPrefix(at.String(), address) {
			t.Errorf("%s leads to %s", to, at)
		}
	}
}

// TestProviderIsDown: when the program starts, and when somebody signs in. It is asked again.
func TestProviderIsDown(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.setDown(true)
	address, c := serve(t, p, operations), browser(t)
	if status, body, _ := get(t, c, address+"/signin/begin"); status != http.StatusServiceUnavailable || !strings.Contains(body, "Nobody can sign in with Example now") {
		t.Errorf("%d:\n%s", status, body)
	}
	p.setDown(false)
	get(t, c, address+"/signin/begin")
	if name, _ := me(t, c, address); name != "Anna" {
		t.Error("the provider is not asked again")
	}
}

// TestRefusedAnswers: answers of another sign-in, of another provider, for another program, without a role, or not signed as agreed.
func TestRefusedAnswers(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	address := serve(t, p, operations)
	for name, answer := range map[string]struct {
		algorithm string
		claims    map[string]any
		back      map[string]string
	}{
		"another state":            {back: map[string]string{"state": "x"}},
		"another provider":         {back: map[string]string{"iss": "https://evil.example"}},
		"no provider":              {back: map[string]string{"iss": ""}},
		"another code":             {back: map[string]string{"code": "x"}},
		"an error":                 {back: map[string]string{"error": "access_denied", "error_description": "<script>alert(1)</script>"}},
		"another nonce":            {claims: map[string]any{"nonce": "x"}},
		"another issuer":           {claims: map[string]any{"iss": "https://evil.example"}},
		"another program":          {claims: map[string]any{"aud": "other"}},
		"another authorized party": {claims: map[string]any{"aud": []string{"postrider", "other"}, "azp": "other"}},
		"several programs":         {claims: map[string]any{"aud": []string{"postrider", "other"}}},
		"expired":                  {claims: map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}},
		"no person":                {claims: map[string]any{"sub": ""}},
		"no group":                 {claims: map[string]any{"groups": []string{"sales"}}},
		"groups left out":          {claims: map[string]any{"groups": nil, "_claim_names": map[string]any{"groups": "src1"}}},
		"a secret as the key":      {algorithm: "HS256"},
		"no signature":             {algorithm: "none"},
	} {
		if answer.algorithm == "" {
			answer.algorithm = "RS256"
		}
		p.says(answer.algorithm, answer.claims, answer.back)
		c := browser(t)
		status, body, _ := get(t, c, address+"/signin/begin")
		if who, _ := me(t, c, address); who != "" || status < 400 || strings.Contains(body, "<script>alert") {
			t.Errorf("%s: %d, signed in as %q:\n%s", name, status, who, body)
		}
	}
	p.says("RS256", map[string]any{"exp": time.Now().Add(-5 * time.Second).Unix()}, nil)
	c := browser(t)
	get(t, c, address+"/signin/begin")
	if who, _ := me(t, c, address); who != "Anna" {
		t.Error("a clock that differs by seconds is not tolerated")
	}
}

// TestAnswersAreGoodOnce: neither a second use of an address, nor its use in another browser, signs in.
func TestAnswersAreGoodOnce(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	address, c := serve(t, p, operations), browser(t)
	var back string
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/signin/callback" {
			back = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	get(t, c, address+"/signin/begin")
	other := browser(t)
	if status, _, _ := get(t, other, back); status != http.StatusForbidden {
		t.Errorf("in another browser: %d", status)
	}
	c.CheckRedirect = nil
	get(t, c, back)
	if who, _ := me(t, c, address); who != "Anna" {
		t.Fatal("it does not sign in")
	}
	if status, _, _ := get(t, c, back); status != http.StatusForbidden {
		t.Errorf("a second time: %d", status)
	}
}

// TestAccess: the largest role of the groups; everyone is a viewer only with a claim that says who everyone is.
func TestAccess(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	everyone := signin.Access{
		Claim: "realm_access.roles", Roles: operations.Roles, Everyone: true, Allow: map[string]string{"hd": "example.org"},
		SagaRoles: map[string]string{"accounting": "finance", "board": "finance", "lawyers": "legal"},
	}
	address := serve(t, p, everyone)
	in := func(groups ...string) map[string]any {
		return map[string]any{"hd": "example.org", "realm_access": map[string]any{"roles": groups}}
	}
	for name, tt := range map[string]struct {
		claims    map[string]any
		role      admin.Role
		sagaRoles string
	}{
		"of another place":   {map[string]any{"hd": "evil.example", "realm_access": map[string]any{"roles": "sre"}}, "", ""},
		"without a group":    {map[string]any{"hd": "example.org"}, admin.Viewer, ""},
		"with two groups":    {in("platform", "sre"), admin.Admin, ""},
		"with one saga role": {in("accounting", "sre", "board"), admin.Operator, "finance"},
		"with two":           {in("lawyers", "finance", "accounting"), admin.Viewer, "finance legal"},
	} {
		p.says("RS256", tt.claims, nil)
		c := browser(t)
		get(t, c, address+"/signin/begin")
		if _, role := me(t, c, address); role != tt.role {
			t.Errorf("%s: %q, want %q", name, role, tt.role)
		}
		_, body, _ := get(t, c, address+"/api/v1/me")
		var who struct {
			Roles []string `json:"saga_roles"`
		}
		if must(t, json.Unmarshal([]byte(body), &who)); strings.Join(who.Roles, " ") != tt.sagaRoles {
			t.Errorf("%s: saga roles %q, want %q", name, who.Roles, tt.sagaRoles)
		}
	}
	good := signin.Config{Issuer: "https://id.example.org", ClientID: "postrider", Redirect: "https://ops.example.org/signin/callback", Access: operations}
	for name, change := range map[string]func(*signin.Config){
		"everyone, without a claim": func(c *signin.Config) { c.Access = signin.Access{Everyone: true} },
		"nobody":                    func(c *signin.Config) { c.Access = signin.Access{} },
		"an unknown role":           func(c *signin.Config) { c.Access.Roles = map[string]admin.Role{"sre": "boss"} },
		"an empty saga role":        func(c *signin.Config) { c.Access.SagaRoles = map[string]string{"accounting": " "} },
		"a saga role too long":      func(c *signin.Config) { c.Access.SagaRoles = map[string]string{"accounting": strings.Repeat("x", 257)} },
		"a saga role of no text":    func(c *signin.Config) { c.Access.SagaRoles = map[string]string{"accounting": "fin\xffance"} },
		"a saga role, and no claim": func(c *signin.Config) {
			c.Access = signin.Access{Everyone: true, Allow: map[string]string{"hd": "example.org"}, SagaRoles: map[string]string{"accounting": "finance"}}
		},
		"an issuer without TLS": func(c *signin.Config) { c.Issuer = "http://id.example.org" },
		"no client":             func(c *signin.Config) { c.ClientID = "" },
	} {
		c := good
		change(&c)
		if _, err := signin.New(c); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := signin.New(good); err != nil {
		t.Error(err)
	}
}
