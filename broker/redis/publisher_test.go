package redisbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	redisbroker "github.com/postrider/postrider/broker/redis"
)

// numbered returns n messages of one topic and key.
func numbered(topic, key string, n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = &postrider.Message{
			ID: fmt.Sprintf("%s-%s-%05d", topic, key, i+1), Type: "test", Topic: topic, Key: key, AggregateVersion: int64(i + 1),
			Payload: []byte("x"),
		}
	}
	return msgs
}

func wantUnavailable(t *testing.T, errs []error, n int, parts ...string) {
	t.Helper()
	if len(errs) != n {
		t.Fatalf("%d errors for %d messages: %v", len(errs), n, errs)
	}
	for _, err := range errs {
		if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("error %v, want one made by Unavailable", err)
		}
	}
	wantError(t, errs[0], parts...)
}

// TestServerTakesNothing makes the server reject all writes, in every possible way.
func TestServerTakesNothing(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	p := open(t, s.url(), redisbroker.Config{})
	set := func(name, value string) {
		t.Helper()
		if err := client.ConfigSet(t.Context(), name, value).Err(); err != nil {
			t.Fatal(err)
		}
	}
	msgs := append(numbered("orders", "a", 3), numbered("orders", "b", 2)...)
	set("maxmemory", "1")
	wantUnavailable(t, p.Publish(t.Context(), msgs), 5, "OOM", "raise maxmemory")
	set("maxmemory", "0")
	set("min-replicas-to-write", "1")
	wantUnavailable(t, p.Publish(t.Context(), msgs), 5, "NOREPLICAS", "too few replicas")
	set("min-replicas-to-write", "0")
	if err := client.Do(t.Context(), "replicaof", "127.0.0.1", "1").Err(); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, p.Publish(t.Context(), msgs), 5, "READONLY", "this is a replica")
	if err := client.Do(t.Context(), "replicaof", "no", "one").Err(); err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), msgs); errs != nil {
		t.Errorf("when all is well: %v", errs)
	}
	if got := arrived(t, client, redisbroker.Config{}, "orders"); len(got) != 5 {
		t.Errorf("%d messages arrived, want 5: what was refused must not be stored", len(got))
	}
}

// TestOneStreamRefused has one topic's key in use for something else: messages of other topics are accepted.
func TestOneStreamRefused(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	p := open(t, s.url(), redisbroker.Config{Partitions: 1})
	if err := client.Set(t.Context(), "postrider:{taken/0}", "text", 0).Err(); err != nil {
		t.Fatal(err)
	}
	errs := p.Publish(t.Context(), append(numbered("taken", "a", 2), numbered("orders", "b", 2)...))
	if errs[2] != nil || errs[3] != nil {
		t.Errorf("errors = %v, want none for the other topic", errs)
	}
	wantError(t, errs[0], "WRONGTYPE", "choose another Prefix")
	if kind := postrider.OutcomeOf(errs[0]).Kind; kind != postrider.Retried {
		t.Errorf("outcome is %d, want an error of this message", kind)
	}
}

