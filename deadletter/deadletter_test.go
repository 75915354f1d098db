package deadletter_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// withDead returns a store in which consumer "view" has dead-lettered n messages.
func withDead(t testing.TB, cfg memory.Config, n int) *memory.Store {
	t.Helper()
	s := memory.New(cfg)
	must(t, s.Enroll(t.Context(), "view"))
	var dead []store.ParkRequest
	for i := range n {
		dead = append(dead, request(i, fmt.Sprintf("order %d is unknown", i)))
	}
	deadLetter(t, s, dead)
	return s
}

func request(i int, cause string) store.ParkRequest {
	return store.ParkRequest{Dead: &store.DeadRequest{Reason: "refused"}, Cause: cause, Message: &postrider.Message{
		ID: fmt.Sprint("m-", i), Type: "order.placed", Topic: "orders", Source: "test", Time: time.Unix(0, 0), Payload: []byte(`{}`),
	}}
}

func deadLetter(t testing.TB, s *memory.Store, dead []store.ParkRequest) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	must(t, err)
	must(t, s.Park(t.Context(), tx, "view", dead))
	must(t, s.Commit(t.Context(), tx))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, s *memory.Store, rate float64) store.Redrive {
	t.Helper()
	r, err := deadletter.New(s).StartRedrive(t.Context(), deadletter.Plan{Rate: rate, By: "olga"})
	must(t, err)
	return r
}

func TestDriveKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, began := withDead(t, memory.Config{}, 101), time.Now()
		r := start(t, s, 10)
		end, err := deadletter.New(s).Drive(t.Context(), r.ID, nil)
		must(t, err)
		if took := time.Since(began); end.Done != 101 || took < 9*time.Second || took > 11*time.Second {
			t.Errorf("%d dead letters at 10 a second took %s", end.Done, took)
		}
	})
}

func TestDriveStopsWithItsContextAndContinuesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := withDead(t, memory.Config{}, 40)
		r := start(t, s, 4)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		cut, err := deadletter.New(s).Drive(ctx, r.ID, nil)
		if !errors.Is(err, context.DeadlineExceeded) || cut.Done < 15 || cut.Done > 25 {
			t.Fatalf("after 5 s at 4 a second: %d done, %v", cut.Done, err)
		}
		end, err := deadletter.New(s).Drive(t.Context(), r.ID, nil)
		if err != nil || end.Done != 40 || end.State != store.RedriveFinished {
			t.Errorf("in the end: %+v, %v", end, err)
		}
	})
}

// TestImportHasALineLimit: an import reads a line that is as long as it may be, and refuses a longer one without reading on.
func TestImportHasALineLimit(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	_, err := deadletter.New(withDead(t, memory.Config{}, 1)).Export(t.Context(), &out, store.DeadFilter{})
	must(t, err)
	limit := out.Len()
	s := memory.New(memory.Config{})
	done, err := deadletter.New(s).ImportLines(t.Context(), strings.NewReader(out.String()), limit)
	if must(t, err); done.New != 1 {
		t.Errorf("a line of the limit: %+v", done)
	}
	long := strings.NewReader(out.String() + " " + out.String() + strings.Repeat(out.String(), 1_000))
	_, err = deadletter.New(s).ImportLines(t.Context(), long, limit)
	if want := fmt.Sprintf("line 2: longer than %d bytes", limit); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a longer line: %v, want %q in it", err, want)
	}
	if rest := long.Len(); rest == 0 {
		t.Error("the rest of the file was read")
	}
}

func TestImportSaysWhatItCannotRead(t *testing.T) {
	t.Parallel()
	s := withDead(t, memory.Config{}, 3)
	var out bytes.Buffer
	n, err := deadletter.New(s).Export(t.Context(), &out, store.DeadFilter{})
	if must(t, err); n != 3 {
		t.Fatalf("exported %d", n)
	}
	line := func(right, wrong string) string { return strings.Replace(out.String(), right, wrong, 1) }
	for text, want := range map[string]string{
		"not json":                                                  "line 1",
		out.String() + "{}":                                         "line 4: dead letter 0: it has no message",
		line(`"state":"open"`, `"state":"lost"`):                    "line 1: dead letter 1: its state",
		line(`"relay":"view"`, `"relay":""`):                        "its relay or consumer",
		line(`"number":1`, `"nubmer":1`):                            "nubmer",
		line(`"attempts":0`, `"unreadable":"headers","attempts":0`): "could not be read",
		line("}\n{", "}{"):                                          "line 1: there is more after dead letter 1",
		line("}\n{", "}]\n{"):                                       "line 1: there is more after dead letter 1",
	} {
		_, err := deadletter.New(memory.New(memory.Config{})).Import(t.Context(), strings.NewReader(text), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("import of %.80q: %v, want %q in it", text, err, want)
		}
	}
	broken := io.MultiReader(&out, iotest.ErrReader(errors.New("the disk is gone")))
	done, err := deadletter.New(memory.New(memory.Config{})).Import(t.Context(), broken, nil)
	if err == nil || !strings.Contains(err.Error(), "the disk is gone") || done.New != 0 {
		t.Errorf("import from a broken file: %+v, %v", done, err)
	}
}

