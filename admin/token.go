package admin

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/store"
)

// Errors of access tokens.
var (
	// ErrToken: the token is unknown, has expired or was revoked.
	ErrToken = errors.New("the access token is not valid")
	// ErrNoToken: no token has this ID.
	ErrNoToken = errors.New("no such access token")
)

// TokenIssuer is the Issuer of principals that sign in with an access token.
const TokenIssuer = "token"

// Use is what an access token is for. It is valid for nothing else.
type Use string

const (
	// UsePeople is for pages and the HTTP API.
	UsePeople Use = ""
	// UseAgents is for agents, through MCP: what it may change, a person approves.
	UseAgents Use = "mcp"
)

// Token is an access token without its secret.
type Token struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	Role Role   `json:"role"`
	// SagaRoles are those of the principal.
	SagaRoles []string  `json:"saga_roles,omitempty"`
	Use       Use       `json:"use,omitempty"`
	By        string    `json:"by"`
	Created   time.Time `json:"created"`
	Expires   time.Time `json:"expires"`
	Revoked   bool      `json:"revoked,omitempty"`
}

// storedToken is the body of a token's record.
type storedToken struct {
	Token
	// Hash is the SHA-256 sum of the secret.
	Hash []byte `json:"hash"`
}

const (
	tokenKind = "token"
	// TokenPrefix begins every access token; no one-time code has it.
	TokenPrefix = "pr_"
	// MaxTokenLife is how long an access token is valid at most.
	MaxTokenLife = 366 * 24 * time.Hour
)

// CreateToken returns a new access token. sagaRoles are those of its principal. Its text is not stored and cannot be shown again.
func (s *Service) CreateToken(ctx context.Context, p Principal, name string, role Role, sagaRoles []string, use Use, life time.Duration) (text string, t Token, err error) {
	if err := s.allow(ctx, p, "CreateToken", "token "+name); err != nil {
		return "", t, err
	}
	switch {
	case strings.TrimSpace(name) == "" || len(name) > 64:
		return "", t, fmt.Errorf("%w: give the token a name of 1 to 64 bytes, which appears on record", ErrInput)
	case !role.Includes(Viewer) || !p.Role.Includes(role):
		return "", t, fmt.Errorf("%w: there is no role %q: use viewer, operator or admin", ErrInput, role)
	case use != UsePeople && use != UseAgents:
		return "", t, fmt.Errorf("%w: a token is for people, or for %s, not for %q", ErrInput, UseAgents, use)
	case slices.ContainsFunc(sagaRoles, func(role string) bool { return !ValidSagaRole(role) }):
		return "", t, fmt.Errorf("%w: a saga role has 1 to %d bytes of UTF-8", ErrInput, MaxSagaRoleBytes)
	case len(sagaRoles) > 0 && use == UseAgents:
		return "", t, fmt.Errorf("%w: an agent answers no questions, so its token has no saga roles", ErrInput)
	case life <= 0 || life > MaxTokenLife:
		return "", t, fmt.Errorf("%w: a token is valid for up to %d days", ErrInput, MaxTokenLife/(24*time.Hour))
	}
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	t = Token{ID: strings.ToLower(rand.Text()[:tokenIDLength]), Name: clean(name), Role: role, SagaRoles: sagaRoles, Use: use, By: p.String()}
	granted := append([]string{string(role)}, sagaRoles...)
	rec := &recorded{entry: newEntry(p, "CreateToken", "token "+name+" ("+strings.Join(granted, ", ")+")", "", "")}
	err = s.act(ctx, rec, func(records store.Records) error {
		return records.Change(ctx, store.Operation{Method: "CreateToken", Doing: "create an access token"}, func(w store.Writer) error {
			now, err := w.Now(ctx)
			if err != nil {
				return err
			}
			t.Created, t.Expires = now, now.Add(life)
			sum := sha256.Sum256(secret)
			body, err := json.Marshal(storedToken{t, sum[:]})
			if err != nil {
				return err
			}
			return w.PutRecord(ctx, store.Record{Table: store.AuthRecords, Kind: tokenKind, ID: t.ID, Expires: t.Expires, Body: body})
		})
	})
	if err != nil {
		return "", Token{}, err
	}
	return TokenPrefix + t.ID + "_" + base64.RawURLEncoding.EncodeToString(secret), t, nil
}

