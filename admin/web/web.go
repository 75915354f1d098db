// Package web serves the administration of an outbox as pages for people and as an HTTP API for programs.
//
//	handler, err := web.New(service, web.Config{Prefix: "/postrider", Authorizer: mine})
//	mux.Handle("/postrider/", handler)
//
// Without a [Config.Authorizer], people sign in with an access token, or with a code that [Handler.IssueCode] returns. There is no
// setting that turns signing in off.
//
// Every page and action works without JavaScript. Pages load nothing from other hosts, and contain no inline script or style.
package web

import (
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/admin"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed assets
var assetFiles embed.FS

// Authorizer says who a request is from, for a program that has its own way to sign in. An error, or a principal without a Subject,
// is answered with 401.
type Authorizer interface {
	Authorize(*http.Request) (admin.Principal, error)
}

// Environment is the badge of every page.
type Environment struct {
	// Name is a word such as "Production". With Tone "production" it is filled.
	Name, Tone string
}

// Config configures New.
type Config struct {
	// Prefix is the path of the overview, "" or for example "/postrider".
	Prefix string
	// Hosts are the host names, without ports, that requests may name; none means any. Restrict them on loopback addresses:
	// a page of another site can have its own name point there.
	Hosts []string
	// Authorizer replaces the sign-in page.
	Authorizer Authorizer
	// Provider, if not nil, is one more way to sign in, next to access tokens and codes.
	Provider Provider
	// Key seals sessions: 32 bytes, the same for all processes that share sessions. Without one, sessions end with the process. A session is
	// good for one store (admin.Config.Name) in one Environment, whoever else has the key.
	Key []byte
	// Listen is the address of the server; it keeps the cookies of several servers without a Key on one host apart.
	Listen string
	// Secure restricts cookies to HTTPS.
	Secure      bool
	Environment Environment
	// Version is shown in the footer.
	Version string
	// Mount are further handlers, by their path below Prefix, such as "/mcp". Their requests and answers get the checks and headers of
	// pages; they find out by themselves who asks.
	Mount map[string]http.Handler
	// Target is what pages show as the target of relays. Default: 1 minute.
	Target time.Duration
	Logger *slog.Logger
}

// Handler serves pages and API.
type Handler struct {
	service  *admin.Service
	cfg      Config
	base     *template.Template
	sets     map[string]*template.Template
	assets   map[string]asset
	sessions sessions
	serve    http.Handler
}

type asset struct {
	path, kind string
	content    []byte
}

// New returns the handler.
func New(service *admin.Service, c Config) (*Handler, error) {
	c.Prefix = strings.TrimRight(c.Prefix, "/")
	if c.Prefix != "" && (!strings.HasPrefix(c.Prefix, "/") || strings.ContainsAny(c.Prefix, "{}?#")) {
		return nil, fmt.Errorf("the prefix %q is not a path; it begins with /", c.Prefix)
	}
	if c.Target <= 0 {
		c.Target = time.Minute
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	h := &Handler{service: service, cfg: c, assets: make(map[string]asset)}
	var err error
	if h.sessions, err = newSessions(c, service.Name()); err != nil {
		return nil, err
	}
	// The content of a page is another template in each set; the first one is only for parsing.
	base, err := template.New("").Funcs(h.functions()).Parse(`{{define "content"}}{{end}}`)
	if err == nil {
		base, err = base.ParseFS(templateFiles, "templates/*.html")
	}
	if err == nil {
		h.base, err = base.Clone()
	}
	if err == nil {
		h.sets, err = h.compile(base, pageNames)
	}
	if err != nil {
		return nil, fmt.Errorf("read the templates: %w", err)
	}
	if err := h.loadAssets(); err != nil {
		return nil, err
	}
	h.serve = h.secured(h.routes())
	return h, nil
}

var kinds = map[string]string{"css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}

// loadAssets gives each asset a path with a hash of its content, so that browsers can keep it.
func (h *Handler) loadAssets() error {
	return fs.WalkDir(assetFiles, "assets", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		content, err := assetFiles.ReadFile(path)
		if err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		h.assets[d.Name()] = asset{"/assets/" + hex.EncodeToString(sum[:6]) + "/" + d.Name(), kinds[path[len(path)-3:]], content}
		return nil
	})
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.serve.ServeHTTP(w, r) }

// policy forbids everything that pages do not need.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; " +
	"base-uri 'none'; frame-ancestors 'none'"

// pageNames are the templates that are the content of a page.
var pageNames = []string{
	"overview", "relay", "held", "heldkey", "dead", "deadall", "group", "deadletter", "edit", "reveal", "review", "redrive", "message", "find",
	"keypage", "sagas", "saga", "health", "activity", "help", "doc", "error",
}

// maxBody is the largest body of a request, in bytes.
const maxBody = 4 << 20

// secured checks where a request comes from, and sets the headers of every answer.
func (h *Handler) secured(next http.Handler) http.Handler {
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.fail(w, r, http.StatusForbidden, "This request comes from another site, so it was refused.")
	}))
	inner := protection.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("X-Frame-Options", "DENY")
		header.Set("Referrer-Policy", "same-origin")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		// A browser would require HTTPS of all programs on a loopback address.
		if h.cfg.Secure && !slices.Contains(Loopback, hostName(r)) {
			header.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if len(h.cfg.Hosts) > 0 && !slices.Contains(h.cfg.Hosts, hostName(r)) {
			http.Error(w, "This host name is not served here.", http.StatusMisdirectedRequest)
			return
		}
		if !readable(r.URL) {
			h.fail(w, r, http.StatusBadRequest, "The address has text that no message can have.")
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		inner.ServeHTTP(w, r)
	})
}