// TestOneStreamForbidden has a user who may not write to one of three topics: messages of the others are accepted, once
// each.
func TestOneStreamForbidden(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	client := s.client(t)
	if err := client.Do(t.Context(), "acl", "setuser", "shop", "on", ">x", "~postrider:{orders/*", "~postrider:{parcels/*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	p := open(t, "redis://shop:x@"+s.address(), redisbroker.Config{Partitions: 1})
	msgs := append(numbered("orders", "a", 2), numbered("forbidden", "b", 2)...)
	msgs = append(msgs, numbered("orders", "a", 4)[2:]...)
	msgs = append(msgs, numbered("parcels", "b", 1)...)
	errs := p.Publish(t.Context(), msgs)
	if len(errs) != 7 {
		t.Fatalf("errors = %v", errs)
	}
	for i, err := range errs {
		switch i {
		case 2, 3:
			wantError(t, err, "NOPERM", "ACL SETUSER")
			if kind := postrider.OutcomeOf(err).Kind; kind != postrider.Retried {
				t.Errorf("outcome of message %d is %d, want an error of this message", i, kind)
			}
		case 6:
			if !errors.Is(err, postrider.ErrPredecessorFailed) {
				t.Errorf("error of a message after one that failed is %v, want ErrPredecessorFailed", err)
			}
		default:
			if err != nil {
				t.Errorf("message %d fails for another topic's sake: %v", i, err)
			}
		}
	}
	var ids []string
	for _, e := range client.XRange(t.Context(), "postrider:{orders/0}", "-", "+").Val() {
		ids = append(ids, fmt.Sprint(e.Values["ce_id"]))
	}
	if want := []string{msgs[0].ID, msgs[1].ID, msgs[4].ID, msgs[5].ID}; !slices.Equal(ids, want) {
		t.Errorf("the stream has %q, want %q", ids, want)
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s.url()+"?partitions=1&maxlen=100", redisbroker.Config{})
	msgs := numbered("orders", "a", 1_200)
	msgs[7].Payload = bytes.Repeat([]byte("x"), 3<<20) // more than the usual size of a transaction
	if errs := p.Publish(t.Context(), msgs); errs != nil {
		t.Fatal(errs)
	}
	n, err := s.client(t).XLen(t.Context(), "postrider:{orders/0}").Result()
	if err != nil || n < 100 || n > 400 {
		t.Errorf("stream has %d entries (%v), want about 100", n, err)
	}
}

// TestReplicas waits for replicas.
func TestReplicas(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	p := open(t, s.url()+"?replicas=1&publish_timeout=4s", redisbroker.Config{})
	wantUnavailable(t, p.Publish(t.Context(), numbered("orders", "a", 2)), 2, "0 of 1 replicas have confirmed", "INFO replication")
	startServer(t, "--replicaof", "127.0.0.1 "+fmt.Sprint(s.port))
	patient := open(t, s.url()+"?replicas=1&publish_timeout=20s", redisbroker.Config{})
	await(t, "the replica to confirm", func() bool { return patient.Publish(t.Context(), numbered("orders", "a", 2)) == nil })
	for _, part := range []string{"1 replicas", "memory"} {
		if got := patient.Durability(); !strings.Contains(got, part) {
			t.Errorf("durability is %q", got)
		}
	}
	onDisk := open(t, s.url()+"?fsync=true", redisbroker.Config{})
	if err := s.client(t).Do(t.Context(), "waitaof", 0, 0, 1).Err(); err == nil {
		if errs := onDisk.Publish(t.Context(), numbered("orders", "a", 2)); errs != nil {
			t.Error(errs)
		}
	} else if errs := onDisk.Publish(t.Context(), numbered("orders", "a", 2)); errs == nil {
		t.Error("a server without WAITAOF confirmed")
	}
}

// TestWarnings checks the warnings about settings that may lose messages.
func TestWarnings(t *testing.T) {
	t.Parallel()
	warnings := func(set ...string) string {
		var log bytes.Buffer
		s := startServer(t, set...)
		open(t, s.url(), redisbroker.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		return log.String()
	}
	for _, tt := range []struct {
		set  []string
		want []string
	}{
		{[]string{"--appendonly", "no", "--maxmemory-policy", "allkeys-lru"}, []string{
			"appendonly is no: a restart loses everything", "maxmemory-policy is allkeys-lru",
		}},
		{[]string{"--appendonly", "no", "--save", "3600 1"}, []string{"everything since the last snapshot (save 3600 1)"}},
		{[]string{"--appendfsync", "everysec"}, []string{"appendfsync is everysec: a power failure loses"}},
		{[]string{"--appendfsync", "always"}, nil},
		{[]string{"--rename-command", "CONFIG", ""}, []string{"are not known"}},
	} {
		got := warnings(tt.set...)
		if (got == "") != (tt.want == nil) {
			t.Errorf("with %q the log says %q", tt.set, got)
		}
		for _, part := range tt.want {
			if !strings.Contains(got, part) {
				t.Errorf("with %q the log says %q, want %q", tt.set, got, part)
			}
		}
	}
}

func TestCredentials(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	if err := s.client(t).Do(t.Context(), "acl", "setuser", "shop", "on", ">secret", "~*", "&*", "+@all", "-@dangerous", "+info").Err(); err != nil {
		t.Fatal(err)
	}
	p := open(t, "redis://shop:secret@"+s.address(), redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 1)); errs != nil {
		t.Error(errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	wrong := "redis://shop:wrong@" + s.address()
	_, err := redisbroker.Open(ctx, wrong, redisbroker.Config{})
	wantError(t, err, "the server refuses the credentials")
	_, subErr := redisbroker.OpenSubscriber(ctx, wrong, redisbroker.SubscriberConfig{Group: "g", Topics: []string{"orders"}})
	wantError(t, subErr, "the server refuses the credentials")
	if ctx.Err() != nil {
		t.Errorf("refused credentials are tried until the context ends: %v, %v", err, subErr)
	}
	if err := s.client(t).Do(t.Context(), "acl", "setuser", "shop", "-xadd").Err(); err != nil {
		t.Fatal(err)
	}
	errs := p.Publish(t.Context(), numbered("orders", "a", 1))
	if len(errs) != 1 || postrider.OutcomeOf(errs[0]).Kind != postrider.Retried {
		t.Fatalf("errors = %v", errs)
	}
	wantError(t, errs[0], "NOPERM", "ACL SETUSER")
	if err := s.client(t).Do(t.Context(), "acl", "setuser", "shop", "resetpass", ">changed").Err(); err != nil {
		t.Fatal(err)
	}
	if err := s.client(t).Do(t.Context(), "client", "kill", "user", "shop").Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the server to refuse the credentials of a new connection", func() bool {
		errs = p.Publish(t.Context(), numbered("orders", "a", 1))
		return len(errs) == 1 && strings.Contains(errs[0].Error(), "the server refuses the credentials")
	})
	wantUnavailable(t, errs, 1)
}

// TestCluster publishes to a cluster of one node, and reads from it.
func TestCluster(t *testing.T) {
	t.Parallel()
	s := startServer(t, "--cluster-enabled", "yes")
	client := s.client(t)
	if err := client.Do(t.Context(), "cluster", "addslotsrange", 0, 16383).Err(); err != nil {
		t.Fatal(err)
	}
	await(t, "the cluster", func() bool {
		info, err := client.ClusterInfo(t.Context()).Result()
		return err == nil && strings.Contains(info, "cluster_state:ok")
	})
	url := s.url() + "?cluster=true"
	for _, options := range []string{"", "&replicas=1&publish_timeout=4s"} {
		p := open(t, url+options, redisbroker.Config{})
		errs := p.Publish(t.Context(), append(numbered("orders", "a", 700), numbered("orders", "b", 700)...))
		if options != "" {
			wantUnavailable(t, errs, 1_400, "0 of 1 replicas")
		} else if errs != nil {
			t.Fatal(errors.Join(errs...))
		}
	}
	sub := subscribe(t, url, redisbroker.SubscriberConfig{Group: "g", Topics: []string{"orders"}})
	last := make(map[string]int64)
	for range 1_400 {
		d := receive(t, sub, 1)[0]
		if m := d.Message; m.AggregateVersion != last[m.Key]+1 {
			t.Fatalf("message %s came after number %d", m.ID, last[m.Key])
		}
		last[d.Message.Key]++
		if err := d.Ack(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestClosedStragglers closes the publisher while a transaction is running whose call has returned.
func TestClosedStragglers(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	faults := newProxy(t, s.address())
	p := open(t, faults.url(), redisbroker.Config{PublishTimeout: time.Minute})
	faults.Pause()
	began := time.Now()
	ctx, cancel := contextWithCancelAfter(t, 20*time.Millisecond)
	defer cancel()
	errs := p.Publish(ctx, numbered("orders", "a", 1))
	if len(errs) != 1 || time.Since(began) > 30*time.Second {
		t.Errorf("errors = %v after %s", errs, time.Since(began))
	}
	faults.Resume()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
