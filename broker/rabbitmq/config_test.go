package rabbitmqbroker_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	rabbitmqbroker "github.com/postrider/postrider/broker/rabbitmq"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	base, cfg, err := rabbitmqbroker.ParseURL("amqps://shop:s%3Ft@a,b:5671/v%2Fh?exchange=orders&exchange_type=direct&exchange_per_topic=true"+
		"&queue=q&check_only=true&allow_unroutable=1&max_in_flight=7&publish_timeout=3s&max_message_bytes=100&name=n&user=u&password=p&external=true"+
		"&ca=ca.pem&cert=c.pem&key=k.pem&heartbeat=30s", rabbitmqbroker.Config{MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	if base != "amqps://shop:s%3Ft@a,b:5671/v%2Fh" {
		t.Errorf("the URL without options is %q", base)
	}
	want := rabbitmqbroker.Config{
		Connection: rabbitmqbroker.Connection{
			Name: "n", User: "u", Password: "p", External: true, CAFile: "ca.pem", CertFile: "c.pem", KeyFile: "k.pem",
			Heartbeat: 30 * time.Second,
		},
		Exchange: "orders", ExchangeType: "direct", ExchangePerTopic: true, Queue: "q", CheckOnly: true, AllowUnroutable: true,
		MaxInFlight: 7, PublishTimeout: 3 * time.Second, MaxMessageBytes: 100,
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("parsed %+v, want %+v", cfg, want)
	}
	_, _, err = rabbitmqbroker.ParseURL("amqp://a/?echange=x&max_in_flight=many", rabbitmqbroker.Config{})
	wantError(t, err, `unknown URL option "echange"`)
	wantError(t, err, `max_in_flight: "many" is not a whole number`)
}

func TestParseSubscriberURL(t *testing.T) {
	t.Parallel()
	_, cfg, err := rabbitmqbroker.ParseSubscriberURL("amqp://a/?queue=q&exchange=x&exchange_per_topic=true&exchange_type=fanout"+
		"&topics=a,b&queue_type=classic&ordered=true&delivery_limit=5&dead_letter_exchange=d&dead_letter_key=k&check_only=true"+
		"&prefetch=9&ack_wait=1h&name=n", rabbitmqbroker.SubscriberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	want := rabbitmqbroker.SubscriberConfig{
		Connection: rabbitmqbroker.Connection{Name: "n"}, Queue: "q", Exchange: "x", ExchangePerTopic: true, ExchangeType: "fanout",
		Topics: []string{"a", "b"}, QueueType: "classic", Ordered: true, DeliveryLimit: 5, DeadLetterExchange: "d",
		DeadLetterKey: "k", CheckOnly: true, Prefetch: 9, AckWait: time.Hour,
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("parsed %+v, want %+v", cfg, want)
	}
}

// TestHosts checks which hosts a URL may contain. It does not connect.
func TestHosts(t *testing.T) {
	t.Parallel()
	for host, ok := range map[string]bool{
		"a": true, "a:1": true, "a,b:2": true, "[::1]": true, "[::1]:3": true, "u:p@[::1]": true,
		"": false, "a:": false, "a:0": false, "a:70000": false, "a,,b": false, "a:b:c": false, "u:%zz@a": false, "u:p@a": false, "a/%zz": false,
	} {
		_, err := rabbitmqbroker.OpenSubscriber(t.Context(), "amqp://"+host, rabbitmqbroker.SubscriberConfig{Queue: "q"})
		if (err == nil) != ok {
			t.Errorf("host %q: %v, want it to be good: %v", host, err, ok)
		}
	}
}

// TestBadConfig checks that all errors are reported at once, without passwords.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	_, err := rabbitmqbroker.Open(t.Context(), "amqp://u:secret@a:port?max_in_flight=-1&publish_timeout=-1s&max_message_bytes=-1&heartbeat=1ms&cert=c",
		rabbitmqbroker.Config{Queue: strings.Repeat("q", 256)})
	for _, text := range []string{"neither host nor host:port", "exchange is named", "MaxInFlight is -1", "PublishTimeout is -1s", "-1 bytes", "heartbeat", "key come together", "queue"} {
		wantError(t, err, text)
	}
	_, err2 := rabbitmqbroker.OpenSubscriber(t.Context(), "http://u:secret@a", rabbitmqbroker.SubscriberConfig{
		QueueType: "lazy", DeliveryLimit: -1, DeadLetterKey: "k", Prefetch: 70_000, Topics: []string{""},
	})
	for _, text := range []string{"amqp://", "no queue", "queue type", "delivery limit", "dead letter key", "prefetch", "no exchange", "give 1 to 255 bytes"} {
		wantError(t, err2, text)
	}
	_, err3 := rabbitmqbroker.Open(t.Context(), "amqp://a/?external=true", rabbitmqbroker.Config{Exchange: "x"})
	wantError(t, err3, "use amqps://")
	for _, err := range []error{err, err2, err3} {
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("error %q has the password", err)
		}
	}
}
