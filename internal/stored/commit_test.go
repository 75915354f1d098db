package stored

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestWithGrace: a COMMIT has as long as it needs while the caller waits, and some seconds after that.
func TestWithGrace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		caller, end := context.WithCancel(t.Context())
		ctx, cancel := WithGrace(caller)
		defer cancel()
		time.Sleep(time.Hour)
		end()
		time.Sleep(commitGrace - 1)
		synctest.Wait()
		if err := ctx.Err(); err != nil {
			t.Errorf("before the time is up: %v", err)
		}
		time.Sleep(1)
		synctest.Wait()
		if ctx.Err() == nil {
			t.Error("it does not end")
		}
	})
}
