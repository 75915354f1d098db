package inspect_test

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inspect"
)

var update = flag.Bool("update", false, "write testdata")

// TestJSON compares an explanation of a message that blocks its key, with a recorded attempt, with testdata: names, units and
// what is left out are a contract.
func TestJSON(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish("order/1", "m-1", "m-2")
		b.settle("to-partner", hold)
		b.must(b.RecordAttempts(t.Context(), []postrider.DeliveryAttempt{{
			MessageID: "m-1", Relay: "to-partner", Attempt: 3, At: time.Now(), Took: 1500 * time.Millisecond, Outcome: "retried", Status: 503,
			Answer: []byte("not now"), Error: "webhook answered 503", RequestSHA256: []byte{0xca, 0xfe},
		}, {
			MessageID: "m-1", Relay: "to-partner", Attempt: 4, At: time.Now(), Took: time.Millisecond, Outcome: "retried", Answer: []byte{0xff},
		}}, time.Hour))
		b.enroll("view", nil)
		time.Sleep(90 * time.Second)
		e, err := inspect.Message(t.Context(), b, "m-1")
		b.must(err)
		got, err := json.MarshalIndent(e, "", "  ")
		b.must(err)
		const golden = "testdata/blocking.json"
		if *update {
			b.must(os.WriteFile(golden, append(got, '\n'), 0o600))
		}
		want, err := os.ReadFile(golden)
		b.must(err)
		if string(got)+"\n" != string(want) {
			t.Errorf("the explanation is\n%s\nwant\n%s", got, want)
		}
		var back inspect.Explanation
		b.must(json.Unmarshal(got, &back))
		if back.Message.Sequence != 1 || back.Places[0].Recorded[0].TookSeconds != 1.5 || !back.Now.Equal(e.Now) {
			t.Errorf("read again: %+v", back)
		}
	})
}
