package rabbitmqbroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

// TestOwnServer runs tests that need their own server.
func TestOwnServer(t *testing.T) {
	t.Parallel()
	s := startServer(t)
	testTooLargeForServer(t, s)
	testNoPermission(t, s)
	testAlarm(t, s)
	testEncryption(t, s)
	testKilled(t, s)
}

func open(t testing.TB, url string, cfg rabbitmqbroker.Config) *rabbitmqbroker.Publisher {
	t.Helper()
	p, err := rabbitmqbroker.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() }) // it returns nil
	return p
}

// message returns the nth message of a topic, with its own key.
func message(topic string, n int) *postrider.Message {
	return &postrider.Message{
		ID: fmt.Sprintf("%s-%d", topic, n), Type: "test.happened", Source: "/test", Topic: topic, Key: fmt.Sprintf("key/%d", n),
		Time: time.Now(), ContentType: "application/json", Payload: []byte("{}"),
	}
}

func messages(topic string, n int) []*postrider.Message {
	msgs := make([]*postrider.Message, n)
	for i := range msgs {
		msgs[i] = message(topic, i)
	}
	return msgs
}

// outcomes returns the errors of a call, one per message.
func outcomes(t testing.TB, p *rabbitmqbroker.Publisher, msgs []*postrider.Message) []error {
	t.Helper()
	errs := p.Publish(t.Context(), msgs)
	if errs == nil {
		errs = make([]error, len(msgs))
	}
	return errs
}

// onlyFails checks that one message of a call fails as expected, and the others are accepted.
func onlyFails(t *testing.T, errs []error, i int, kind postrider.OutcomeKind, text string) {
	t.Helper()
	for j, err := range errs {
		switch {
		case j != i && err != nil:
			t.Errorf("message %d: %v", j, err)
		case j == i && (postrider.OutcomeOf(err).Kind != kind || err == nil || !strings.Contains(err.Error(), text)):
			t.Errorf("message %d: %v, want outcome %d with %q", j, err, kind, text)
		}
	}
}

// testTooLargeForServer sends messages that are too large for the server among others: the server then closes the
// channel.
func testTooLargeForServer(t *testing.T, s *server) {
	p := open(t, s.url(), rabbitmqbroker.Config{Exchange: "large", Queue: "large"})
	for range 2 {
		msgs := messages("large", 50)
		msgs[20].Payload = bytes.Repeat([]byte("x"), maxMessageBytes+1)
		msgs[21].Key = msgs[20].Key
		errs := outcomes(t, p, msgs)
		if !errors.Is(errs[21], postrider.ErrPredecessorFailed) {
			t.Errorf("message after the one that is too large: %v, want ErrPredecessorFailed", errs[21])
		}
		errs[21] = nil
		onlyFails(t, errs, 20, postrider.DeadLettered, "max_message_size")
	}
}

// testNoPermission has a user who may not publish to one of two topics.
func testNoPermission(t *testing.T, s *server) {
	open(t, s.url(), rabbitmqbroker.Config{Exchange: "permitted", Queue: "permitted"})
	url := strings.Replace(s.url(), "guest:guest", "shop:secret", 1)
	_, err := rabbitmqbroker.Open(t.Context(), url, rabbitmqbroker.Config{Exchange: "permitted"})
	wantError(t, err, "CheckOnly")
	p := open(t, url, rabbitmqbroker.Config{Exchange: "permitted", CheckOnly: true})
	for range 3 {
		msgs := append(messages("allowed", 30), message("forbidden", 1))
		onlyFails(t, outcomes(t, p, msgs), 30, postrider.Retried, "set_topic_permissions")
	}
	_, err = rabbitmqbroker.Open(t.Context(), strings.Replace(url, "secret", "opensesamy", 1), rabbitmqbroker.Config{Exchange: "permitted"})
	wantError(t, err, "check user and password")
	if strings.Contains(fmt.Sprint(err), "opensesamy") {
		t.Errorf("the error tells the password: %v", err)
	}
	_, err = rabbitmqbroker.Open(t.Context(), url+"absent", rabbitmqbroker.Config{Exchange: "permitted"})
	wantError(t, err, "virtual host")
}

// testAlarm makes the server run short of disk space and recover.
func testAlarm(t *testing.T, s *server) {
	p := open(t, s.url(), rabbitmqbroker.Config{Exchange: "alarm", Queue: "alarm", PublishTimeout: 3 * time.Second})
	s.ctl(t, "set_disk_free_limit", "900000GB")
	for blocked := false; !blocked; {
		for _, err := range p.Publish(t.Context(), messages("alarm", 20)) {
			if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
				t.Fatalf("publish during an alarm: %v, want an error made by Unavailable", err)
			}
			blocked = blocked || strings.Contains(err.Error(), "rabbitmq-diagnostics alarms")
		}
	}
	s.ctl(t, "set_disk_free_limit", "10MB")
	accepted(t, p, messages("alarm", 20))
}

