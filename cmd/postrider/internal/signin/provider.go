// Package signin signs people in at an OpenID provider.
package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/admin/web"
)

const (
	// tolerance is how far the clock of the provider may differ.
	tolerance = time.Minute
	// requestTimeout is how long the provider may take to answer.
	requestTimeout = 10 * time.Second
)

// algorithms are the signatures that are accepted.
var algorithms = []string{oidc.RS256, oidc.PS256, oidc.ES256, oidc.EdDSA}

// Config configures New.
type Config struct {
	// Issuer is the address of the provider; ClientID and Secret are what it knows this program by.
	Issuer, ClientID, Secret string
	// Redirect is the address of this program to which the provider sends browsers back.
	Redirect string
	// Name is what the button says. Default: the host of the issuer.
	Name string
	// Scopes are asked for in addition to openid and profile.
	Scopes []string
	// Access says who may do what.
	Access Access
	// Client makes requests. Default: one with a timeout of 10 s.
	Client *http.Client
}

// Provider is an OpenID provider. It implements web.Provider.
type Provider struct {
	cfg Config

	turn  chan struct{} // has room for one: whoever asks the provider for its addresses
	found atomic.Pointer[discovered]
}

// discovered is what the provider says of itself.
type discovered struct {
	provider *oidc.Provider
	client   oauth2.Config
	// EndSession is where people sign out; SendsIssuer: answers name the issuer.
	EndSession  string `json:"end_session_endpoint"`
	SendsIssuer bool   `json:"authorization_response_iss_parameter_supported"`
}

// New returns a provider. It is asked for its addresses when somebody signs in, so that it may be down when the program starts.
func New(c Config) (*Provider, error) {
	var errs []error
	for name, address := range map[string]string{"the issuer": c.Issuer, "the address of the administration": c.Redirect} {
		u, err := url.Parse(address)
		local := err == nil && (u.Hostname() == "localhost" || u.Hostname() == "127.0.0.1" || u.Hostname() == "::1")
		if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !local) {
			errs = append(errs, fmt.Errorf("%s is %q; give an address that begins with https://", name, address))
		}
	}
	if c.ClientID == "" {
		errs = append(errs, errors.New("the ID of the client is missing"))
	}
	errs = append(errs, c.Access.validate())
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("sign-in with OpenID: %w", err)
	}
	if c.Name == "" {
		u, _ := url.Parse(c.Issuer)
		c.Name = u.Hostname()
	}
	if c.Client == nil {
		c.Client = &http.Client{Timeout: requestTimeout}
	}
	return &Provider{cfg: c, turn: make(chan struct{}, 1)}, nil
}

// Name implements web.Provider.
func (p *Provider) Name() string { return p.cfg.Name }

// SignOut implements web.Provider: it is known after the first sign-in.
func (p *Provider) SignOut() string {
	if d := p.found.Load(); d != nil {
		return d.EndSession
	}
	return ""
}

// discover asks the provider for its addresses, once.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("ask %s for its addresses: %w", p.cfg.Issuer, ctx.Err())
	}
	if d := p.found.Load(); d != nil {
		return d, nil
	}
	provider, err := oidc.NewProvider(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, fmt.Errorf("ask %s for its addresses: %w", p.cfg.Issuer, err)
	}
	d := &discovered{provider: provider}
	if err := provider.Claims(d); err != nil {
		return nil, fmt.Errorf("read what %s says of itself: %w", p.cfg.Issuer, err)
	}
	d.client = oauth2.Config{
		ClientID: p.cfg.ClientID, ClientSecret: p.cfg.Secret, Endpoint: provider.Endpoint(), RedirectURL: p.cfg.Redirect,
		Scopes: append([]string{oidc.ScopeOpenID, "profile"}, p.cfg.Scopes...),
	}
	p.found.Store(d)
	return d, nil
}

// kept is what the browser keeps, sealed, while it is at the provider.
type kept struct{ State, Nonce, Verifier string }

