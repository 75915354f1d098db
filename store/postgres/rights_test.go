//go:build !race

package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/legalhold"
	"github.com/postrider/postrider/outbox"
	pauses "github.com/postrider/postrider/pause"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// as returns the store as a new database role sees it that has the rights of Grants.
func (b *bundle) as(t *testing.T, what string) *bundle {
	t.Helper()
	role := b.config.Schema + "_" + what
	b.exec(t, "create role "+role+" login")
	t.Cleanup(func() { b.exec(t, "drop owned by "+role); b.exec(t, "drop role "+role) })
	sql, err := postgres.Grants(b.config, what, role)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.pool.Exec(t.Context(), sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	u, err := url.Parse(b.dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	pool := newPool(t, u.String(), 8)
	return &bundle{Store: open(t, pool, b.config), pool: pool, config: b.config, dsn: u.String()}
}

// mayNot checks that the server refuses statements.
func (b *bundle) mayNot(t *testing.T, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		_, err := b.pool.Exec(t.Context(), sql)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
			t.Errorf("%s: %v, want that a right is missing", sql, err)
		}
	}
}

func publish(t *testing.T, s *postgres.Store, m *postrider.Message) {
	t.Helper()
	o, err := outbox.New(s, outbox.Config{Source: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = o.InTx(t.Context(), func(ctx context.Context, tx pgx.Tx) error {
		_, err := o.Publish(ctx, tx, m)
		return err
	}); err != nil {
		t.Error(err)
	}
}

func TestGrantsOfAPublisher(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{})
	p := owner.as(t, "publisher")
	publish(t, p.Store, &postrider.Message{Type: "t", Payload: []byte("{}")})
	p.exec(t, "select "+p.table("publish")+"('t', 'k', 'type', '{}'::jsonb)")
	p.mayNot(t, "select payload from "+p.table("log"), "delete from "+p.table("log"), "select from "+p.table("dead"),
		"select from "+p.table("cursors"), "select "+p.table("log_drop")+"(0)")
}

func TestGrantsOfARelay(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{SegmentFor: time.Hour})
	old := owner.past(t, 5, 0)
	r := owner.as(t, "relay")
	publish(t, owner.Store, &postrider.Message{Type: "t", Key: "k", Payload: []byte("{}")})
	if n := r.deliverAll(t, "r", r.lease(t, "r")); n != 1 {
		t.Errorf("%d messages are delivered", n)
	}
	r.drop(t, store.Retention{For: time.Hour}, old) // creates segments, and drops some
	r.mayNot(t, "drop table "+r.table("log"), "select from "+r.table("claims"), "alter table "+r.table("log")+" add x int")
}

func TestGrantsOfAConsumer(t *testing.T) {
	t.Parallel()
	c := setup(t, postgres.Config{}).as(t, "consumer")
	ctx, message := t.Context(), &postrider.Message{ID: "m", Type: "t", Key: "k", Payload: []byte("{}")}
	if err := c.Enroll(ctx, "consumer"); err != nil {
		t.Fatal(err)
	}
	req := acquire(0)
	req.Kind = store.KindConsumer
	if _, err := c.Acquire(ctx, "consumer", store.Owner{ID: "o"}, req); err != nil {
		t.Errorf("acquire: %v", err)
	}
	err := pgx.BeginFunc(ctx, c.pool, func(tx pgx.Tx) error {
		return c.Park(ctx, tx, "consumer", []store.ParkRequest{{Message: message, Reason: store.ParkRetry, After: time.Minute}})
	})
	if err != nil {
		t.Errorf("park: %v", err)
	}
	c.mayNot(t, "select payload from "+c.table("log"), "insert into "+c.table("log")+" (partition, id, topic, type) values (0, 'a', 'b', 'c')",
		"select "+c.table("log_drop")+"(0)", "insert into "+c.table("watermarks")+" default values", "update "+c.table("watermark_moves")+" set position = 0")
}

