package inbox

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// logRows are stored positions by partition.
type logRows map[string]store.LogPosition

func (r logRows) get(partition string) *store.LogPosition {
	p, ok := r[partition]
	if !ok {
		return nil
	}
	return &p
}

// move stores positions in one transaction, unless another process has moved one of them.
func (r logRows) move(all ...store.LogPosition) bool {
	for _, p := range all {
		if r[p.Partition].Number != p.Number-1 {
			return false
		}
	}
	for _, p := range all {
		r[p.Partition] = p
	}
	return true
}

func (r logRows) all() (out []store.LogPosition) {
	for _, p := range r {
		out = append(out, p)
	}
	return out
}

// sameLog has all messages that it is asked for.
type sameLog struct{ postrider.Log }

func (sameLog) VerifyPosition(context.Context, postrider.Position) (postrider.PositionState, error) {
	return postrider.PositionKept, nil
}

var (
	wholeLog = postrider.LogPartition{Name: "log", Parts: []string{"log/0", "log/1"}, First: 1, End: 1_000}
	logParts = []postrider.LogPartition{
		{Name: "log/0", Whole: "log", First: 1, End: 1_000}, {Name: "log/1", Whole: "log", Number: 1, First: 1, End: 1_000},
	}
)

// opened is what a run stores when it begins.
func opened(t *testing.T, rows logRows, part postrider.LogPartition) []store.LogPosition {
	t.Helper()
	own := rows.get(part.Name)
	b := beginning{at: own}
	switch {
	case part.Whole != "":
		b = inPart(part, own, rows.get(part.Whole))
	case own != nil && own.Divided:
		r := &logRun[any]{ctx: t.Context(), src: &logSource[any]{log: sameLog{}}}
		var err error
		if b, err = r.inWhole(part, own, []*store.LogPosition{rows.get("log/0"), rows.get("log/1")}); err != nil {
			t.Fatal(err)
		}
	}
	p := store.LogPosition{Partition: part.Name}
	if b.at != nil {
		p = *b.at
	}
	p.Number, p.Whole, p.From = p.Number+1, part.Whole, b.from
	if b.divided != nil {
		return []store.LogPosition{*b.divided, p}
	}
	return []store.LogPosition{p}
}

// at returns the position stored by a run that goes on from p.
func at(p store.LogPosition, offset int64) store.LogPosition {
	p.Number, p.Offset = p.Number+1, offset
	return p
}

func last(all []store.LogPosition) store.LogPosition { return all[len(all)-1] }

// TestLatePositions: a process that has not noticed yet that a log was divided, or is whole again, stores a position late. Nobody begins
// with it.
func TestLatePositions(t *testing.T) {
	t.Parallel()
	rows := make(logRows)
	offset := func(step string, part postrider.LogPartition, want int64) store.LogPosition {
		t.Helper()
		begins := opened(t, rows, part)
		if p := last(begins); p.Offset != want {
			t.Fatalf("%s: %s begins after %d, want %d: %+v", step, part.Name, p.Offset, want, rows)
		}
		if !rows.move(begins...) {
			t.Fatalf("%s: the position in %s is refused: %+v in %+v", step, part.Name, begins, rows)
		}
		return last(begins)
	}
	whole := offset("new", wholeLog, 0)
	rows.move(at(whole, 10))
	late := at(rows["log"], 15)
	slow := opened(t, rows, logParts[1]) // looked at the log while it was divided
	first := offset("divided", logParts[0], 10)
	if rows.move(late) || rows.move(slow...) {
		t.Fatal("the position in the whole moves although the log is divided")
	}
	slow = opened(t, rows, logParts[1])
	rows.move(at(first, 20))
	first = offset("divided, once more", logParts[0], 20)
	whole = offset("whole, and one part was not read", wholeLog, 10)
	rows.move(at(whole, 100))
	if !rows.move(slow...) || !rows.move(at(first, 30)) {
		t.Fatal("the test is wrong: these positions are refused")
	}
	whole = offset("whole, and positions in parts came late", wholeLog, 100)
	rows.move(at(whole, 200))
	first, second := offset("divided again", logParts[0], 200), offset("divided again", logParts[1], 200)
	rows.move(at(first, 300))
	rows.move(at(second, 250))
	offset("whole again", wholeLog, 250)
}

// TestPositionsThatKeepIDs: the IDs beyond a position are kept while reading can begin with it, and operators see it while it is read by.
func TestPositionsThatKeepIDs(t *testing.T) {
	t.Parallel()
	rows := make(logRows)
	check := func(step string, part postrider.LogPartition, keep, current map[string]bool) {
		t.Helper()
		for name, p := range rows {
			if got := beginsWith(part, &p, rows.all()); got != keep[name] {
				t.Errorf("%s: %s may begin with the position in %s: %v, want %v", step, part.Name, name, got, keep[name])
			}
			if got := p.IsCurrent(rows.all()); got != current[name] {
				t.Errorf("%s: the position in %s is current: %v, want %v", step, name, got, current[name])
			}
		}
	}
	type set = map[string]bool
	rows.move(opened(t, rows, wholeLog)...)
	check("whole", wholeLog, set{"log": true}, set{"log": true})
	check("divided, not read yet", logParts[0], set{"log": true}, set{"log": true})
	rows.move(opened(t, rows, logParts[0])...)
	check("divided", logParts[0], set{"log/0": true}, set{"log/0": true})
	check("divided, one part not read yet", logParts[1], set{"log": true}, set{"log/0": true})
	rows.move(opened(t, rows, logParts[1])...)
	check("divided, all read", logParts[1], set{"log/1": true}, set{"log/0": true, "log/1": true})
	check("whole, not read yet", wholeLog, set{"log": true, "log/0": true, "log/1": true}, set{"log/0": true, "log/1": true})
	rows.move(opened(t, rows, wholeLog)...)
	check("whole again", wholeLog, set{"log": true}, set{"log": true})
	check("divided again", logParts[0], set{"log": true, "log/0": true}, set{"log": true})
}

// TestOpenMessagesOfParts: messages beyond the lowest position may have been processed for as long as in any part.
func TestOpenMessagesOfParts(t *testing.T) {
	t.Parallel()
	own := &store.LogPosition{Partition: "log", Number: 2, Divided: true, Offset: 10, Moved: time.Hour}
	parts := []*store.LogPosition{
		{Whole: "log", From: 2, Offset: 50, Moved: time.Minute, Open: 30 * time.Minute}, {Whole: "log", From: 2, Offset: 40, Moved: 2 * time.Minute},
	}
	r := &logRun[any]{ctx: t.Context(), src: &logSource[any]{log: sameLog{}}}
	b, err := r.inWhole(wholeLog, own, parts)
	if err != nil {
		t.Fatal(err)
	}
	if b.at.Offset != 40 || b.at.Moved+b.at.Open != 31*time.Minute || b.at.Number != 2 || b.at.Divided {
		t.Errorf("begins with %+v, want the lowest position, and 31 minutes", b.at)
	}
}
