package commands_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/saga"
)

// TestShowBothKinds: an orchestrated instance and a choreographed one have the same columns in JSON, while they run, compensate and
// after their end.
func TestShowBothKinds(t *testing.T) {
	t.Parallel()
	event := func(name string) postrider.Definition[parcel] {
		return postrider.Define[parcel](name).WithTopic("parcel-events")
	}
	s := newShop(t, saga.Contract{Name: "parcels-by-events", Version: 1, Events: []saga.Event{
		{On: event("parcel.sent"), Service: "shop", Start: true, Undo: event("parcel.recall"), Undone: event("parcel.recalled")},
		{On: event("parcel.delivered"), Service: "courier", After: saga.Defs{event("parcel.sent")}, Within: time.Hour,
			Fails: saga.Defs{event("parcel.refused")}, End: true, NoUndo: true},
	}})
	publish := func(id string, events ...string) {
		_, err := s.box.InTx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			for _, name := range events {
				m, err := event(name).New(parcel{})
				if err != nil {
					return err
				}
				m.CorrelationID = id
				if _, err := s.box.Publish(ctx, tx, m); err != nil {
					return err
				}
			}
			return nil
		})
		clitest.Must(t, err)
	}
	s.start("o")
	publish("c", "parcel.sent")
	compare := func(want saga.Status) {
		t.Helper()
		orchestrated, choreographed := s.shown("o", want), s.shown("c", want)
		if orchestrated["kind"] != "orchestrated" || choreographed["kind"] != "choreographed" {
			t.Errorf("kinds %v and %v", orchestrated["kind"], choreographed["kind"])
		}
		if a, b := slices.Sorted(maps.Keys(orchestrated)), slices.Sorted(maps.Keys(choreographed)); !slices.Equal(a, b) {
			t.Errorf("%s: the columns of an orchestrated instance are\n%q, those of a choreographed one\n%q", want, a, b)
		}
	}
	s.ok("skip", "o", "--step", "review")
	s.ok("answer", "o", "--step", "release", "--option", "yes")
	s.is("o", saga.Running, "ship")
	compare(saga.Running)
	s.ok("cancel", "o")
	publish("c", "parcel.refused")
	compare(saga.Compensating)
	s.ok("undone", "o", "--step", "ship")
	publish("c", "parcel.recalled")
	compare(saga.Compensated)
}

// shown waits for a status of an instance, and returns what show --json writes.
func (s *shop) shown(id string, want saga.Status) (columns map[string]any) {
	s.t.Helper()
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		shown := clitest.Run(s.t, "saga", "show", id, "--json", "--store", s.url)
		columns = nil
		if shown.Code == 0 {
			clitest.Must(s.t, json.Unmarshal([]byte(shown.Out), &columns))
		}
		if columns["status"] == string(want) {
			return columns
		}
		if time.Since(begun) > 3*time.Minute {
			s.t.Fatalf("instance %s is not %s: %s%s", id, want, shown.Out, shown.Err)
		}
	}
}
