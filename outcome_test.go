package postrider

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

func TestOutcomeOf(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for _, c := range []struct {
		err  error
		want Outcome
		text string
	}{
		{nil, Outcome{Kind: Delivered}, ""},
		{broken, Outcome{Kind: Retried, Err: broken}, "broken"},
		{Retry(time.Minute, broken), Outcome{Kind: Retried, After: time.Minute, Err: broken}, "broken"},
		{Retry(-1, nil), Outcome{Kind: Retried}, "retry asked for"},
		{Snooze(time.Minute), Outcome{Kind: Snoozed, After: time.Minute}, "snoozed for 1m0s"},
		{Snooze(0), Outcome{Kind: Snoozed, After: time.Second}, "snoozed for 1s"},
		{Dead("no such order", broken), Outcome{Kind: DeadLettered, Reason: "no such order", Err: broken}, "dead: no such order: broken"},
		{Dead("no such order", nil), Outcome{Kind: DeadLettered, Reason: "no such order"}, "dead: no such order"},
		{Unavailable(broken), Outcome{Kind: BrokerUnavailable, Err: broken}, "unavailable: broken"},
		{Unavailable(nil), Outcome{Kind: BrokerUnavailable}, "unavailable: destination unavailable"},
	} {
		got := OutcomeOf(c.err)
		if got.Kind != c.want.Kind || got.After != c.want.After || got.Reason != c.want.Reason {
			t.Errorf("%v: got %+v, want %+v", c.err, got, c.want)
		}
		if c.want.Err != nil && !errors.Is(got.Err, c.want.Err) {
			t.Errorf("%v: the cause is lost: %v", c.err, got.Err)
		}
		if c.err == nil {
			continue
		}
		if c.err.Error() != c.text {
			t.Errorf("got %q, want %q", c.err, c.text)
		}
		if got.Reason != "" && got.Err != nil && got.Err.Error() != "broken" {
			t.Errorf("the cause repeats the reason: %v", got.Err)
		}
		wrapped := OutcomeOf(fmt.Errorf("charge: %w", c.err))
		if wrapped.Kind != got.Kind || wrapped.After != got.After || wrapped.Reason != got.Reason {
			t.Errorf("wrapped: got %+v, want %+v", wrapped, got)
		}
		if got.Err != nil && wrapped.Err.Error() != "charge: "+c.text {
			t.Errorf("the wrapping is lost in the cause: %v", wrapped.Err)
		}
	}
}
