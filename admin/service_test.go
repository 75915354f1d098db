package admin_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

var (
	viewer   = admin.Principal{Issuer: "test", Subject: "vera", Role: admin.Viewer, Via: "browser"}
	operator = admin.Principal{Issuer: "test", Subject: "olga", Role: admin.Operator, Via: "browser"}
	boss     = admin.Principal{Issuer: "test", Subject: "ada", Role: admin.Admin, Via: "browser"}
)

const secret = "4111-1111-1111-1111"

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// withDead returns a service of a store in which consumer "view" has dead-lettered n messages, whose payloads and causes have the
// secret.
func withDead(t *testing.T, n int, rules ...admin.Rule) (*memory.Store, *admin.Service) {
	t.Helper()
	s := memory.New(memory.Config{})
	must(t, s.Enroll(t.Context(), "view"))
	addDead(t, s, n)
	return s, admin.New(s, admin.Config{Name: "shop", Show: rules})
}

func addDead(t *testing.T, s *memory.Store, n int) {
	t.Helper()
	ctx := t.Context()
	tx, err := s.Begin(ctx)
	must(t, err)
	var dead []store.ParkRequest
	for range n {
		id := postrider.NewID()
		dead = append(dead, store.ParkRequest{Dead: &store.DeadRequest{Reason: "refused"}, Cause: "card " + secret + " refused", Message: &postrider.Message{
			ID: id, Type: "order.placed", Topic: "orders", Source: "test", Time: time.Now(), Key: "order/" + id[30:],
			Headers: map[string]string{"authorization": secret, "trace": "1"},
			Payload: fmt.Appendf(nil, `{"number": 42, "card": {"no": "%s"}, "items": [{"sku": "A", "note": "%[1]s"}]}`, secret),
		}})
	}
	must(t, s.Park(ctx, tx, "view", dead))
	must(t, s.Commit(ctx, tx))
}

// open are methods without a role: they take no decision for a principal.
// Act is tested by itself: the role that it needs is that of the action.
var open = []string{"Name", "Run", "Authenticate", "EndSessions", "SessionEnded", "Clock", "Act", "ShowsKeys"}

// TestEveryMethodNeedsARole: the table of permissions has every method, each role that is too small is refused by the method itself,
// and the refusal is on record.
func TestEveryMethodNeedsARole(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 1)
	ranks := map[admin.Role]int{"": 0, admin.Viewer: 1, admin.Operator: 2, admin.Admin: 3}
	seen := map[int]int{}
	for m := range reflect.TypeFor[*admin.Service]().Methods() {
		if slices.Contains(open, m.Name) {
			continue
		}
		if m.Type.NumIn() < 3 || m.Type.In(2) != reflect.TypeFor[admin.Principal]() {
			t.Errorf("%s takes no principal", m.Name)
			continue
		}
		for role, rank := range ranks {
			if role.May(admin.Action(m.Name)) {
				seen[rank]++
				continue
			}
			in := []reflect.Value{reflect.ValueOf(service), reflect.ValueOf(t.Context()), reflect.ValueOf(admin.Principal{Subject: "x", Role: role})}
			for i := 3; i < m.Type.NumIn(); i++ {
				in = append(in, reflect.Zero(m.Type.In(i)))
			}
			out := m.Func.Call(in)
			if err, _ := out[len(out)-1].Interface().(error); !errors.Is(err, admin.ErrForbidden) {
				t.Errorf("%s as %q: %v", m.Name, role, err)
			}
			if entries := audit(t, s); entries[0].Result != admin.Refused || entries[0].Action != admin.Action(m.Name) {
				t.Errorf("the refusal of %s as %q is not on record: %+v", m.Name, role, entries[0])
			}
		}
	}
	if seen[0] > 0 || seen[1] < 10 || seen[2] <= seen[1] || seen[3] <= seen[2] {
		t.Errorf("methods allowed by rank: %v", seen)
	}
	if _, err := service.Overview(t.Context(), admin.Principal{Role: admin.Admin}); !errors.Is(err, admin.ErrForbidden) {
		t.Errorf("a principal without a subject: %v", err)
	}
}

