package machine

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

// TestSecondUndoIsSpread: undos that were sent together are not sent again together, but after their timeout and a backoff. The last one has
// its timeout only. Those of a contract are sent like those of a definition.
func TestSecondUndoIsSpread(t *testing.T) {
	t.Parallel()
	p := testPolicy
	p.UndoAttempts, p.BackoffBase, p.BackoffMax = 2, 10*time.Second, time.Minute
	seen := Input{Event: &postrider.Message{Type: "created", ID: "m", Payload: []byte("{}")}}
	for kind, tt := range map[string]struct {
		rules Rules
		begin Input
	}{"definition": {saga(t, requested("reserve")), Input{Start: &Start{}}}, "contract": {shop(t), seen}} {
		waits := make(map[time.Duration]bool)
		for i := range 100 {
			in := Instance{ID: "42", Run: fmt.Sprint("run ", i), Data: []byte("{}"), State: State{Token: "token"}}
			advance := func(input Input) {
				var err error
				if in, _, err = tt.rules.Advance(p, in, input); err != nil {
					t.Fatal(err)
				}
			}
			advance(tt.begin)
			advance(says(VerbCancel, ""))
			due := in.State.next()
			waits[due] = true
			if least := p.UndoTimeout + p.BackoffBase/2; due < least || due > least+p.BackoffBase/2 {
				t.Errorf("%s: the second undo is sent after %s, want %s to %s", kind, due, least, least+p.BackoffBase/2)
			}
			advance(Input{Age: due, ReadUpTo: due, Timer: &Fired{ID: in.State.Timer.ID}})
			if wait := in.State.next() - due; wait != p.UndoTimeout {
				t.Errorf("%s: the last undo has %s, want %s", kind, wait, p.UndoTimeout)
			}
		}
		if len(waits) < 90 {
			t.Errorf("%s: 100 instances wait %d different times", kind, len(waits))
		}
	}
}
