package relay_test

import (
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/servertest"
)

// TestRelayToEveryBroker: the URL of each kind of broker is enough to run a relay and to show the broker's guarantees.
func TestRelayToEveryBroker(t *testing.T) {
	t.Parallel()
	for _, broker := range []struct {
		server, options, relay string
		promised               []string
	}{
		{"NATS", "?stream={n}", "to-nats", []string{"dropped for 2m0s, by message ID", "1,044,480 bytes"}},
		{"KAFKA", "?create=true&partitions=2&prefix={n}.", "to-kafka", []string{"come through", "1,044,492 bytes"}},
		{"RABBITMQ", "?exchange={n}&queue={n}", "to-rabbitmq", []string{"come through", "16,777,216 bytes"}},
		{"REDIS", "?prefix={n}:&partitions=2", "to-redis", []string{"come through", "8,388,608 bytes", "Redis acknowledges before a replica has a message"}},
	} {
		t.Run(broker.server, func(t *testing.T) {
			t.Parallel()
			server := servertest.Get(t, servertest.Name("POSTRIDER_TEST_"+broker.server))
			publisher := server + strings.ReplaceAll(broker.options, "{n}", "cli_"+strings.ToLower(rand.Text()))
			url := clitest.NewOutbox(t)
			clitest.PublishKeys(t, url, "order/1", "order/1", "order/2")
			r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", publisher)
			awaitDelivered(t, r, url, broker.relay, 3)
			if code := r.End(t); code != program.ExitDone {
				t.Errorf("exit code %d:\n%s", code, r.Err.String())
			}
			if text := r.Err.String(); strings.Contains(text, "guest") {
				t.Errorf("the log gives a password away:\n%s", text)
			}
			clitest.Contains(t, clitest.OK(t, "route", "explain", "orders", "--publisher", publisher, "--connect"), append(broker.promised,
				"relay "+broker.relay+": takes it, by the pattern *", "kept per key")...)
		})
	}
}

// awaitDelivered waits until a relay has delivered the given number of messages.
func awaitDelivered(t *testing.T, r *clitest.Process, url, name string, want int64) {
	t.Helper()
	o := clitest.OpenOutbox(t, url)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(5 * time.Minute)
	for {
		s, err := o.Status(t.Context())
		clitest.Must(t, err)
		for _, relay := range s.Relays {
			if relay.Name == name && relay.Delivered == want {
				return
			}
		}
		r.Works(t)
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("relay %s has not delivered %d messages: %+v\n%s", name, want, s.Relays, r.Err.String())
		}
	}
}
