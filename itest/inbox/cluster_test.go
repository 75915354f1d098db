package inbox_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// TestCluster: consumers read the log of a stream with three replicas while its leader is killed.
func TestCluster(t *testing.T) {
	t.Parallel()
	inboxtest.ByID(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, openCluster(t))
}

// openCluster starts a cluster of three servers. Some time after the leader of the stream is killed, its server is started again.
func openCluster(t testing.TB) inboxtest.Source {
	dir, err := os.MkdirTemp("", "postrider-cluster-") //nolint:usetesting // a killed server may still write there when the test ends
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	ctx := context.WithoutCancel(t.Context())
	c, err := process.StartNATSCluster(ctx, servertest.Get(t, servertest.NATSBin), dir, 3)
	must(t, err)
	t.Cleanup(func() {
		for _, s := range c.Servers {
			_ = s.Kill() // it may have ended
		}
	})
	cfg := natsbroker.Config{Stream: unique(), Replicas: 3, PublishTimeout: time.Second}
	var p *natsbroker.Publisher
	for p == nil { // until the cluster has a leader
		if p, err = natsbroker.Open(ctx, c.URL(), cfg); err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	closing(t, p)
	published, leader := 0, -1
	t.Cleanup(func() {
		if leader < 0 || published < 50 {
			t.Errorf("%d messages, and server %d was killed", published, leader)
		}
	})
	publish := func(ctx context.Context, msgs []*postrider.Message) []error {
		switch published++; published {
		case 25:
			leader = leaderOf(t, c.URL(), cfg.Stream)
			must(t, c.Servers[leader].Kill())
		case 50:
			must(t, c.Start(leader))
		}
		for {
			if err := errors.Join(p.Publish(ctx, msgs)...); err == nil {
				return nil
			}
			<-time.After(20 * time.Millisecond)
		}
	}
	return inboxtest.Source{Publish: publish, Topic: topic, Join: joinNATS(c.URL(), cfg, "", false)}
}

// leaderOf waits until a stream has a leader and up-to-date replicas, and returns the number of its server.
func leaderOf(t testing.TB, address, name string) int {
	t.Helper()
	js := jetStream(t, address)
	for ; ; <-time.After(20 * time.Millisecond) {
		stream, err := js.Stream(context.Background(), name)
		if err != nil {
			continue
		}
		cluster := stream.CachedInfo().Cluster
		ready := cluster.Leader != "" && len(cluster.Replicas) == 2
		for _, r := range cluster.Replicas {
			ready = ready && r.Current && !r.Offline
		}
		if ready {
			n, err := strconv.Atoi(cluster.Leader)
			must(t, err)
			return n
		}
	}
}