// audit returns all entries, newest first.
func audit(t *testing.T, s admin.Store) []admin.Entry {
	t.Helper()
	entries, _, err := admin.New(s, admin.Config{}).Activity(t.Context(), boss, "", 1000)
	must(t, err)
	return entries
}

// failing is a store whose audit cannot be written.
type failing struct{ *memory.Store }

var errAudit = errors.New("no right to insert")

func (f failing) Change(ctx context.Context, op store.Operation, do func(store.Writer) error) error {
	return f.Store.Change(ctx, op, func(w store.Writer) error { return do(noAudit{w}) })
}

type noAudit struct{ store.Writer }

func (n noAudit) PutRecord(ctx context.Context, r store.Record) error {
	if r.Table == store.AuditRecords {
		return errAudit
	}
	return n.Writer.PutRecord(ctx, r)
}

func TestActionsAreOnRecord(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 4)
	ctx := t.Context()
	if err := service.DiscardDead(ctx, operator, 1, ""); !errors.Is(err, admin.ErrReason) {
		t.Errorf("without a reason: %v", err)
	}
	for _, blank := range []string{" ", "\t\n\u00a0"} {
		_, revealed := service.Reveal(ctx, boss, 1, blank)
		_, _, executed := service.ExecuteReview(ctx, operator, "x", admin.Execution{Reason: blank})
		_, decided := service.Decide(ctx, operator, store.Decision{Relay: "view", Key: "k", MessageID: "m", Verb: store.VerbSkip, Reason: blank})
		for i, err := range []error{service.DiscardDead(ctx, operator, 1, blank), service.EditDead(ctx, operator, 1, "{}", 0, blank), revealed, executed, decided} {
			if !errors.Is(err, admin.ErrReason) {
				t.Errorf("action %d with a blank reason: %v", i, err)
			}
		}
	}
	must(t, service.DiscardDead(ctx, operator, 1, "duplicate"))
	if err := service.DiscardDead(ctx, operator, 1, "again"); !errors.Is(err, deadletter.ErrResolved) {
		t.Errorf("a second time: %v", err)
	}
	if err := service.EditDead(ctx, operator, 3, "{}", 0, "look"); !errors.Is(err, admin.ErrNotShown) {
		t.Errorf("an edit of a hidden payload: %v", err)
	}
	r, err := service.RedriveDead(ctx, operator, 2, "")
	must(t, err)
	must(t, service.CancelRedrive(ctx, boss, r.ID, "mistake"))
	var got []string
	for _, e := range audit(t, s) {
		got = append(got, fmt.Sprintf("%s %s %s %s %d", e.By, e.Action, e.On, e.Result, e.Count))
	}
	slices.Reverse(got)
	want := []string{
		"olga DiscardDead dead letter 1 done 1", "olga DiscardDead dead letter 1 failed 0", "olga EditDead dead letter 3 failed 0",
		"olga RedriveDead redrive 1: dead letter 2 done 1",
		"ada CancelRedrive redrive 1 done 0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("on record:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	own, _, err := service.Activity(ctx, operator, "", 10)
	if must(t, err); len(own) != 4 {
		t.Errorf("an operator sees %d entries, want the 4 of her own", len(own))
	}
}

// TestNothingWithoutARecord: an action whose entry cannot be written fails.
func TestNothingWithoutARecord(t *testing.T) {
	t.Parallel()
	s, _ := withDead(t, 2) // a store in memory cannot undo: each action has a dead letter of its own
	service := admin.New(failing{s}, admin.Config{})
	if err := service.DiscardDead(t.Context(), operator, 1, "why"); !errors.Is(err, errAudit) {
		t.Errorf("discard: %v", err)
	}
	if _, err := service.RedriveDead(t.Context(), operator, 2, "why"); !errors.Is(err, errAudit) {
		t.Errorf("redrive: %v", err)
	}
	if m, err := service.Reveal(t.Context(), boss, 1, "why"); !errors.Is(err, errAudit) || m != nil {
		t.Errorf("reveal: %v, %v", m, err)
	}
}

