package web

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/admin"
)

const (
	// codeLife is how long a one-time code is valid, codeTries how many wrong ones are answered before all codes end.
	codeLife  = 10 * time.Minute
	codeTries = 20
	// maxSignIn is the largest body of a request to sign in, in bytes.
	maxSignIn  = 16 << 10
	codeIssuer = "code"
)

// session is what a sealed cookie holds.
type session struct {
	Issuer  string     `json:"iss"`
	Subject string     `json:"sub"`
	Name    string     `json:"name,omitempty"`
	Role    admin.Role `json:"role"`
	// SagaRoles are those of the principal.
	SagaRoles []string `json:"saga_roles,omitempty"`
	// Began and Ends are on the database's clock.
	Began time.Time `json:"began"`
	Ends  time.Time `json:"ends"`
}

func (s session) principal() admin.Principal {
	return admin.Principal{Issuer: s.Issuer, Subject: s.Subject, Name: s.Name, Role: s.Role, SagaRoles: s.SagaRoles, Via: admin.ViaBrowser}
}

// sessions seals cookies, and keeps one-time codes. Sessions that began with a code are sealed with a key of this process, so that
// they are worth nothing at another process that uses the same store.
type sessions struct {
	// cookie is the name of the cookie of a shared session, codeCookie that of a session that began with a code: servers that share a
	// key would overwrite each other's.
	cookie, codeCookie string
	path               string
	secure             bool
	shared, here       cipher.AEAD
	// of is what cookies are good for: a store and an environment. Servers of others may have the same key and address.
	of []byte

	mu    *sync.Mutex
	codes map[[sha256.Size]byte]issued
	tries int
}

// issued is a one-time code that has not been used.
type issued struct {
	principal admin.Principal
	ends      time.Time
}

func newSessions(c Config, store string) (s sessions, err error) {
	key := c.Key
	if key == nil {
		key = random(32)
	}
	if len(key) != 32 {
		return s, fmt.Errorf("the session key has %d bytes, not 32", len(key))
	}
	if s.shared, err = sealer(key); err != nil {
		return s, err
	}
	if s.here, err = sealer(random(32)); err != nil {
		return s, err
	}
	// Cookies ignore ports: the name keeps servers on one host apart, except those that share sessions.
	server := c.Listen
	if c.Key != nil {
		server = store + "\x00" + c.Environment.Name + "\x00" + string(c.Key)
	}
	s.cookie, s.path, s.secure = cookieName(c, server), c.Prefix+"/", c.Secure
	s.codeCookie = cookieName(c, server+"\x00"+c.Listen) + "-code"
	s.of = []byte(s.cookie + "\x00" + store + "\x00" + c.Environment.Name)
	s.mu, s.codes = new(sync.Mutex), make(map[[sha256.Size]byte]issued)
	return s, nil
}

// cookieName returns a name that nothing on the host has but what is for the same server.
func cookieName(c Config, server string) string {
	sum := sha256.Sum256([]byte(c.Prefix + "\x00" + server))
	name := "postrider-" + hex.EncodeToString(sum[:4])
	if c.Secure && c.Prefix == "" {
		name = "__Host-" + name
	}
	return name
}

func sealer(key []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal returns the value of a cookie.
func (s *sessions) seal(v session) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	by := s.shared
	if v.Issuer == codeIssuer {
		by = s.here
	}
	return base64.RawURLEncoding.EncodeToString(by.Seal(nil, nil, text, s.of)), nil
}

// open returns the session of a cookie's value.
func (s *sessions) open(value string) (v session, err error) {
	sealed, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		return v, err
	}
	text, err := s.shared.Open(nil, nil, sealed, s.of)
	byCode := err != nil
	if byCode {
		if text, err = s.here.Open(nil, nil, sealed, s.of); err != nil {
			return v, err
		}
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, err
	}
	if byCode != (v.Issuer == codeIssuer) {
		return v, errors.New("sealed with the wrong key")
	}
	return v, nil
}

