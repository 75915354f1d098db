package postgres_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/postgres"
)

// TestMessagesAreFoundByAnIndex: explaining a message must not read all parked messages or dead letters.
func TestMessagesAreFoundByAnIndex(t *testing.T) {
	t.Parallel()
	b, ctx := setup(t, postgres.Config{}), t.Context()
	must(t, b.Enroll(ctx, "view"))
	tx, err := b.Begin(ctx)
	must(t, err)
	var parked []store.ParkRequest
	var dead []store.DeadLetterRequest
	for n := range 1000 {
		p := &postrider.Message{ID: fmt.Sprintf("parked-%d", n), Type: "t"}
		p.FillDefaults("test", time.Now())
		parked = append(parked, store.ParkRequest{Message: p, Reason: store.ParkRetry, After: time.Hour})
		d := &postrider.Message{ID: fmt.Sprintf("dead-%d", n), Type: "t"}
		d.FillDefaults("test", time.Now())
		dead = append(dead, store.DeadLetterRequest{Message: d, Reason: "refused", Cause: "no"})
	}
	must(t, b.Park(ctx, tx, "view", parked))
	must(t, b.DeadLetter(ctx, tx, "view", dead, false))
	must(t, b.Commit(ctx, tx))
	b.exec(t, "analyze "+b.table("parked")+", "+b.table("dead"))
	parkedPlan, deadPlan, err := b.ExplainLookups(ctx, "view", "parked-50")
	must(t, err)
	for plan, index := range map[string]string{parkedPlan: "postrider_parked_id", deadPlan: "postrider_dead_id"} {
		if !strings.Contains(plan, "Index Scan using "+index) && !strings.Contains(plan, "Bitmap Index Scan on "+index) {
			t.Errorf("not found by %s:\n%s", index, plan)
		}
	}
}