// Authenticate returns the principal of an access token that is for a use. Errors: ErrToken.
func (s *Service) Authenticate(ctx context.Context, text string, use Use) (Principal, error) {
	id, secret, ok := strings.Cut(strings.TrimPrefix(text, TokenPrefix), "_")
	raw, err := base64.RawURLEncoding.DecodeString(secret)
	if !ok || err != nil || id == "" || !strings.HasPrefix(text, TokenPrefix) {
		return Principal{}, ErrToken
	}
	t, _, err := s.findToken(ctx, id)
	if err != nil {
		if errors.Is(err, ErrNoToken) {
			err = ErrToken
		}
		return Principal{}, err
	}
	sum := sha256.Sum256(raw)
	if subtle.ConstantTimeCompare(sum[:], t.Hash) != 1 || t.Revoked || t.Use != use {
		return Principal{}, ErrToken
	}
	via := ViaToken
	if use == UseAgents {
		via = ViaAgent
	}
	return Principal{Issuer: TokenIssuer, Subject: t.ID, Name: t.Name, Role: t.Role, SagaRoles: t.SagaRoles, Via: via}, nil
}

// tokenIDLength is the length of the ID of a token, which has lower-case letters and digits.
const tokenIDLength = 10

func isTokenID(id string) bool {
	return len(id) == tokenIDLength && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

func (s *Service) findToken(ctx context.Context, id string) (t storedToken, rec store.Record, err error) {
	if !isTokenID(id) { // stores refuse some texts
		return t, rec, fmt.Errorf("%w: %q", ErrNoToken, id)
	}
	var found []store.Record
	err = s.store.View(ctx, store.Operation{Method: "Authenticate", Doing: "check an access token"}, func(r store.Reader) (err error) {
		found, err = r.ListRecords(ctx, store.RecordQuery{Table: store.AuthRecords, Kind: tokenKind, ID: id, Limit: 1})
		return err
	})
	if err == nil && len(found) == 0 {
		err = fmt.Errorf("%w: %s", ErrNoToken, id)
	}
	if err != nil {
		return t, rec, err
	}
	return t, found[0], json.Unmarshal(found[0].Body, &t)
}

// Tokens returns the access tokens that have not expired, newest ID first.
func (s *Service) Tokens(ctx context.Context, p Principal) (out []Token, err error) {
	if err := s.allow(ctx, p, "Tokens", ""); err != nil {
		return nil, err
	}
	err = s.store.View(ctx, store.Operation{Method: "Tokens", Doing: "list access tokens"}, func(r store.Reader) error {
		found, err := r.ListRecords(ctx, store.RecordQuery{Table: store.AuthRecords, Kind: tokenKind, Limit: 1000})
		if err != nil {
			return err
		}
		out = nil
		for _, rec := range found {
			var t storedToken
			if err := json.Unmarshal(rec.Body, &t); err != nil {
				return err
			}
			out = append(out, t.Token)
		}
		return nil
	})
	return out, err
}

// RevokeToken ends an access token, and the sessions that began with it. Errors: ErrNoToken.
func (s *Service) RevokeToken(ctx context.Context, p Principal, id string) error {
	if err := s.allow(ctx, p, "RevokeToken", "token "+id); err != nil {
		return err
	}
	t, rec, err := s.findToken(ctx, id)
	if err != nil {
		return err
	}
	t.Revoked = true
	if rec.Body, err = json.Marshal(t); err != nil {
		return err
	}
	act := &recorded{entry: newEntry(p, "RevokeToken", "token "+t.Name, "", "")}
	return s.act(ctx, act, func(records store.Records) error {
		return records.Change(ctx, store.Operation{Method: "RevokeToken", Doing: "revoke an access token"}, func(w store.Writer) error {
			return w.PutRecord(ctx, rec)
		})
	})
}

// revocationKind is the kind of the records that end sessions. Each principal has one, whose time is that of the end.
const revocationKind = "revocation"

// SessionLife is how long a session lasts at most.
const SessionLife = 8 * time.Hour

// revocations caches until when the sessions of principals have ended.
type revocations struct {
	turn   chan struct{} // has room for one: whoever reads or fills the cache
	read   time.Time
	after  int64 // how many were ended here before it was read
	ending map[string]time.Time
	ended  atomic.Int64
}

// revocationsFor is how long the cache serves.
const revocationsFor = 5 * time.Second

func sessionsOf(p Principal) string {
	sum := sha256.Sum256([]byte(p.Issuer + "\x00" + p.Subject))
	return hex.EncodeToString(sum[:])
}

// EndSessions ends all sessions that the principal has now, here at once and in other processes within seconds.
func (s *Service) EndSessions(ctx context.Context, p Principal) error {
	err := store.ErrRecordChanged
	for errors.Is(err, store.ErrRecordChanged) { // by another one that ends them
		err = s.store.Change(ctx, store.Operation{Method: "EndSessions", Doing: "end sessions"}, func(w store.Writer) error {
			return endSessions(ctx, w, p)
		})
	}
	s.revoked.ended.Add(1)
	return err
}

func endSessions(ctx context.Context, w store.Writer, p Principal) error {
	now, err := w.Now(ctx)
	if err != nil {
		return err
	}
	rec := store.Record{Table: store.AuthRecords, Kind: revocationKind, ID: sessionsOf(p), Body: []byte("{}")}
	found, err := w.ListRecords(ctx, store.RecordQuery{Table: rec.Table, Kind: rec.Kind, ID: rec.ID, Limit: 1})
	if err != nil {
		return err
	}
	if len(found) > 0 {
		rec = found[0]
	}
	rec.Expires = now.Add(SessionLife + time.Hour)
	return w.PutRecord(ctx, rec)
}

// Clock returns the database's time, by which sessions begin and end.
func (s *Service) Clock(ctx context.Context) (time.Time, error) {
	r, err := s.reading(ctx)
	return r.Now.Add(time.Since(r.At)), err
}

// SessionEnded reports whether a session of the principal that began at a time has been ended. One that began with an access token
// ends with the token.
func (s *Service) SessionEnded(ctx context.Context, p Principal, began time.Time) (bool, error) {
	if p.Issuer == TokenIssuer {
		t, _, err := s.findToken(ctx, p.Subject)
		if errors.Is(err, ErrNoToken) {
			return true, nil
		}
		if err != nil || t.Revoked {
			return true, err
		}
	}
	v := &s.revoked
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return true, ctx.Err()
	}
	if after := v.ended.Load(); time.Since(v.read) > revocationsFor || v.after != after {
		ending, err := s.endings(ctx)
		if err != nil {
			return true, err
		}
		v.read, v.after, v.ending = time.Now(), after, ending
	}
	return !v.ending[sessionsOf(p)].Before(began), nil
}

// revocationsPage is how many revocations are read at a time.
const revocationsPage = 1000

// endings reads until when the sessions of principals have ended.
func (s *Service) endings(ctx context.Context) (map[string]time.Time, error) {
	out := make(map[string]time.Time)
	q := store.RecordQuery{Table: store.AuthRecords, Kind: revocationKind, Limit: revocationsPage}
	for {
		var found []store.Record
		err := s.store.View(ctx, store.Operation{Method: "EndSessions", Doing: "read ended sessions"}, func(r store.Reader) (err error) {
			found, err = r.ListRecords(ctx, q)
			return err
		})
		if err != nil {
			return nil, err
		}
		for _, r := range found {
			out[r.ID] = r.At
		}
		if len(found) < q.Limit {
			return out, nil
		}
		q.Before = found[len(found)-1].ID
	}
}