// readable reports whether all texts of an address are UTF-8 without U+0000: databases refuse others.
func readable(u *url.URL) bool {
	query, err := url.ParseQuery(u.RawQuery)
	texts := []string{u.Path}
	for name, values := range query {
		texts = append(append(texts, name), values...)
	}
	return err == nil && !slices.ContainsFunc(texts, func(text string) bool { return !utf8.ValidString(text) || strings.ContainsRune(text, 0) })
}

// hostName is the host that a request names, without its port.
func hostName(r *http.Request) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

// Loopback are the hosts of a server on a loopback address.
var Loopback = []string{"localhost", "127.0.0.1", "::1"}

// routes is the mux of pages and API.
func (h *Handler) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, f http.HandlerFunc) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+h.cfg.Prefix+path, f)
	}
	handle("GET /assets/{hash}/{name}", h.asset)
	handle("GET /signin", h.showSignIn)
	handle("POST /signin", h.signIn)
	handle("GET /signin/begin", h.beginSignIn)
	handle("GET /signin/callback", h.endSignIn)
	handle("POST /signout", h.signOut)
	for pattern, f := range h.pageRoutes() {
		handle(pattern, h.signedIn(f))
	}
	for pattern, f := range h.actionRoutes() {
		handle(pattern, h.signedIn(f))
	}
	for _, route := range h.api() {
		handle(route.method+" /api/v1"+route.path, h.apiHandler(route))
	}
	handle("GET /api/v1/openapi.json", h.openAPI)
	for path, mounted := range h.cfg.Mount {
		mux.Handle(h.cfg.Prefix+path, mounted)
	}
	if h.cfg.Prefix != "" {
		mux.Handle("GET "+h.cfg.Prefix, http.RedirectHandler(h.cfg.Prefix+"/", http.StatusSeeOther))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" {
			w = &unrouted{ResponseWriter: w, h: h, r: r}
		}
		mux.ServeHTTP(w, r)
	})
}

// asset answers with an asset. While two versions serve, a page of one asks the other for an asset under the hash of its own: it gets this
// version's, and asks again the next time.
func (h *Handler) asset(w http.ResponseWriter, r *http.Request) {
	a, ok := h.assets[r.PathValue("name")]
	if !ok {
		h.fail(w, r, http.StatusNotFound, "There is no page at this address.")
		return
	}
	w.Header().Set("Content-Type", a.kind)
	if strings.HasSuffix(r.URL.Path, a.path) {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(a.content)
}

// unrouted replaces the answer of the mux to a request that has no route.
type unrouted struct {
	http.ResponseWriter
	h        *Handler
	r        *http.Request
	answered bool
}

// WriteHeader writes the whole answer.
func (u *unrouted) WriteHeader(status int) {
	text := map[int]string{
		http.StatusNotFound:         "There is no page at this address.",
		http.StatusMethodNotAllowed: "This address has no " + u.r.Method + ".",
	}[status]
	if text == "" {
		u.ResponseWriter.WriteHeader(status)
		return
	}
	u.answered = true
	u.h.fail(u.ResponseWriter, u.r, status, text)
}

// Write drops the text of the mux.
func (u *unrouted) Write(b []byte) (int, error) {
	if u.answered {
		return len(b), nil
	}
	return u.ResponseWriter.Write(b)
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return b
}
