package saga

import (
	"strconv"
	"testing"
)

// TestOverrunsAreBounded remembers messages that never come back, as after their partition moved to another process.
func TestOverrunsAreBounded(t *testing.T) {
	var o overruns
	const added = 10 * maxOverruns
	for i := range added {
		o.add(strconv.Itoa(i))
	}
	if len(o) != maxOverruns {
		t.Fatalf("%d messages are remembered, want %d", len(o), maxOverruns)
	}
	if o.take("0") {
		t.Error("the oldest message is still remembered")
	}
	newest := strconv.Itoa(added - 1)
	if !o.take(newest) {
		t.Error("the newest message was removed")
	}
	if o.take(newest) {
		t.Error("a message that came back is still remembered")
	}
	if len(o) != maxOverruns-1 {
		t.Errorf("%d messages are remembered after one came back, want %d", len(o), maxOverruns-1)
	}
}
