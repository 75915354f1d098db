package sqlite

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/store"
)

// codeError is a driver error whose code is a method.
type codeError int

func (e codeError) Error() string { return fmt.Sprintf("driver's error %d", int(e)) }
func (e codeError) Code() int     { return int(e) }

func TestErrorsAreExplainedByCode(t *testing.T) {
	t.Parallel()
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	for code, want := range map[int]error{
		5: ErrBusy, 6: ErrBusy, 261: ErrBusy, 517: ErrBusy, 8: ErrReadOnly, 1032: ErrReadOnly, 10: ErrIO, 266: ErrIO,
		11: ErrCorrupt, 26: ErrCorrupt, 13: ErrFull, 14: ErrCannotOpen, 0: nil, 1: nil, 19: nil,
	} {
		cause := fmt.Errorf("wrapped: %w", codeError(code))
		got := cfg.explain("settle", cause)
		if want != nil && !errors.Is(got, want) || !errors.Is(got, codeError(code)) || !strings.HasPrefix(got.Error(), "settle: ") {
			t.Errorf("code %d: %v, want what was done, %v and the driver's error", code, got, want)
		}
		for _, other := range []error{ErrBusy, ErrReadOnly, ErrIO, ErrCorrupt, ErrFull, ErrCannotOpen} {
			if other != want && errors.Is(got, other) {
				t.Errorf("code %d: %v is also %v", code, got, other)
			}
		}
	}
	if !errors.Is(cfg.explain("insert", codeError(517)), errOvertaken) {
		t.Error("SQLITE_BUSY_SNAPSHOT is not told apart")
	}
	if cfg.explain("settle", nil) != nil {
		t.Error("no error was explained")
	}
}

// fieldError is a driver error whose code is not a method.
type fieldError struct{ ExtendedCode int }

func (e fieldError) Error() string { return "locked" }

func TestErrorCodeServesOtherDrivers(t *testing.T) {
	t.Parallel()
	cfg, err := Config{ErrorCode: func(err error) int {
		if e, ok := errors.AsType[fieldError](err); ok {
			return e.ExtendedCode
		}
		return 0
	}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.explain("settle", fieldError{5}); !errors.Is(got, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", got)
	}
}

func TestConfigReportsEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Config{Prefix: "bad-prefix; DROP TABLE x", Partitions: store.MaxPartitions + 1, BusyTimeout: -1}.withDefaults()
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"Prefix", "Partitions", "BusyTimeout"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error does not name %s: %v", want, err)
		}
	}
	for _, prefix := range []string{"", "_", "x1_", strings.Repeat("a", 40)} {
		if _, err := (Config{Prefix: prefix}).withDefaults(); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{"1x", "é", "a b", `"`, strings.Repeat("a", 41), "x\n", "SQLite_x"} {
		if _, err := (Config{Prefix: prefix}).withDefaults(); err == nil {
			t.Errorf("prefix %q was taken", prefix)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("no *sql.DB was taken")
	}
}