// Begin implements web.Provider.
func (p *Provider) Begin(ctx context.Context) (address string, sealed []byte, err error) {
	d, err := p.discover(oidc.ClientContext(ctx, p.cfg.Client))
	if err != nil {
		return "", nil, err
	}
	k := kept{rand.Text(), rand.Text(), oauth2.GenerateVerifier()}
	sealed, err = json.Marshal(k)
	return d.client.AuthCodeURL(k.State, oidc.Nonce(k.Nonce), oauth2.S256ChallengeOption(k.Verifier)), sealed, err
}

// Finish implements web.Provider.
func (p *Provider) Finish(ctx context.Context, sealed []byte, q url.Values) (admin.Principal, error) {
	ctx = oidc.ClientContext(ctx, p.cfg.Client)
	var k kept
	if err := json.Unmarshal(sealed, &k); err != nil {
		return admin.Principal{}, err
	}
	d, err := p.discover(ctx)
	if err != nil {
		return admin.Principal{}, err
	}
	switch issuer := q.Get("iss"); {
	case subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(k.State)) != 1:
		return admin.Principal{}, refused("This answer is not that to your sign-in. Sign in again.")
	case issuer != "" && issuer != p.cfg.Issuer, issuer == "" && d.SendsIssuer:
		return admin.Principal{}, refused("This answer is from another provider. Sign in again.")
	case q.Get("error") != "":
		return admin.Principal{}, refused("%s has not signed you in: %s", p.cfg.Name, strings.TrimSpace(q.Get("error")+" "+q.Get("error_description")))
	}
	token, err := d.client.Exchange(ctx, q.Get("code"), oauth2.VerifierOption(k.Verifier))
	if err != nil {
		return admin.Principal{}, p.notExchanged(err)
	}
	raw, _ := token.Extra("id_token").(string)
	claims, err := p.verify(ctx, d, raw, k.Nonce)
	if err != nil {
		return admin.Principal{}, err
	}
	role, err := p.cfg.Access.role(claims)
	if err != nil {
		return admin.Principal{}, err
	}
	return admin.Principal{
		Issuer: p.cfg.Issuer, Subject: claims.text("sub"), Name: claims.text("name", "preferred_username", "email"), Role: role,
		SagaRoles: p.cfg.Access.sagaRoles(claims),
	}, nil
}

// notExchanged is why there is no token: the configuration, the provider, or the code of the person.
func (p *Provider) notExchanged(err error) error {
	answer, isAnswer := errors.AsType[*oauth2.RetrieveError](err)
	switch {
	case !isAnswer, answer.Response == nil, answer.Response.StatusCode >= 500, answer.Response.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("exchange the code: %w", err)
	case answer.ErrorCode == "invalid_client", answer.ErrorCode == "unauthorized_client", answer.Response.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s does not accept the client %q: check its ID and its secret: %w", p.cfg.Issuer, p.cfg.ClientID, err)
	}
	return &web.SignInError{Text: p.cfg.Name + " does not accept this sign-in. Sign in again.", Err: err}
}

// verify checks the ID token, and returns its claims.
func (p *Provider) verify(ctx context.Context, d *discovered, raw, nonce string) (claims, error) {
	verifier := d.provider.Verifier(&oidc.Config{
		ClientID: p.cfg.ClientID, SupportedSigningAlgs: algorithms, Now: func() time.Time { return time.Now().Add(-tolerance) },
	})
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		return nil, fmt.Errorf("the ID token of %s: %w", p.cfg.Name, err)
	}
	var out claims
	if err := token.Claims(&out); err != nil {
		return nil, fmt.Errorf("the claims of %s: %w", p.cfg.Name, err)
	}
	party := out.text("azp")
	switch {
	case subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(nonce)) != 1:
		return nil, refused("This answer is not that to your sign-in. Sign in again.")
	case party != "" && party != p.cfg.ClientID, party == "" && len(token.Audience) > 1:
		return nil, refused("%s has signed you in at another program.", p.cfg.Name)
	}
	return out, nil
}

// refused is an error with a text for the person who signs in.
func refused(format string, args ...any) error {
	return &web.SignInError{Text: fmt.Sprintf(format, args...)}
}
