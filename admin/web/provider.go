package web

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/admin"
)

// Provider signs people in at another place, such as an OpenID provider. Browsers come back to /signin/callback.
type Provider interface {
	// Name is what the button says: "Sign in with Name".
	Name() string
	// Begin returns the address to which the browser goes, and what Finish needs. The browser keeps it, sealed.
	Begin(ctx context.Context) (address string, kept []byte, err error)
	// Finish says who has come back to an address with this query. A *SignInError has a text for the person.
	Finish(ctx context.Context, kept []byte, query url.Values) (admin.Principal, error)
	// SignOut is the address at which the person signs out there, "" if there is none.
	SignOut() string
}

// SignInError is why a Provider does not sign somebody in, for the person.
type SignInError struct {
	Text string
	// Err, if not nil, is the cause, which is logged.
	Err error
}

// Error is the text.
func (e *SignInError) Error() string { return e.Text }

// Unwrap returns the cause.
func (e *SignInError) Unwrap() error { return e.Err }

// awayFor is how long somebody may stay at the provider.
const awayFor = 15 * time.Minute

// away is what the browser keeps while it is at the provider.
type away struct {
	Kept     []byte    `json:"kept"`
	ReturnTo string    `json:"return_to"`
	Ends     time.Time `json:"ends"`
}

func (s *sessions) awayCookie(value string, life time.Duration) *http.Cookie {
	return s.with(s.cookie+"-away", value, int(life.Seconds()))
}

// ofAway is what the cookies of awayCookie are good for.
func (s *sessions) ofAway() []byte { return append(slices.Clone(s.of), "-away"...) }

// beginSignIn leads to the provider.
func (h *Handler) beginSignIn(w http.ResponseWriter, r *http.Request) {
	if h.cfg.Provider == nil {
		h.fail(w, r, http.StatusNotFound, "There is no page at this address.")
		return
	}
	back := returnTo(r.URL.Query().Get("return_to"))
	address, kept, err := h.cfg.Provider.Begin(r.Context())
	if err == nil {
		var text []byte
		if text, err = json.Marshal(away{kept, back, time.Now().Add(awayFor)}); err == nil {
			c := h.sessions.awayCookie("", awayFor)
			c.Value = base64.RawURLEncoding.EncodeToString(h.sessions.shared.Seal(nil, nil, text, h.sessions.ofAway()))
			http.SetCookie(w, c)
			http.Redirect(w, r, address, http.StatusSeeOther)
			return
		}
	}
	h.notSignedIn(w, err, back)
}

// endSignIn begins the session of somebody who comes back from the provider.
func (h *Handler) endSignIn(w http.ResponseWriter, r *http.Request) {
	gone := h.sessions.awayCookie("", -time.Second)
	var a away
	c, err := r.Cookie(gone.Name)
	if h.cfg.Provider == nil {
		h.fail(w, r, http.StatusNotFound, "There is no page at this address.")
		return
	}
	if err == nil {
		var sealed, text []byte
		if sealed, err = base64.RawURLEncoding.DecodeString(c.Value); err == nil {
			if text, err = h.sessions.shared.Open(nil, nil, sealed, h.sessions.ofAway()); err == nil {
				err = json.Unmarshal(text, &a)
			}
		}
	}
	if err != nil || time.Now().After(a.Ends) {
		h.notSignedIn(w, &SignInError{Text: "This sign-in has taken too long, or began in another browser. Sign in again."}, "")
		return
	}
	http.SetCookie(w, gone)
	now, err := h.service.Clock(r.Context())
	var p admin.Principal
	if err == nil {
		p, err = h.cfg.Provider.Finish(r.Context(), a.Kept, r.URL.Query())
	}
	if err == nil && (p.Subject == "" || p.Issuer == "" || p.Issuer == codeIssuer || p.Issuer == admin.TokenIssuer) {
		err = errors.New("the provider names no person")
	}
	if err != nil {
		h.notSignedIn(w, err, a.ReturnTo)
		return
	}
	h.beginSession(w, r, p, now, a.ReturnTo)
}

// notSignedIn shows the sign-in page with an error of the provider.
func (h *Handler) notSignedIn(w http.ResponseWriter, err error, back string) {
	status, text := http.StatusServiceUnavailable, "Nobody can sign in with "+h.cfg.Provider.Name()+" now. Sessions that have begun go on."
	cause := err
	if refused, ok := errors.AsType[*SignInError](err); ok {
		status, text, cause = http.StatusForbidden, refused.Text, refused.Err
	}
	if cause != nil {
		h.cfg.Logger.Warn("signing in failed", "provider", h.cfg.Provider.Name(), "error", cause)
	}
	h.renderSignIn(w, status, signInData{Error: text, ReturnTo: back})
}

// beginSession sets the cookie of a session, and leads to the page that somebody wanted to see.
func (h *Handler) beginSession(w http.ResponseWriter, r *http.Request, p admin.Principal, now time.Time, back string) {
	value, err := h.sessions.seal(session{p.Issuer, p.Subject, p.Name, p.Role, p.SagaRoles, now, now.Add(admin.SessionLife)})
	if err != nil {
		h.fail(w, r, http.StatusInternalServerError, "The session cannot be sealed.")
		return
	}
	name := h.sessions.codeCookie
	if p.Issuer != codeIssuer {
		http.SetCookie(w, h.sessions.with(name, "", -1)) // it would take precedence
		name = h.sessions.cookie
	}
	http.SetCookie(w, h.sessions.with(name, value, int(admin.SessionLife.Seconds())))
	if back == "" || strings.HasPrefix(back, h.cfg.Prefix+"/signin") {
		back = h.cfg.Prefix + "/"
	}
	http.Redirect(w, r, back, http.StatusSeeOther)
}