// find returns the session of a request: one that began here with a code, or else a shared one.
func (s *sessions) find(r *http.Request) (session, error) {
	if c, err := r.Cookie(s.codeCookie); err == nil {
		if v, err := s.open(c.Value); err == nil {
			return v, nil
		}
	}
	c, err := r.Cookie(s.cookie)
	if err != nil {
		return session{}, err
	}
	return s.open(c.Value)
}

// IssueCode returns a code with which one browser can sign in as the principal, once, within ten minutes.
func (h *Handler) IssueCode(p admin.Principal) string {
	s := &h.sessions
	code := rand.Text()
	p.Issuer = codeIssuer
	s.mu.Lock()
	defer s.mu.Unlock()
	s.codes[sha256.Sum256([]byte(code))] = issued{p, time.Now().Add(codeLife)}
	s.tries = 0
	return code
}

// redeem returns the principal of a one-time code, and ends the code. Too many wrong ones end all.
func (s *sessions) redeem(code string) (admin.Principal, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := sha256.Sum256([]byte(code))
	for known, c := range s.codes {
		switch {
		case time.Now().After(c.ends):
			delete(s.codes, known)
		case subtle.ConstantTimeCompare(known[:], sum[:]) == 1:
			delete(s.codes, known)
			return c.principal, true
		}
	}
	if s.tries++; s.tries >= codeTries {
		clear(s.codes)
	}
	return admin.Principal{}, false
}

func (s *sessions) hasCodes() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.codes) > 0
}

var errSignedOut = errors.New("not signed in")

// principal says who a request is from.
func (h *Handler) principal(r *http.Request) (admin.Principal, error) {
	if h.cfg.Authorizer != nil {
		p, err := h.cfg.Authorizer.Authorize(r)
		if err == nil && p.Subject == "" {
			err = errSignedOut
		}
		if p.Via == "" {
			p.Via = admin.ViaBrowser
		}
		return p, err
	}
	if text, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return h.service.Authenticate(r.Context(), strings.TrimSpace(text), admin.UsePeople)
	}
	v, err := h.sessions.find(r)
	if err != nil {
		return admin.Principal{}, errSignedOut
	}
	now, err := h.service.Clock(r.Context())
	if err != nil {
		return admin.Principal{}, err
	}
	if now.After(v.Ends) {
		return admin.Principal{}, errSignedOut
	}
	p := v.principal()
	ended, err := h.service.SessionEnded(r.Context(), p, v.Began)
	if err == nil && ended {
		err = errSignedOut
	}
	return p, err
}

// signInData is what the sign-in page shows.
type signInData struct {
	Codes                 bool
	Code, Error, ReturnTo string
	// Provider is the name of the provider, Begin the address that leads there, SignOut where people sign out there.
	Provider, Begin, SignOut string
}

// returnTo is where to go after signing in: a path of this server.
func returnTo(text string) string {
	if !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") || strings.ContainsAny(text, "\\\r\n\t") {
		return ""
	}
	return text
}

// showSignIn shows the form. A link with a code only fills it in: what previews links cannot use the code up.
func (h *Handler) showSignIn(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Authorizer != nil {
		h.fail(w, r, http.StatusNotFound, "There is no page at this address.")
		return
	}
	d := signInData{Code: r.URL.Query().Get("code"), ReturnTo: returnTo(r.URL.Query().Get("return_to"))}
	if h.cfg.Provider != nil && r.URL.Query().Has("signed_out") {
		d.SignOut = h.cfg.Provider.SignOut()
	}
	h.renderSignIn(w, http.StatusOK, d)
}