func TestReviewFixesItsSet(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 5)
	ctx := t.Context()
	r, err := service.StartReview(ctx, operator, admin.ReviewRedrive, store.DeadFilter{Relay: "view"})
	must(t, err)
	if r.Included != 5 || r.UpTo != 5 || r.Keys != 5 || !r.StillHappening() {
		t.Errorf("review: %+v", r)
	}
	addDead(t, s, 3)
	must(t, service.DiscardDead(ctx, boss, 2, "duplicate"))
	if _, _, err := service.ExecuteReview(ctx, operator, r.ID, admin.Execution{Digest: r.Digest}); !errors.Is(err, admin.ErrReason) {
		t.Errorf("without a reason: %v", err)
	}
	if _, _, err := service.ExecuteReview(ctx, operator, r.ID, admin.Execution{Digest: "other", Reason: "fixed"}); !errors.Is(err, admin.ErrReviewChanged) {
		t.Errorf("with another digest: %v", err)
	}
	x := admin.Execution{Digest: r.Digest, Reason: "fixed"}
	done, _, err := service.ExecuteReview(ctx, operator, r.ID, x)
	must(t, err)
	if _, _, err := service.ExecuteReview(ctx, operator, r.ID, x); !errors.Is(err, admin.ErrReviewChanged) {
		t.Errorf("a second time: %v", err)
	}
	redrive, err := deadletter.New(s).Drive(ctx, done.Redrive, nil)
	if must(t, err); redrive.Done != 4 {
		t.Errorf("it sent %d back, want the 4 that were reviewed and are open: %+v", redrive.Done, redrive)
	}
	entries := audit(t, s)
	i := slices.IndexFunc(entries, func(e admin.Entry) bool { return e.Action == "ExecuteReview" && e.Result == admin.Done })
	if i < 0 || entries[i].Reason != "fixed" || entries[i].Count != 4 || entries[i].Path != fmt.Sprintf("/redrives/%d", done.Redrive) {
		t.Errorf("on record: %+v", entries)
	}
}

func TestReviewedDiscard(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 1200)
	r, err := service.StartReview(t.Context(), operator, admin.ReviewDiscard, store.DeadFilter{})
	must(t, err)
	addDead(t, s, 1)
	_, n, err := service.ExecuteReview(t.Context(), operator, r.ID, admin.Execution{Digest: r.Digest, Reason: "test data"})
	if must(t, err); n != 1200 {
		t.Errorf("%d were discarded", n)
	}
	left, err := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{})
	if must(t, err); left != 1 {
		t.Errorf("%d are open, want the later one", left)
	}
	if _, err := service.ShowReview(t.Context(), operator, "unknown"); !errors.Is(err, admin.ErrNoReview) {
		t.Errorf("an unknown review: %v", err)
	}
}

func TestTokens(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	ctx := t.Context()
	text, token, err := service.CreateToken(ctx, boss, "ci", admin.Operator, nil, admin.UsePeople, time.Hour)
	must(t, err)
	p, err := service.Authenticate(ctx, text, admin.UsePeople)
	if must(t, err); p.Role != admin.Operator || p.Name != "ci" {
		t.Errorf("principal %+v", p)
	}
	for _, wrong := range []string{"", "pr_", text + "x", text[:len(text)-2] + "AA", strings.Replace(text, token.ID, "other", 1)} {
		if _, err := service.Authenticate(ctx, wrong, admin.UsePeople); !errors.Is(err, admin.ErrToken) {
			t.Errorf("token %q: %v", wrong, err)
		}
	}
	began, err := service.Clock(ctx)
	must(t, err)
	if ended, err := service.SessionEnded(ctx, p, began); ended || err != nil {
		t.Errorf("the session has ended: %t, %v", ended, err)
	}
	must(t, service.RevokeToken(ctx, boss, token.ID))
	if _, err := service.Authenticate(ctx, text, admin.UsePeople); !errors.Is(err, admin.ErrToken) {
		t.Errorf("a revoked token: %v", err)
	}
	if ended, err := service.SessionEnded(ctx, p, began); !ended || err != nil {
		t.Errorf("the session of a revoked token goes on: %t, %v", ended, err)
	}
	for _, r := range audit(t, s) {
		if strings.Contains(fmt.Sprint(r), text[20:]) {
			t.Error("the audit has the secret of the token")
		}
	}
}

// withoutTokens is a store in which every access token has expired.
type withoutTokens struct{ *memory.Store }