// TestGrantsOfOperatorsAndViewers: both see dead letters without their contents, and the status; only an operator decides.
func TestGrantsOfOperatorsAndViewers(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{Partitions: 1})
	owner.deadLetter(t, "r", 2)
	owner.exec(t, "insert into "+owner.table("parked")+` (relay, partition, seq, id, topic, type, source, key, subject, tenant, message_time,
		schema_version, aggregate_version, content_type, headers, correlation_id, causation_id, payload, created_at, reason, due_at, attempts,
		parked_at) values ('r', 0, 1000, 'parked', 'a', 'b', '', '', '', '', now(), 0, 0, '', '{"a": "b"}', '', '', 'x', now(), 'retry', now(), 1, now())`)
	for _, what := range []string{"operator", "viewer"} {
		o, ctx := owner.as(t, what), t.Context()
		if st, err := o.Status(ctx); err != nil || st.Relays[0].Dead.N == 0 {
			t.Errorf("status of %s: %+v, %v", what, st, err)
		}
		if _, err := deadletter.New(o).CountDead(ctx, store.DeadFilter{}); err != nil && what == "operator" {
			t.Errorf("count: %v", err)
		}
		for l, err := range deadletter.New(o).ListDead(ctx, store.DeadFilter{}, 0, 0) {
			if err != nil || len(l.Message.Payload) > 0 || len(l.Message.Headers) > 0 || l.Message.ID == "" || l.Unreadable == "" {
				t.Errorf("%s sees %+v, %v", what, l, err)
			}
		}
		o.mayNot(t, "select payload from "+o.table("dead"), "select headers from "+o.table("dead"), "select payload from "+o.table("log"),
			"select payload from "+o.table("parked"), "select payload from "+o.table("dead_edits"), "delete from "+o.table("dead"),
			"update "+o.table("dead")+" set payload = ''", "insert into "+o.table("log")+" (partition, id, topic, type) values (0, 'a', 'b', 'c')")
		_, discardErr := deadletter.New(o).DiscardDead(ctx, store.DeadFilter{}, "me", "because", 1)
		redrive, redriveErr := deadletter.New(o).StartRedrive(ctx, deadletter.Plan{By: "me"})
		if allowed := what == "operator"; (discardErr == nil) != allowed || (redriveErr == nil) != allowed {
			t.Errorf("%s: discard: %v, redrive: %v", what, discardErr, redriveErr)
		}
		id := what + "-decides"
		decideErr := held.New(o).RecordDecision(ctx, store.Decision{ID: id, Relay: "r", MessageID: "parked", Verb: store.VerbRetry, By: "me"})
		if allowed := what == "operator"; (decideErr == nil) != allowed {
			t.Errorf("%s: decision about a parked message: %v", what, decideErr)
		}
		if _, err := o.Acquire(ctx, "r", store.Owner{ID: what}, acquire(0)); !errors.Is(err, store.ErrDenied) {
			t.Errorf("%s: lease: %v, want ErrDenied", what, err)
		}
		_, pauseErr := pauses.New(o).Pause(ctx, pauses.Request{Relay: "r", By: "me"})
		_, resumeErr := pauses.New(o).Resume(ctx, "r")
		if allowed := what == "operator"; (pauseErr == nil) != allowed || (resumeErr == nil) != allowed {
			t.Errorf("%s: pause: %v, resume: %v", what, pauseErr, resumeErr)
		}
		actErr := admin.New(o, admin.Config{}).Act(ctx, admin.Principal{Subject: "me", Role: admin.Admin}, admin.Change{Action: "PlaceHold"}, func(db held.Database) error {
			_, err := legalhold.New(db).Place(ctx, "me", "because")
			return err
		})
		if allowed := what == "operator"; (actErr == nil) != allowed {
			t.Errorf("%s: a legal hold, on record: %v", what, actErr)
		}
		if found, err := held.New(o).FindParked(ctx, "r", "parked"); err != nil || len(found) != 1 || found[0].Unreadable == "" {
			t.Errorf("%s sees parked messages %+v, %v", what, found, err)
		}
		if what == "operator" { // a relay drives the redrive
			if r, err := deadletter.New(owner.as(t, "relay")).Drive(ctx, redrive.ID, nil); err != nil || r.Done != 1 {
				t.Errorf("redrive: %+v, %v", r, err)
			}
			owner.deadLetter(t, "r", 1)
		}
	}
}

