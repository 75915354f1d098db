package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestDivided: the steps of docs/brokers/nats.md to partition a stream that is in use.
func TestDivided(t *testing.T) {
	t.Parallel()
	log := dividedStream(t)
	inboxtest.Divided(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, log.Whole, log.Parts, log.Divide)
}

// TestDividedAgain: a stream is divided, recreated, made whole and divided again, and one process does not notice that it was whole.
func TestDividedAgain(t *testing.T) {
	t.Parallel()
	inboxtest.DividedAgain(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, dividedStream(t))
}

// dividedStream creates a stream that is not divided yet.
func dividedStream(t *testing.T) inboxtest.DividedLog {
	address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique()}
	p, err := natsbroker.Open(context.Background(), address, cfg)
	must(t, err)
	closing(t, p)
	js := jetStream(t, address)
	edit := func(t testing.TB, subjects ...string) {
		stream, err := js.Stream(t.Context(), cfg.Stream)
		must(t, err)
		changed := stream.CachedInfo().Config
		changed.Subjects = subjects
		_, err = js.UpdateStream(t.Context(), changed)
		must(t, err)
	}
	plain, parts := cfg.Stream+".>", cfg.Stream+"-p.>"
	log := inboxtest.DividedLog{
		Name:   cfg.Stream,
		Whole:  inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinNATS(address, cfg, "", false)},
		Divide: func(t testing.TB) { edit(t, plain, parts) },
		Join: func(t testing.TB) {
			edit(t, plain)
			stream, err := js.Stream(t.Context(), cfg.Stream)
			must(t, err)
			must(t, stream.Purge(t.Context(), jetstream.WithPurgeSubject(parts)))
		},
		Recreate: func(t testing.TB) {
			stream, err := js.Stream(t.Context(), cfg.Stream)
			must(t, err)
			deleteStream(t, js, cfg.Stream)
			_, err = js.CreateStream(t.Context(), stream.CachedInfo().Config)
			must(t, err)
		},
	}
	log.Parts = log.Whole
	log.Parts.Publish = publishAgain(t, func(ctx context.Context) (*natsbroker.Publisher, error) {
		cfg := cfg
		cfg.Partitioned = true
		return natsbroker.Open(ctx, address, cfg)
	})
	return log
}