// cutOff is a store whose database fails after some pages of dead letters, and in which others edit dead letters while they are
// listed.
type cutOff struct {
	*memory.Store
	pages int
	edit  func()
}

func (c *cutOff) View(ctx context.Context, op store.Operation, f func(store.Reader) error) error {
	if op.Method != "ListDead" {
		return c.Store.View(ctx, op, f)
	}
	if c.pages--; c.pages < 0 {
		return errors.New("the database is away")
	}
	err := c.Store.View(ctx, op, f)
	if c.edit != nil {
		c.edit()
	}
	return err
}

// disk has space for a number of bytes.
type disk struct{ room int }

func (d *disk) Write(p []byte) (int, error) {
	if d.room -= len(p); d.room < 0 {
		return len(p) + d.room, errors.New("the disk is full")
	}
	return len(p), nil
}

// TestExportThatFails: the count matches what was written, and no dead letter is written partially unless the disk is
// full.
func TestExportThatFails(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	s := withDead(t, memory.Config{}, 120)
	n, err := deadletter.New(&cutOff{Store: s, pages: 1}).Export(t.Context(), &out, store.DeadFilter{})
	if err == nil || n != 100 || strings.Count(out.String(), "\n") != 100 || !strings.HasSuffix(out.String(), "}\n") {
		t.Errorf("exported %d letters, %v:\n%s", n, err, out.String())
	}
	n, err = deadletter.New(s).Export(t.Context(), &disk{room: strings.Index(out.String(), `{"number":4`) + 10}, store.DeadFilter{})
	if err == nil || n != 3 {
		t.Errorf("exported %d dead letters to a disk with room for three, %v", n, err)
	}
}

func TestExportWhileDeadLettersAreEdited(t *testing.T) {
	t.Parallel()
	s := withDead(t, memory.Config{}, 2)
	edit := func(number int64) {
		l, err := deadletter.New(s).ShowDead(t.Context(), number)
		must(t, err)
		_, err = deadletter.New(s).EditDead(t.Context(), number, store.Edit{Payload: fmt.Append(nil, l.Edits+1), Seen: l.Edits, By: "otto"})
		must(t, err)
	}
	edit(2)
	var out bytes.Buffer
	_, err := deadletter.New(&cutOff{Store: s, pages: 1, edit: func() { edit(1); edit(2) }}).Export(t.Context(), &out, store.DeadFilter{})
	must(t, err)
	for line := range strings.Lines(out.String()) {
		var a store.ArchivedDead
		must(t, json.Unmarshal([]byte(line), &a))
		if len(a.Before) != a.Edits || string(a.Message.Payload) == "2" {
			t.Errorf("letter of %d edits with %d of them: %s", a.Edits, len(a.Before), line)
		}
	}
}

func FuzzImport(f *testing.F) {
	var out bytes.Buffer
	if _, err := deadletter.New(withDead(f, memory.Config{}, 2)).Export(f.Context(), &out, store.DeadFilter{}); err != nil {
		f.Fatal(err)
	}
	f.Add(out.String())
	f.Add("{\"number\":1}\n\n{}")
	f.Fuzz(func(t *testing.T, text string) {
		s := memory.New(memory.Config{})
		done, err := deadletter.New(s).Import(t.Context(), strings.NewReader(text), nil)
		n, countErr := deadletter.New(s).CountDead(t.Context(), store.DeadFilter{State: store.DeadAny})
		if must(t, countErr); n != done.New || done.New > done.DeadLetters {
			t.Errorf("%d dead letters are there after %+v, %v", n, done, err)
		}
		var first, second bytes.Buffer
		all := store.DeadFilter{State: store.DeadAny}
		_, err = deadletter.New(s).Export(t.Context(), &first, all)
		must(t, err)
		if again, err := deadletter.New(s).Import(t.Context(), strings.NewReader(first.String()), nil); err != nil || again.New != 0 {
			t.Errorf("what was exported is imported into the same outbox: %+v, %v", again, err)
		}
		_, err = deadletter.New(s).Export(t.Context(), &second, all)
		if must(t, err); first.String() != second.String() {
			t.Error("an import of what is there has changed it")
		}
	})
}