// accepted publishes until everything is accepted, at most for patience.
func accepted(t *testing.T, p *rabbitmqbroker.Publisher, msgs []*postrider.Message) {
	t.Helper()
	var errs []error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-time.After(10 * time.Millisecond) {
		if errs = p.Publish(t.Context(), msgs); errs == nil {
			return
		}
	}
	t.Fatalf("not accepted in %s: %v", patience, errors.Join(errs...))
}

// testKilled kills the server while messages are in flight. It uses a classic queue, because with this version a quorum
// queue on a single server may find no leader after that.
func testKilled(t *testing.T, s *server) {
	newWay(t, s.url(), rabbitmqbroker.ClassicQueue).travel(t, 1, 60, func(int) {
		s.kill(t)
		s.start(t)
	})
}

func testEncryption(t *testing.T, s *server) {
	url := fmt.Sprintf("amqps://127.0.0.1:%d/?exchange=tls&queue=tls", s.tlsPort)
	trusting := url + "&ca=" + s.pki.ca
	accepted(t, open(t, trusting, rabbitmqbroker.Config{}), messages("tls", 3))
	external := trusting + "&external=true&cert=" + s.pki.clientCert + "&key=" + s.pki.clientKey
	accepted(t, open(t, external, rabbitmqbroker.Config{}), messages("tls", 3))
	for _, trusted := range []string{"", "&ca=" + newPKI(t).ca} {
		_, err := rabbitmqbroker.Open(t.Context(), url+trusted, rabbitmqbroker.Config{})
		wantError(t, err, "CAFile")
	}
}

func wantError(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one with %q", err, text)
	}
}

// TestSmallWindow publishes more messages than may be in flight to a server that has stopped answering.
func TestSmallWindow(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange"), Queue: unique("queue"), MaxInFlight: 3}
	setup(t, cfg)
	silent := newProxy(t, hostOf(t, running(t)))
	p := open(t, through(t, running(t), silent), cfg)
	msgs := messages("window", 20)
	accepted(t, p, msgs)
	silent.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for i, err := range p.Publish(ctx, msgs) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("message %d: %v, want context.DeadlineExceeded", i, err)
		}
	}
	silent.Resume()
	accepted(t, p, msgs)
}

// TestReturnedAfterGivenUp returns a message whose attempt has timed out. Its next attempt, which a queue takes, is
// accepted.
func TestReturnedAfterGivenUp(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange")}
	_, ch := setup(t, cfg)
	slow := newProxy(t, hostOf(t, running(t)))
	p := open(t, through(t, running(t), slow), cfg)
	msgs := messages("returned", 1)
	slow.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if errs := p.Publish(ctx, msgs); len(errs) != 1 || !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("errors = %v, want context.DeadlineExceeded", errs)
	}
	slow.Resume()
	// Answers come in order: after the answer to this message, the answer to the earlier one has arrived.
	onlyFails(t, outcomes(t, p, []*postrider.Message{message("other", 1)}), 0, postrider.Retried, "no queue takes the message")
	queue := unique("queue")
	declare(t, ch, queue, nil)
	if err := ch.QueueBind(queue, "#", cfg.Exchange, false, nil); err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), msgs); errs != nil {
		t.Errorf("a message that a queue has: %v", errs)
	}
}

// TestStuckConnection writes more than the network buffers to a server that does not read. The connection is closed and
// replaced.
func TestStuckConnection(t *testing.T) {
	t.Parallel()
	cfg := rabbitmqbroker.Config{Exchange: unique("exchange"), Queue: unique("queue"), PublishTimeout: 30 * time.Second}
	setup(t, cfg)
	stuck := newProxy(t, hostOf(t, running(t)))
	p := open(t, through(t, running(t), stuck), cfg)
	msgs := messages("stuck", 20)
	for _, m := range msgs {
		m.Payload = bytes.Repeat([]byte("x"), 1<<20)
	}
	stuck.Pause()
	began := time.Now()
	for i, err := range outcomes(t, p, msgs) {
		if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
			t.Errorf("message %d: %v, want an error made by Unavailable", i, err)
		}
	}
	if took := time.Since(began); took > 25*time.Second {
		t.Errorf("the stuck connection was given up after %s", took)
	}
	stuck.Resume()
	accepted(t, p, msgs)
}
