package kafkabroker_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	base := kafkabroker.Config{Topic: "base", Buffer: 7 << 20}
	servers, cfg, err := kafkabroker.ParseURL("kafkas://us%40er:p%3Aw@a:9092,b?topic=orders&create=true&partitions=6&replicas=3"+
		"&publish_timeout=30s&compress=zstd&client_id=me&sasl=plain&ca=/ca&cert=/cert&key=/key", base)
	if err != nil {
		t.Fatal(err)
	}
	want := kafkabroker.Config{
		Connection: kafkabroker.Connection{ClientID: "me", User: "us@er", Password: "p:w", SASL: "plain", Encrypt: true, CAFile: "/ca",
			CertFile: "/cert", KeyFile: "/key"},
		Topic: "orders", Create: true, Partitions: 6, Replicas: 3, PublishTimeout: 30 * time.Second, Buffer: 7 << 20, Compress: "zstd",
	}
	if servers != "kafkas://a:9092,b" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
}

func TestParseSubscriberURL(t *testing.T) {
	t.Parallel()
	servers, cfg, err := kafkabroker.ParseSubscriberURL("kafka://a:9092/?group=view&topics=orders,bills&prefix=shop.&start=latest"+
		"&instance=view-1&session_timeout=20s&revoke_wait=1s&commit_every=500ms&fetch_bytes=1048576&user=me&password=secret",
		kafkabroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := kafkabroker.SubscriberConfig{
		Connection: kafkabroker.Connection{User: "me", Password: "secret"}, Group: "view", Topics: []string{"orders", "bills"},
		Prefix: "shop.", Start: "latest", Instance: "view-1", SessionTimeout: 20 * time.Second, RevokeWait: time.Second,
		CommitEvery: 500 * time.Millisecond, FetchBytes: 1 << 20,
	}
	if servers != "kafka://a:9092" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
}

// TestParseURLFaults checks that all errors are reported at once, and no secret with them.
func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	_, _, err := kafkabroker.ParseURL("kafka://a?topik=X&partitions=three&publish_timeout=5&create=perhaps", kafkabroker.Config{})
	wantError(t, err, `unknown URL option "topik"`, "known are allow_plaintext, buffer, ca,", `partitions: "three" is not a whole number`,
		`publish_timeout: "5" is not a duration`, `create: "perhaps" is neither true nor false`)
	for _, address := range []string{"http://user:secret@a:80", "kafka://user:se%cret@a", "kafka://user:secret@a?x=%zz", "kafka://user:secret@,"} {
		_, err := kafkabroker.Open(t.Context(), address, kafkabroker.Config{})
		if err == nil || strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: %v, want an error that does not tell the password", address, err)
		}
	}
}

// TestConfigFaults checks that all errors are reported at once.
func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := kafkabroker.Open(t.Context(), "kafka://127.0.0.1:1", kafkabroker.Config{
		Connection: kafkabroker.Connection{SASL: "kerberos", CertFile: "c"}, Topic: "a b", Prefix: "ä", Partitions: 3, PublishTimeout: -1,
		Buffer: 5, Compress: "rar",
	})
	wantError(t, err, `SASL mechanism "kerberos"`, "and no user", "client certificate and key", "both a topic and a prefix", `topic "a b"`,
		`prefix "ä"`, "topics are not to be created", "PublishTimeout is", "buffer is 5", `compression "rar"`)
	_, err = kafkabroker.Open(t.Context(), "kafka://127.0.0.1:1", kafkabroker.Config{
		Connection: kafkabroker.Connection{CAFile: "/does/not/exist"},
	})
	wantError(t, err, "read CA file")
	_, err = kafkabroker.OpenSubscriber(t.Context(), "kafka://127.0.0.1:1", kafkabroker.SubscriberConfig{
		Topics: []string{""}, Prefix: " ", Start: "middle", SessionTimeout: 1, RevokeWait: time.Hour, CommitEvery: 1, FetchBytes: 1,
		Replicas: -1,
	})
	wantError(t, err, "are of a group", `topic ""`, `prefix " "`, `start "middle"`, "session timeout is 1ns", "revoke wait", "commits every",
		"fetch bytes are 1", "0 partitions with -1 replicas")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := kafkabroker.Open(ctx, "kafka://user:secret@127.0.0.1:1", kafkabroker.Config{})
	wantError(t, err, "connect to Kafka at 127.0.0.1:1", "context deadline exceeded", "check that the broker runs")
	if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
		t.Errorf("%v is not made by Unavailable", err)
	}
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells the password", err)
	}
}

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
