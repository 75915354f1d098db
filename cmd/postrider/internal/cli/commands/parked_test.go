package commands_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/store"
)

// withParked returns an outbox in which relay to-nats has parked two messages without a key, and holds order/1, and the IDs of
// the messages: the first is due first, the last is queued in the held key.
func withParked(t *testing.T, url string) (ids [3]string) {
	t.Helper()
	ids = [3]string{clitest.PublishID(t, url, ""), clitest.PublishID(t, url, ""), clitest.PublishID(t, url, "order/1")}
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", func(s *store.Settlement, r store.Entry) {
		m := r.Message
		p := store.ParkOutcome{Sequence: m.Sequence, Key: m.Key, FromLog: true, Reason: store.ParkRetry, Attempts: 3, Cause: "receiver says no",
			After: time.Hour}
		switch {
		case m.Key != "":
			p.Waits = true
			s.Held = append(s.Held, store.HeldKey{Key: m.Key, Sequence: m.Sequence, Reason: store.ParkRetry, Cause: p.Cause, Attempts: 3, After: time.Hour})
		case m.ID == ids[1]:
			p.Reason, p.After, p.Cause = store.ParkUnhandled, 2*time.Hour, "no handler takes order.placed"
		}
		s.Parked = append(s.Parked, p)
	})
	return ids
}

func TestParkedIsListedCountedAndShown(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		ids := withParked(t, url)
		list := clitest.OK(t, "parked", "list", "--store", url)
		clitest.Contains(t, list, ids[0], ids[1], "receiver says no", "unhandled", "NEXT ATTEMPT")
		clitest.Lacks(t, list, ids[2], "(order.placed)")
		if strings.Index(list, ids[0]) > strings.Index(list, ids[1]) {
			t.Errorf("the first due is not the first:\n%s", list)
		}
		clitest.Lacks(t, clitest.OK(t, "parked", "list", "--limit", "1", "--store", url), ids[1])
		var m store.ParkedInfo
		line, _, _ := strings.Cut(clitest.OK(t, "parked", "list", "--json", "--relay", "to-nats", "--store", url), "\n")
		clitest.Must(t, json.Unmarshal([]byte(line), &m))
		if m.Relay != "to-nats" || m.Message.ID != ids[0] || m.Attempts != 3 || m.Cause() != "receiver says no" {
			t.Errorf("as JSON: %+v", m)
		}
		clitest.Contains(t, clitest.OK(t, "parked", "count", "--store", url), "retry", "unhandled", "to-nats")
		clitest.Contains(t, clitest.OK(t, "parked", "count", "--json", "--store", url), `"reason":"unhandled","count":1`)
		clitest.Contains(t, clitest.OK(t, "parked", "show", ids[1], "--store", url), "no handler takes order.placed", "unhandled", "payload",
			"postrider parked retry "+ids[1])
		clitest.Contains(t, clitest.OK(t, "parked", "show", ids[1], "--json", "--store", url), `"reason": "unhandled"`, `"cause": "no handler takes order.placed"`)
		clitest.Contains(t, clitest.OK(t, "explain", ids[1], "--store", url), "postrider parked skip "+ids[1])
		clitest.Fails(t, program.ExitFailed, "is queued in the held key order/1", "parked", "show", ids[2], "--store", url)
		clitest.Fails(t, program.ExitFailed, "no parked message that waits by itself has this ID: m-0 (any relay)", "parked", "show", "m-0", "--store", url)
		clitest.Fails(t, program.ExitFailed, `there is no relay or consumer "other"`, "parked", "list", "--relay", "other", "--store", url)
	})
}

// TestParkedListSurvivesOneBadRow: somebody has given a parked message a due time that has no JSON form.
func TestParkedListSurvivesOneBadRow(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		ids := withParked(t, url)
		year14645, next := "400000000000000000", "due_at"
		if strings.HasPrefix(url, "postgres") {
			year14645, next = "'14645-07-01'", "next_attempt_at"
		}
		clitest.Exec(t, url, "UPDATE postrider_parked SET parked_at = "+year14645+", due_at = "+year14645+" WHERE id = '"+ids[0]+"'",
			"UPDATE postrider_held SET "+next+" = "+year14645)
		list := clitest.OK(t, "parked", "list", "--json", "--store", url)
		clitest.Contains(t, list, ids[0], ids[1], `"due_at":"9999-12-31T`)
		clitest.Contains(t, clitest.OK(t, "parked", "show", ids[0], "--json", "--store", url), `"due_at": "9999-12-31T`)
		clitest.Contains(t, clitest.OK(t, "parked", "list", "--store", url), ids[0], ids[1])
		clitest.Contains(t, clitest.OK(t, "held", "list", "--json", "--store", url), `"next_attempt":"9999-12-31T`)
	})
}

func TestParkedDecisions(t *testing.T) {
	t.Parallel()
	clitest.OverStores(t, func(t *testing.T, url string) {
		ids := withParked(t, url)
		clitest.Contains(t, clitest.OK(t, "parked", "retry", ids[0], "--store", url), "message "+ids[0]+" of relay to-nats is due at once")
		clitest.SettleDue(t, clitest.OpenOutbox(t, url), "to-nats", clitest.DeliveredAgain)
		clitest.Fails(t, program.ExitFailed, "no parked message", "parked", "skip", ids[0], "--because", "too late", "--store", url)
		clitest.Contains(t, clitest.OK(t, "parked", "skip", ids[1], "--because", "not for us", "--by", "ann", "--store", url), "skipped message "+ids[1])
		clitest.Contains(t, clitest.OK(t, "dead", "list", "--state", "discarded", "--store", url), "no handler takes")
		clitest.Fails(t, program.ExitFailed, "is queued in the held key", "parked", "dead", ids[2], "--because", "later", "--store", url)
		r := clitest.Run(t, "parked", "list", "--store", url)
		clitest.Expect(t, r, program.ExitDone, "no parked message waits by itself")
	})
}

func TestParkedIsMovedToTheDeadLetters(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	ids := withParked(t, url)
	clitest.Contains(t, clitest.OK(t, "parked", "dead", ids[1], "--because", "receiver is not ready", "--store", url),
		"sent message "+ids[1]+" of relay to-nats to the dead letters")
	clitest.Contains(t, clitest.OK(t, "dead", "show", "1", "--store", url), "receiver is not ready", ids[1])
	clitest.Contains(t, clitest.OK(t, "dead", "redrive", "1", "--yes", "--store", url), "redriven 1 dead letter")
	clitest.Contains(t, clitest.OK(t, "parked", "list", "--store", url), ids[1], "redriven")
}

func TestMessageParkedByTwoRelaysNeedsAChoice(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
	ids := withParked(t, url)
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-audit", func(s *store.Settlement, r store.Entry) {
		s.Parked = append(s.Parked, store.ParkOutcome{Sequence: r.Message.Sequence, Key: r.Message.Key, FromLog: true, Reason: store.ParkSnoozed, After: time.Hour})
	})
	clitest.Fails(t, program.ExitUsage, "choose one with --relay", "parked", "retry", ids[0], "--store", url)
	clitest.OK(t, "parked", "retry", ids[0], "--relay", "to-audit", "--store", url)
}
