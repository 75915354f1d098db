package faults

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// TestSmallPool: a program has one pool of four connections, pgxpool's default on a small machine, for relays and a
// consumer with default settings. It works, or is refused at once with the required number of connections.
func TestSmallPool(t *testing.T) {
	t.Parallel()
	const wanted = 200 // of 1,600 effects that take 150 ms each: 10 s of three connections' time
	p := newPostgresWorld(t)
	load := p.newLoad()
	for range 16 {
		load.publish(accounts)
	}
	broker := startNATS(t)
	store, err := postgres.New(openPool(t, p.url, 4), postgres.Config{Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	components := smallPoolComponents(p, store, broker.URL)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, len(components))
	for _, c := range components {
		go func() { ended <- c.Run(ctx) }()
	}
	refused := errors.New("not refused")
	var done int
	missing := awaitUntil(t, time.Now().Add(patience), func() string {
		select {
		case refused = <-ended:
			return ""
		default:
		}
		effects, err := p.effects("effects")
		if err != nil {
			return err.Error()
		}
		if done = len(effects); done < wanted {
			return "effects are missing"
		}
		return ""
	})
	cancel()
	for range components[1:] {
		<-ended
	}
	switch text := refused.Error(); {
	case text != "not refused":
		t.Logf("refused: %s", text)
		if !strings.Contains(text, "4") || !strings.Contains(text, "connections") {
			t.Errorf("Run ended with %q, which does not say how many connections there are", text)
		}
	case missing != "":
		t.Errorf("%d effects in %s, want %d", done, patience, wanted)
	}
}

// smallPoolComponents are two relays and a consumer with their defaults, on one store.
func smallPoolComponents(p *postgresWorld, store *postgres.Store, broker string) []runner {
	p.t.Helper()
	logger := testLogger(p.t)
	plain, err := relay.New(store, relay.Config{Name: "plain", Logger: logger})
	if err == nil {
		err = plain.HandleFunc("step", newRecorder().handle)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	effects, err := relay.New(store, relay.Config{Name: "effects", Logger: logger})
	add := addEffect("effects", onPostgres)
	if err == nil {
		err = relay.HandleTxFunc(effects, "step", func(ctx context.Context, tx pgx.Tx, m *postrider.Message) error {
			select {
			case <-time.After(150 * time.Millisecond):
				return add(ctx, tx, m)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	consumer, err := newConsumer(p.t.Context(), store, inbox.ConsumerConfig{Name: "consumer", Logger: logger}, broker, 30*time.Second,
		addEffect("consumer", onPostgres))
	if err != nil {
		p.t.Fatal(err)
	}
	return []runner{plain, effects, consumer}
}
