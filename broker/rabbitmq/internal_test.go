package rabbitmqbroker

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/servertest"
)

// TestDeliveryLimitOfVersion4 declares a queue as for RabbitMQ 4, with a disabled delivery limit, that was created by
// RabbitMQ 3.
func TestDeliveryLimitOfVersion4(t *testing.T) {
	t.Parallel()
	q := queueSettings{name: fmt.Sprintf("test.limit.%d", time.Now().UnixNano()), kind: QuorumQueue}
	if args := q.arguments(3); args[deliveryLimit] != nil {
		t.Errorf("arguments for version 3 are %v", args)
	}
	if args := q.arguments(4); args[deliveryLimit] != int64(-1) {
		t.Errorf("arguments for version 4 are %v", args)
	}
	at, err := parseLocation(servertest.Get(t, servertest.RabbitMQ))
	if err != nil {
		t.Fatalf("%s: %v", servertest.RabbitMQ, err)
	}
	d, err := newDialer(Connection{}.withDefaults(), at)
	if err != nil {
		t.Fatal(err)
	}
	c, err := d.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close(leaveTimeout)
	var log bytes.Buffer
	old := topology{exchange: "amq.topic", exchangeType: "topic", queue: q, log: slog.New(slog.NewTextHandler(&log, nil))}
	err = onChannel(c, func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(q.name, true, false, false, false, q.arguments(3))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Properties["version"] = "4.1.0"
	if err := old.prepare(c); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "delivery-limit") {
		t.Errorf("the log says %q and nothing of the limit", log.String())
	}
	if err := onChannel(c, func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q.name, false, false, false); return err }); err != nil {
		t.Error(err)
	}
}

// TestEncodeLimits checks that messages that AMQP cannot carry are dead-lettered before they are sent: they would close
// the connection.
func TestEncodeLimits(t *testing.T) {
	t.Parallel()
	m := &postrider.Message{ID: "1", Type: "t", Topic: "t", Headers: map[string]string{"big": strings.Repeat("x", 5000)}}
	to := route{"exchange", "t"}
	if _, err := encode(m, to, 0); err != nil {
		t.Errorf("frames without limit: %v", err)
	}
	out, err := encode(m, to, 8192)
	if err != nil {
		t.Errorf("frames of 8 KiB: %v", err)
	}
	if !out.Timestamp.IsZero() {
		t.Errorf("a message without time has the timestamp %s", out.Timestamp)
	}
	if _, err := encode(m, to, 4096); postrider.OutcomeOf(err).Kind != postrider.DeadLettered {
		t.Errorf("frames of 4 KiB: %v, want dead", err)
	}
	if _, err := encode(m, route{strings.Repeat("e", 256), "t"}, 0); postrider.OutcomeOf(err).Kind != postrider.DeadLettered {
		t.Errorf("exchange of 256 bytes: %v, want dead", err)
	}
}
