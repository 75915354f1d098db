package inbox_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
)

// TestDivided: the steps of docs/brokers/nats.md to partition a stream that is in use.
func TestDivided(t *testing.T) {
	t.Parallel()
	address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique()}
	p, err := natsbroker.Open(context.Background(), address, cfg)
	must(t, err)
	closing(t, p)
	whole := inboxtest.Source{Publish: p.Publish, Topic: topic, Join: joinNATS(address, cfg, "", false)}
	parts := inboxtest.Source{Topic: topic, Join: whole.Join, Publish: publishAgain(t, func(ctx context.Context) (*natsbroker.Publisher, error) {
		cfg := cfg
		cfg.Partitioned = true
		return natsbroker.Open(ctx, address, cfg)
	})}
	inboxtest.Divided(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, whole, parts, func(t testing.TB) {
		stream, err := jetStream(t, address).Stream(t.Context(), cfg.Stream)
		must(t, err)
		changed := stream.CachedInfo().Config
		changed.Subjects = append(changed.Subjects, cfg.Stream+"-p.>")
		_, err = jetStream(t, address).UpdateStream(t.Context(), changed)
		must(t, err)
	})
}
