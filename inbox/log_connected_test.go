package inbox_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/store/memory"
)

// TestConnectedToALog: a consumer of a log says that it is not connected while the broker is away, also if it began then, and that it is
// when the broker is back, although nothing new is there to be read.
func TestConnectedToALog(t *testing.T) {
	t.Parallel()
	for name, awayFirst := range map[string]bool{"while it runs": false, "from the beginning": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, gone := newBroker(t), errors.New("the broker is away")
				if awayFirst {
					b.SetUnavailable(gone)
				}
				c, log := startedFrom(t, b, inbox.ConsumerConfig{}, func(context.Context, *memory.Tx, *postrider.Message) error { return nil })
				for range 2 {
					for _, away := range []error{gone, nil} {
						b.SetUnavailable(away)
						for range 20 {
							time.Sleep(20 * time.Second)
							if c.Connected() != (away == nil) {
								t.Fatalf("connected: %v, and the broker is away: %v\n%s", c.Connected(), away, log)
							}
						}
					}
				}
			})
		})
	}
}
