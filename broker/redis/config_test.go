package redisbroker_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	redisbroker "github.com/postrider/postrider/broker/redis"
)

func wantError(t *testing.T, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

func TestParseURL(t *testing.T) {
	t.Parallel()
	base := redisbroker.Config{Prefix: "base:", Replicas: 7}
	servers, cfg, err := redisbroker.ParseURL("rediss://u:p@a:6379/2,b?prefix=shop:&partitions=16&maxlen=1000&max_message_bytes=5&publish_timeout=2s"+
		"&fsync=true&name=n&user=u2&password=p2&db=3&cluster=true&master=m&sentinel_user=s&sentinel_password=t&ca=/ca&cert=/cert&key=/key", base)
	if err != nil {
		t.Fatal(err)
	}
	want := redisbroker.Config{
		Prefix: "shop:", Partitions: 16, MaxLen: 1000, MaxMessageBytes: 5, PublishTimeout: 2 * time.Second, Replicas: 7, Fsync: true, Name: "n",
		User: "u2", Password: "p2", DB: 3, Cluster: true, Master: "m", SentinelUser: "s", SentinelPassword: "t",
		CAFile: "/ca", CertFile: "/cert", KeyFile: "/key",
	}
	if servers != "rediss://u:p@a:6379/2,b" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
}

func TestParseSubscriberURL(t *testing.T) {
	t.Parallel()
	servers, cfg, err := redisbroker.ParseSubscriberURL("redis://a?group=view&topics=a,b&max_ack_pending=5&claim_after=3s&poll=1s&delete_settled=true"+
		"&partitions=2", redisbroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := redisbroker.SubscriberConfig{
		Config: redisbroker.Config{Partitions: 2}, Group: "view", Topics: []string{"a", "b"}, MaxAckPending: 5, ClaimAfter: 3 * time.Second,
		Poll: time.Second, DeleteSettled: true,
	}
	if servers != "redis://a" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
}

// TestURLFaults checks that all errors are reported at once, and no secret with them.
func TestURLFaults(t *testing.T) {
	t.Parallel()
	_, _, err := redisbroker.ParseURL("redis://a?prefx=X&replicas=three&publish_timeout=5&fsync=perhaps&group=g", redisbroker.Config{})
	wantError(t, err, `unknown URL option "prefx"`, "known are allow_plaintext, ca, cert,", `replicas: "three" is not a whole number`,
		`publish_timeout: "5" is not a duration`, `fsync: "perhaps" is neither`, `unknown URL option "group"`)
	_, _, err = redisbroker.ParseURL("http://user:secret@a:80", redisbroker.Config{})
	wantError(t, err, `scheme "http"; use redis:// or rediss://`)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells the password", err)
	}
	_, err = redisbroker.Open(t.Context(), "redis://user:secret@localhost/orders", redisbroker.Config{})
	wantError(t, err, `database "orders" is not a number`)
	_, err = redisbroker.Open(t.Context(), "redis://user:secret%@a", redisbroker.Config{})
	wantError(t, err, "redis://…: user and password in the URL cannot be read")
}

func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := redisbroker.Open(t.Context(), "redis://127.0.0.1:1", redisbroker.Config{
		Prefix: "{a}", Partitions: -1, MaxLen: -1, MaxMessageBytes: -1, PublishTimeout: -1, Replicas: -1, DB: 1, Cluster: true, Master: "m", CertFile: "c",
	})
	wantError(t, err, `prefix "{a}"`, "-1 partitions", "length of a stream", "messages of at most -1", "wait for an answer", "-1 replicas",
		"database 1", "both a cluster and master", "client certificate and key")
	_, err = redisbroker.OpenSubscriber(t.Context(), "redis://127.0.0.1:1", redisbroker.SubscriberConfig{
		Config: redisbroker.Config{Partitions: -1}, MaxAckPending: -1, ClaimAfter: 1, Poll: 1,
	})
	wantError(t, err, "-1 partitions", "are of a group", "topics are missing", "-1 unsettled", "keeps what it has for 1ns", "two looks is 1ns")
	_, err = redisbroker.NewSubscriber(nil, redisbroker.SubscriberConfig{Group: "postrider-epoch-x", Topics: []string{"a"}})
	wantError(t, err, "names with postrider-epoch- are taken")
	_, err = redisbroker.Open(t.Context(), "redis://127.0.0.1:1", redisbroker.Config{CAFile: "/absent"})
	wantError(t, err, "read certificates", "/absent")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := redisbroker.Open(ctx, "redis://user:secret@127.0.0.1:1", redisbroker.Config{})
	wantError(t, err, "connect to Redis at redis://127.0.0.1:1", "context deadline exceeded", "check that the server runs")
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells the password", err)
	}
}
