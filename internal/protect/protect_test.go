package protect_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/protect"
)

// nilError panics as a nil pointer.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// isPanics panics when it is compared.
type isPanics struct{}

func (isPanics) Error() string { return "compare me" }
func (isPanics) Is(error) bool { panic("not comparable") }

func TestCall(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	panicked := func(v any, stack string) error { return fmt.Errorf("panic: %v\n%s", v, stack) }
	for name, c := range map[string]struct {
		f    func() error
		want string // "" for no error
	}{
		"success":         {func() error { return nil }, ""},
		"error":           {func() error { return boom }, "boom"},
		"panic":           {func() error { panic("unlucky") }, "panic: unlucky"},
		"end":             {func() error { runtime.Goexit(); return nil }, protect.ErrGoexit.Error()},
		"nil pointer":     {func() error { var e *nilError; return e }, "a method of the returned *protect_test.nilError"},
		"wrapped pointer": {func() error { var e *nilError; return errors.Join(e, boom) }, "a method of the returned"},
		"comparison":      {func() error { return isPanics{} }, "not comparable"},
	} {
		here := func() error { return protect.Here(c.f, func(v any) error { return panicked(v, "") }) }
		for way, err := range map[string]error{"call": protect.Call(c.f, panicked), "here, in a call": protect.Call(here, panicked)} {
			if c.want == "" {
				if err != nil {
					t.Errorf("%s: %s: %v", way, name, err)
				}
				continue
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: error %v, want %q", way, name, err, c.want)
			}
		}
	}
}

// TestPanicOfNil: programs whose go.mod is older than Go 1.21 panic with nil, which is no success.
func TestPanicOfNil(t *testing.T) {
	t.Setenv("GODEBUG", "panicnil=1")
	unlucky := func(v any) func() error { return func() error { panic(v) } }(nil)
	for way, err := range map[string]error{
		"call": protect.Call(unlucky, func(any, string) error { return nil }),
		"here": protect.Here(unlucky, func(any) error { return nil }),
	} {
		if err == nil {
			t.Errorf("%s: no error", way)
		}
	}
}
