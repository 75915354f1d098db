package natsbroker_test

import (
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	base := natsbroker.Config{Stream: "BASE", Replicas: 1, MaxInFlight: 7}
	servers, cfg, err := natsbroker.ParseURL("nats://u:p@a:4222,b:4222?stream=ORDERS&prefix=-&subjects=orders.%3E,other&check_only=true"+
		"&replicas=3&dedupe_window=10m&publish_timeout=2s&creds=/c&name=n&ca=/ca&cert=/cert&key=/key", base)
	if err != nil {
		t.Fatal(err)
	}
	want := natsbroker.Config{
		Stream: "ORDERS", Prefix: "-", Subjects: []string{"orders.>", "other"}, CheckOnly: true, Replicas: 3, MaxInFlight: 7,
		DedupeWindow: 10 * time.Minute, PublishTimeout: 2 * time.Second, CredentialsFile: "/c", Name: "n", CAFile: "/ca",
		CertFile: "/cert", KeyFile: "/key",
	}
	if servers != "nats://u:p@a:4222,b:4222" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("got %s and %+v, want %+v", servers, cfg, want)
	}
}

// TestParseURLFaults checks that all errors are reported at once, and no secret with them.
func TestParseURLFaults(t *testing.T) {
	t.Parallel()
	_, _, err := natsbroker.ParseURL("nats://a?strem=X&replicas=three&publish_timeout=5", natsbroker.Config{})
	wantError(t, err, `unknown URL option "strem"`, "known are allow_plaintext, ca, cert,", `replicas: "three" is not a whole number`, `publish_timeout: "5" is not a duration`)
	_, _, err = natsbroker.ParseURL("http://user:secret@a:80", natsbroker.Config{})
	wantError(t, err, `scheme "http"; use nats:// or tls://`)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("error %q tells the password", err)
	}
}

// TestConfigFaults checks that all errors are reported at once.
func TestConfigFaults(t *testing.T) {
	t.Parallel()
	_, err := natsbroker.Open(t.Context(), "nats://127.0.0.1:1", natsbroker.Config{
		Prefix: "orders", Replicas: -1, DedupeWindow: -1, MaxInFlight: 20_000, PublishTimeout: -1, Token: "t", NKeySeedFile: "f", CertFile: "c",
		Subjects: []string{"a..b"},
	})
	wantError(t, err, "no stream is named", `prefix "orders"`, "-1 replicas", "dedupe window", "MaxInFlight is 20000", "PublishTimeout is",
		"2 of credentials file", "client certificate and key", `subject "a..b"`)
	_, err = natsbroker.Open(t.Context(), "nats://127.0.0.1:1", natsbroker.Config{Stream: "A B", Prefix: "-"})
	wantError(t, err, `stream "A B"`, "no subjects and no prefix")
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := natsbroker.Open(ctx, "nats://user:secret@127.0.0.1:1", natsbroker.Config{Stream: "ORDERS"})
	wantError(t, err, "connect to NATS at nats://127.0.0.1:1", "context deadline exceeded", "check that the server runs")
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