func TestGrantsRefuseNames(t *testing.T) {
	t.Parallel()
	for _, names := range [][2]string{{"relay", "a'b"}, {"relay", ""}, {"relay", `a"b`}, {"dba", "a"}} {
		if sql, err := postgres.Grants(postgres.Config{}, names[0], names[1]); err == nil {
			t.Errorf("%q: %s", names, sql)
		}
	}
}

// deadLetter dead-letters n messages of a consumer.
func (b *bundle) deadLetter(t *testing.T, name string, n int) {
	t.Helper()
	ctx := t.Context()
	if err := b.Enroll(ctx, name); err != nil {
		t.Fatal(err)
	}
	err := pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		for range n {
			m := &postrider.Message{ID: rand.Text(), Type: "t", Topic: "t", Time: time.Now(), Payload: []byte("{}"), Headers: map[string]string{"a": "b"}}
			if err := b.Park(ctx, tx, name, []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestGrantsOfAnAdmin: the administration works with the rights of an admin. It cannot change the audit, which nobody else can read.
func TestGrantsOfAnAdmin(t *testing.T) {
	t.Parallel()
	owner := setup(t, postgres.Config{Partitions: 1})
	owner.deadLetter(t, "r", 3)
	b, ctx := owner.as(t, "admin"), t.Context()
	service := admin.New(b, admin.Config{Name: "shop", Show: []admin.Rule{{Type: "*", All: true}}})
	p := admin.Principal{Subject: "ada", Role: admin.Admin}
	if _, err := service.Overview(ctx, p); err != nil {
		t.Error(err)
	}
	if d, _, err := service.DeadLetter(ctx, p, 1); err != nil || len(d.Payload) != 1 || d.Payload[0].Text != "{}" {
		t.Errorf("dead letter: %+v, %v", d.Payload, err)
	}
	if err := service.EditDead(ctx, p, 1, `{"a": 1}`, 0, "fix"); err != nil {
		t.Error(err)
	}
	if _, err := service.RedriveDead(ctx, p, 1, ""); err != nil {
		t.Error(err)
	}
	if err := service.DiscardDead(ctx, p, 2, "duplicate"); err != nil {
		t.Error(err)
	}
	r, err := service.StartReview(ctx, p, admin.ReviewDiscard, store.DeadFilter{})
	if err == nil {
		_, _, err = service.ExecuteReview(ctx, p, r.ID, admin.Execution{Digest: r.Digest, Reason: "test"})
	}
	if err != nil {
		t.Error(err)
	}
	if _, _, err := service.CreateToken(ctx, p, "ci", admin.Viewer, nil, admin.UsePeople, time.Hour); err != nil {
		t.Error(err)
	}
	if _, _, err := service.Sagas(ctx, p, store.SagaFilter{}, "", 10); err != nil {
		t.Error(err)
	}
	if _, _, err := service.SagaQuestions(ctx, p, "", "", 10); err != nil {
		t.Error(err)
	}
	if entries, _, err := service.Activity(ctx, p, "", 10); err != nil || len(entries) != 5 {
		t.Errorf("audit: %+v, %v", entries, err)
	}
	b.mayNot(t, "update "+b.table("audit")+" set body = ''", "delete from "+b.table("audit"), "truncate "+b.table("audit"))
	for _, what := range []string{"relay", "consumer", "publisher", "viewer", "operator"} {
		owner.as(t, what).mayNot(t, "select from "+b.table("audit"), "select from "+b.table("auth"),
			"insert into "+b.table("auth")+" (kind, id, body) values ('token', 'a', '')")
	}
}
