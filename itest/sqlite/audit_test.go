package sqlite_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/sqlite"
)

// TestNoActionWithoutItsRecord: an action and its entry in the audit are one transaction.
func TestNoActionWithoutItsRecord(t *testing.T) {
	t.Parallel()
	_, db := cloned(t, 4)
	s, err := sqlite.New(db, sqlite.Config{})
	must(t, err)
	ctx := t.Context()
	must(t, s.Enroll(ctx, "view"))
	tx, err := s.Begin(ctx)
	must(t, err)
	m := &postrider.Message{ID: "m-1", Type: "t", Topic: "t", Time: time.Now(), Payload: []byte("{}")}
	must(t, s.Park(ctx, tx, "view", []store.ParkRequest{{Message: m, Dead: &store.DeadRequest{Reason: "refused"}, Cause: "no"}}))
	must(t, s.Commit(ctx, tx))

	_, err = db.ExecContext(ctx, "CREATE TRIGGER full BEFORE INSERT ON postrider_audit BEGIN SELECT RAISE(ABORT, 'the audit is full'); END")
	must(t, err)
	service, p := admin.New(s, admin.Config{}), admin.Principal{Subject: "olga", Role: admin.Operator}
	if err := service.DiscardDead(ctx, p, 1, "why"); err == nil {
		t.Error("discarded without a record")
	}
	if _, err := service.RedriveDead(ctx, p, 1, "why"); err == nil {
		t.Error("redriven without a record")
	}
	r, err := service.StartReview(ctx, p, admin.ReviewDiscard, store.DeadFilter{})
	must(t, err)
	if _, _, err := service.ExecuteReview(ctx, p, r.ID, admin.Execution{Digest: r.Digest, Reason: "why"}); err == nil {
		t.Error("a review was carried out without a record")
	}
	l, err := deadletter.New(s).ShowDead(ctx, 1)
	if must(t, err); l.State != store.DeadOpen {
		t.Errorf("the dead letter is %s", l.State)
	}
	for r := range deadletter.New(s).ListRedrives(ctx, "") {
		t.Errorf("there is a redrive: %+v", r)
	}
	_, err = db.ExecContext(ctx, "DROP TRIGGER full")
	must(t, err)
	if _, n, err := service.ExecuteReview(ctx, p, r.ID, admin.Execution{Digest: r.Digest, Reason: "why"}); n != 1 || err != nil {
		t.Errorf("the review afterwards: %d, %v", n, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