func (h *Handler) renderSignIn(w http.ResponseWriter, status int, d signInData) {
	d.Codes = h.sessions.hasCodes() || d.Code != ""
	if h.cfg.Provider != nil {
		d.Provider, d.Begin = h.cfg.Provider.Name(), h.cfg.Prefix+"/signin/begin?"+url.Values{"return_to": {d.ReturnTo}}.Encode()
	}
	p := &page{h: h, Store: h.service.Name(), Environment: h.cfg.Environment, Data: d}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	h.execute(w, "signin", p)
}

// signIn begins a session with a one-time code or an access token.
func (h *Handler) signIn(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Authorizer != nil {
		h.fail(w, r, http.StatusNotFound, "There is no page at this address.")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxSignIn)
	code := strings.TrimSpace(r.PostFormValue("code"))
	back := returnTo(r.PostFormValue("return_to"))
	now, err := h.service.Clock(r.Context()) // what is revoked from now on ends the session
	var p admin.Principal
	if err == nil {
		p, err = h.identify(r.Context(), code)
	}
	switch {
	case errors.Is(err, admin.ErrToken):
		h.renderSignIn(w, http.StatusForbidden, signInData{Error: "This code or token is not valid.", ReturnTo: back})
		return
	case err != nil:
		h.cfg.Logger.Warn("signing in failed", "error", err)
		h.renderSignIn(w, http.StatusServiceUnavailable, signInData{Error: "The store cannot be read.", ReturnTo: back})
		return
	}
	h.beginSession(w, r, p, now, back)
}

// identify returns the principal of an access token or of a one-time code. Errors: admin.ErrToken.
func (h *Handler) identify(ctx context.Context, text string) (admin.Principal, error) {
	if strings.HasPrefix(text, admin.TokenPrefix) {
		return h.service.Authenticate(ctx, text, admin.UsePeople)
	}
	if p, ok := h.sessions.redeem(text); ok {
		return p, nil
	}
	return admin.Principal{}, admin.ErrToken
}

func (s *sessions) with(name, value string, age int) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: s.path, MaxAge: age, HttpOnly: true, Secure: s.secure, SameSite: http.SameSiteLaxMode,
	}
}

// end removes the cookie of a session that began with a code, and that of a shared one.
func (s *sessions) end(w http.ResponseWriter) {
	http.SetCookie(w, s.with(s.codeCookie, "", -1))
	http.SetCookie(w, s.with(s.cookie, "", -1))
}

// signOut ends all sessions of the principal.
func (h *Handler) signOut(w http.ResponseWriter, r *http.Request) {
	if p, err := h.principal(r); err == nil && h.cfg.Authorizer == nil && p.Via == admin.ViaBrowser {
		if err := h.service.EndSessions(r.Context(), p); err != nil {
			h.cfg.Logger.Warn("sessions cannot be ended", "error", err)
			h.fail(w, r, http.StatusServiceUnavailable, "The session cannot be ended, because the store cannot be written. Close the browser.")
			return
		}
	}
	h.sessions.end(w)
	http.Redirect(w, r, h.cfg.Prefix+"/signin?signed_out=1", http.StatusSeeOther)
}

// handler is a page or action of somebody who is signed in.
type handler func(w http.ResponseWriter, r *http.Request, p admin.Principal)

// principalKey has the principal in the context of a request.
type principalKey struct{}

// signedIn calls a handler with the principal, or leads to the sign-in page.
func (h *Handler) signedIn(next handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		p, err := h.principal(r)
		switch {
		case err == nil:
			next(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, p)), p)
		case !errors.Is(err, errSignedOut) && !errors.Is(err, admin.ErrToken) && h.cfg.Authorizer == nil:
			h.failWith(w, r, err)
		case r.Method == http.MethodGet && r.Header.Get("Postrider-Part") == "" && h.cfg.Authorizer == nil:
			http.Redirect(w, r, h.cfg.Prefix+"/signin?"+url.Values{"return_to": {r.URL.RequestURI()}}.Encode(), http.StatusSeeOther)
		default:
			h.fail(w, r, http.StatusUnauthorized, "You are signed out. Sign in to continue.")
		}
	}
}