func (w withoutTokens) View(ctx context.Context, op store.Operation, do func(store.Reader) error) error {
	return w.Store.View(ctx, op, func(r store.Reader) error { return do(noTokens{r}) })
}

type noTokens struct{ store.Reader }

func (n noTokens) ListRecords(ctx context.Context, q store.RecordQuery) ([]store.Record, error) {
	if q.Kind == "token" {
		return nil, nil
	}
	return n.Reader.ListRecords(ctx, q)
}

// TestSessionEndsWithItsToken: a session lasts no longer than the token that it began with, and ends at once, in every process, when
// the token is revoked.
func TestSessionEndsWithItsToken(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	ctx := t.Context()
	text, token, err := service.CreateToken(ctx, boss, "ci", admin.Operator, nil, admin.UsePeople, time.Hour)
	must(t, err)
	began, err := service.Clock(ctx)
	must(t, err)
	p, err := service.Authenticate(ctx, text, admin.UsePeople)
	must(t, err)
	if ended, err := service.SessionEnded(ctx, p, began); ended || err != nil {
		t.Errorf("of a valid token: %t, %v", ended, err)
	}
	if ended, err := admin.New(withoutTokens{s}, admin.Config{}).SessionEnded(ctx, p, began); !ended || err != nil {
		t.Errorf("of an expired token: %t, %v", ended, err)
	}
	must(t, admin.New(s, admin.Config{}).RevokeToken(ctx, boss, token.ID)) // in another process
	later, err := service.Clock(ctx)
	must(t, err)
	for _, began := range []time.Time{began, later.Add(time.Minute)} {
		if ended, err := service.SessionEnded(ctx, p, began); !ended || err != nil {
			t.Errorf("of a revoked token, begun at %s: %t, %v", began, ended, err)
		}
	}
}

// TestSignOutsStayKnown: each principal has one record of its last sign-out, and all of them are read.
func TestSignOutsStayKnown(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	ctx := t.Context()
	began, err := service.Clock(ctx)
	must(t, err)
	for range 3 {
		must(t, service.EndSessions(ctx, viewer))
	}
	count := func() (n int) {
		must(t, s.View(ctx, store.Operation{Method: "Test"}, func(r store.Reader) error {
			found, err := r.ListRecords(ctx, store.RecordQuery{Table: store.AuthRecords, Kind: "revocation", Limit: 10})
			n = len(found)
			return err
		}))
		return n
	}
	if n := count(); n != 1 {
		t.Errorf("%d records of the sign-outs of one principal", n)
	}
	// More than one page, so that whichever page has the record of viewer is read.
	others := 2*admin.RevocationsPage + 1
	for i := range others {
		must(t, service.EndSessions(ctx, admin.Principal{Issuer: "test", Subject: fmt.Sprint("u", i)}))
	}
	for i := range others {
		p := admin.Principal{Issuer: "test", Subject: fmt.Sprint("u", i)}
		if ended, err := service.SessionEnded(ctx, p, began); !ended || err != nil {
			t.Fatalf("the session of %s goes on after signing out: %v", p, err)
		}
	}
	if ended, err := service.SessionEnded(ctx, viewer, began); !ended || err != nil {
		t.Errorf("the session of the first goes on: %v", err)
	}
}

// TestActNeedsTheRoleOfItsAction: an action outside of the methods needs its role too, and an agent does none.
func TestActNeedsTheRoleOfItsAction(t *testing.T) {
	t.Parallel()
	s, service := withDead(t, 0)
	agent := boss
	agent.Via = admin.ViaAgent
	for _, p := range []admin.Principal{viewer, operator, agent, {}} {
		err := service.Act(t.Context(), p, admin.Change{Action: "Erase", On: "the messages of a key"}, func(held.Database) error {
			t.Errorf("%s may erase", p)
			return nil
		})
		if err == nil {
			t.Errorf("%s: no error", p)
		}
	}
	if err := service.Act(t.Context(), boss, admin.Change{Action: "Unknown"}, nil); !errors.Is(err, admin.ErrForbidden) {
		t.Errorf("an unknown action: %v", err)
	}
	if entries := audit(t, s); len(entries) != 5 || entries[0].Result != admin.Refused {
		t.Errorf("on record: %+v", entries)
	}
}
