package admin_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/store/memory"
)

// TestChecksAreShared: however often and by whichever names viewers ask, the checks run at most every ten seconds, and the report does
// not depend on how long the first one waits.
func TestChecksAreShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		counted := func(name string) doctor.Check {
			return doctor.Check{Name: name, Run: func(context.Context) ([]doctor.Finding, error) {
				runs++
				return nil, nil
			}}
		}
		service := admin.New(memory.New(memory.Config{}), admin.Config{Checks: []doctor.Check{counted("x.one"), counted("x.two"), {
			Name: "fails", Run: func(context.Context) ([]doctor.Finding, error) { return nil, errors.New("no user " + secret) },
		}}})
		short, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
		defer cancel()
		<-short.Done()
		_, _ = service.Doctor(short, viewer, nil) // it may have given up before it began
		for range 20 {
			r, err := service.Doctor(t.Context(), viewer, []string{"x", "x", "x.one"})
			if must(t, err); len(r.Results) != 2 || r.Count(doctor.Passed) != 2 {
				t.Fatalf("%+v", r)
			}
		}
		if runs != 2 {
			t.Errorf("the two checks ran %d times", runs)
		}
		if r, err := service.Doctor(t.Context(), viewer, []string{"fails"}); err != nil || r.Results[0].Outcome != doctor.CouldNotCheck || strings.Contains(r.Results[0].Reason, secret) {
			t.Errorf("a check that fails: %+v, %v", r.Results, err)
		}
		if _, err := service.Doctor(t.Context(), viewer, []string{"x.three"}); !errors.Is(err, admin.ErrNotFound) {
			t.Errorf("a check that does not exist: %v", err)
		}
	})
}
