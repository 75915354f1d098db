package faults

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// TestPhantoms: the server crashes just after messages were delivered whose publishers do not wait for the disk. With
// DeliverAfterFlush, every delivered message is still there. Without it, some never existed.
func TestPhantoms(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]bool{"delivered after flush": true, "delivered at once": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPostgresWorld(t, lateLog...)
			p.writeLate()
			store, err := postgres.New(openPool(t, p.url, 10), postgres.Config{DeliverAfterFlush: after, Logger: testLogger(t)})
			if err != nil {
				t.Fatal(err)
			}
			plain := newRecorder()
			p.runHandler(store, relay.Config{Name: "plain"}, plain)
			load := newLoad(t, stores[pgx.Tx](postgresStore(t, p.url+"&synchronous_commit=off", 10)), onPostgres, p.random)
			phantoms := 0
			for n := 0; n < 3 || !after && phantoms == 0 && n < 20; n++ { // a heartbeat may flush what was just delivered
				before := len(plain.seen())
				load.publish(accounts)
				await(t, "messages arrive", func() string {
					if n := len(plain.seen()) - before; n < accounts {
						return fmt.Sprintf("%d have", n)
					}
					return ""
				})
				p.crash()
				committed := setOf(p.facts())
				for _, f := range plain.seen()[before:] {
					if !committed[f] {
						phantoms++
					}
				}
			}
			if t.Logf("%d phantoms", phantoms); after == (phantoms > 0) {
				t.Errorf("a promise broke: %d delivered messages never existed after the crash", phantoms)
			}
			p.awaitDelivered(plain, "plain", p.facts(), !after)
		})
	}
}
