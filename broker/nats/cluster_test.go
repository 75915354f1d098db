package natsbroker_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/internal/servertest"
)

// TestLeaderLoss repeatedly stops the leader of a stream while publishing: no acknowledged message is lost, and the
// order of every key is kept. With replicas, another server takes over. Without, the stream is unavailable until its
// server is restarted, and messages are sent in batches.
func TestLeaderLoss(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{3, 1} {
		t.Run(fmt.Sprint(replicas), func(t *testing.T) {
			t.Parallel()
			testLeaderLoss(t, replicas)
		})
	}
}

func testLeaderLoss(t *testing.T, replicas int) {
	servers := startCluster(t, 3)
	var addresses []string
	for _, s := range servers {
		addresses = append(addresses, s.address())
	}
	all := strings.Join(addresses, ",")
	p := open(t, fmt.Sprintf("nats://%s?stream=ORDERS&replicas=%d&publish_timeout=2s", all, replicas), natsbroker.Config{
		Options: []nats.Option{nats.CustomReconnectDelay(func(int) time.Duration { return 10 * time.Millisecond })},
	})
	_, js := connect(t, all, nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 2 {
			leader := awaitLeader(t, js, "ORDERS", "")
			for _, s := range servers {
				if s.server.Name() == leader {
					s.stop(t)
					if replicas > 1 {
						awaitLeader(t, js, "ORDERS", leader)
					}
					s.start(t)
				}
			}
		}
	}()
	var sent []*postrider.Message
	keys := []string{"a", "b", "c", "d"}
	for n := int64(1); ; n++ {
		var batch []*postrider.Message
		for i := range 200 {
			batch = append(batch, &postrider.Message{
				ID: fmt.Sprintf("%d-%d", n, i), Type: "test", Topic: "orders", Key: keys[i%len(keys)],
				AggregateVersion: n*1_000 + int64(i), Payload: []byte("x"),
			})
		}
		sent = append(sent, batch...)
		deliver(t, p, batch)
		select {
		case <-done:
		default:
			continue
		}
		break
	}
	awaitLeader(t, js, "ORDERS", "")
	last := make(map[string]int64)
	seen := make(map[string]bool)
	for _, m := range arrived(t, all, "ORDERS", "orders") {
		if !seen[m.ID] && m.AggregateVersion <= last[m.Key] {
			t.Errorf("message %s of key %s arrived after number %d", m.ID, m.Key, last[m.Key])
		}
		seen[m.ID], last[m.Key] = true, m.AggregateVersion
	}
	if len(seen) != len(sent) {
		t.Errorf("%d messages arrived of %d", len(seen), len(sent))
	}
}

// TestReplicasWithoutBatches: messages to a stream with replicas are sent one by one, whatever it allows, because in a
// batch a duplicate of a message that is not yet replicated counts as stored.
func TestReplicasWithoutBatches(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	conn, js := connect(t, servers[0].address())
	cfg := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"ORDERS.>"}, Replicas: 1, AllowBatchPublish: true, Duplicates: 2 * time.Minute}
	if _, err := js.CreateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	p, err := natsbroker.New(t.Context(), conn, natsbroker.Config{Stream: "ORDERS"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	publish := func(topic string) (answers uint64) {
		before := conn.Stats().InMsgs
		deliver(t, p, numbered(topic, "", 100))
		return conn.Stats().InMsgs - before
	}
	if n := publish("one"); n >= 100 {
		t.Errorf("one replica: %d answers to 100 messages", n)
	}
	cfg.Replicas = 3
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	awaitLeader(t, js, "ORDERS", "")
	natsbroker.LookAgain(p)
	if n := publish("three"); n < 100 {
		t.Errorf("three replicas: %d answers to 100 messages", n)
	}
}

// TestReplicasConfirmTooEarly shows why batches are not used with replicas: without its followers, the leader stores
// nothing and does not answer a batch, but it confirms a second batch with the same messages. If a future server makes
// this test fail, batches can be reconsidered for replicas.
func TestReplicasConfirmTooEarly(t *testing.T) {
	t.Parallel()
	servers := startCluster(t, 3)
	_, js := connect(t, servers[0].address())
	if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: "ORDERS", Subjects: []string{"ORDERS.>"}, Replicas: 3, AllowBatchPublish: true,
	}); err != nil {
		t.Fatal(err)
	}
	leader := awaitLeader(t, js, "ORDERS", "")
	var conn *nats.Conn
	for _, s := range servers {
		if s.server.Name() == leader {
			conn, _ = connect(t, s.address())
		}
	}
	for _, s := range servers {
		if s.server.Name() != leader {
			s.stop(t)
		}
	}
	inbox := conn.NewInbox()
	answers, err := conn.SubscribeSync(inbox + ".>")
	if err != nil {
		t.Fatal(err)
	}
	for _, batch := range []string{"first", "second"} {
		for n, op := range []int{0, 1, 1, 3} {
			m := nats.NewMsg("ORDERS.a")
			m.Reply = fmt.Sprintf("%s.%s.500.fail.%d.%d.$FI", inbox, batch, n+1, op)
			if op != 3 {
				m.Header.Set(nats.MsgIdHdr, fmt.Sprint(n))
			}
			if err := conn.PublishMsg(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for {
		m, err := answers.NextMsg(8 * time.Second)
		if err != nil {
			t.Fatalf("the second batch is not confirmed: %v", err)
		}
		answer := string(m.Data)
		switch {
		case strings.Contains(answer, `"batch":"first"`):
			t.Fatalf("the first batch is confirmed without followers: %s", answer)
		case strings.Contains(answer, `"batch":"second"`):
			if !strings.Contains(answer, `"count":3`) {
				t.Fatalf("the second batch is confirmed with %s", answer)
			}
			return
		}
	}
}

func startCluster(t *testing.T, n int) []*embeddedServer {
	t.Helper()
	routes := make([]*url.URL, n)
	for i := range routes {
		routes[i] = &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", servertest.Port(t))}
	}
	servers := make([]*embeddedServer, n)
	for i := range servers {
		servers[i] = startEmbedded(t, func(o *server.Options) {
			o.ServerName = fmt.Sprintf("%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), i)
			o.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: port(routes[i])}
			o.Routes = routes
		})
	}
	_, js := connect(t, servers[0].address())
	await(t, "a leader of the cluster", func() bool {
		_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "WARM", Subjects: []string{"warm"}, Replicas: n})
		return err == nil
	})
	deleteStream(t, servers[0].address(), "WARM")
	return servers
}

func port(u *url.URL) int {
	var n int
	_, _ = fmt.Sscan(u.Port(), &n)
	return n
}

// awaitLeader waits for a leader of the stream other than gone, and returns its name. If gone is empty, it also waits
// until the followers are up to date, so that any server can be stopped.
func awaitLeader(t *testing.T, js jetstream.JetStream, name, gone string) string {
	var leader string
	await(t, "a leader of stream "+name, func() bool {
		stream, err := js.Stream(t.Context(), name)
		if err != nil || stream.CachedInfo().Cluster == nil {
			return false
		}
		cluster := stream.CachedInfo().Cluster
		leader = cluster.Leader
		lags := slices.ContainsFunc(cluster.Replicas, func(r *jetstream.PeerInfo) bool { return r.Offline || !r.Current })
		return leader != "" && leader != gone && (gone != "" || !lags)
	})
	return leader
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	deadline := time.After(5 * time.Minute)
	for !condition() {
		select {
		case <-poll.C:
		case <-deadline:
			t.Fatalf("waited for %s for five minutes", what)
		}
	}
}
