package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
	"github.com/postrider/postrider/relay"
)

// startNATS starts a JetStream server in the test's process and returns its URL.
func startNATS(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	})
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server does not answer")
	}
	return s.ClientURL()
}

// arrivals reads the first n messages of a stream: their keys, in order.
func arrivals(t *testing.T, url, stream string, n int) []string {
	t.Helper()
	conn, err := nats.Connect(url)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	consumer, err := js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})
	must(t, err)
	var out []string
	for len(out) < n {
		m, err := consumer.Next(jetstream.FetchContext(ctx))
		if err != nil {
			t.Fatalf("%d of %d messages have arrived: %v", len(out), n, err)
		}
		out = append(out, string(m.Data()))
	}
	return out
}

// running is the program running in the background.
type running struct {
	out, err syncBuffer
	signals  chan os.Signal
	address  chan net.Addr
	code     chan int
}

func start(t *testing.T, environ []string, args ...string) *running {
	t.Helper()
	r := &running{signals: make(chan os.Signal), address: make(chan net.Addr, 1), code: make(chan int, 1)}
	p := &Program{
		Stdout: &r.out, Stderr: &r.err, Environ: environ, Signals: r.signals,
		Listening: func(a net.Addr) { r.address <- a },
		Exit:      func(int) { t.Error("ended at once") },
	}
	go func() { r.code <- p.Run(context.WithoutCancel(t.Context()), args) }()
	return r
}

// end sends SIGTERM and returns the exit code.
func (r *running) end(t *testing.T) int {
	t.Helper()
	select {
	case r.signals <- syscall.SIGTERM:
	case code := <-r.code:
		t.Fatalf("ended before the signal with %d:\n%s", code, r.err.String())
	}
	select {
	case code := <-r.code:
		return code
	case <-time.After(20 * time.Second):
		t.Fatalf("does not end:\n%s", r.err.String())
		return -1
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(body)
}

// awaitStatus polls /readyz until it returns a status.
func awaitStatus(t *testing.T, address net.Addr, want int) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for {
		code, body := get(t, fmt.Sprintf("http://%s/readyz", address))
		if code == want {
			return body
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("/readyz is %d: %s", code, body)
		}
	}
}

func TestRelayDeliversUntilItIsTerminated(t *testing.T) {
	t.Parallel()
	url, broker := newOutbox(t), startNATS(t)
	publishKeys(t, url, "order/1", "order/1", "order/2")
	r := start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS", "--listen", "127.0.0.1:0", "--log-format", "json")
	address := <-r.address
	if body := awaitStatus(t, address, http.StatusOK); body != "ok\n" {
		t.Errorf("ready says %q", body)
	}
	if code, _ := get(t, fmt.Sprintf("http://%s/livez", address)); code != http.StatusOK {
		t.Errorf("live is %d", code)
	}
	arrivals(t, broker, "ORDERS", 3)
	publishKeys(t, url, "order/3") // as if by another process
	arrivals(t, broker, "ORDERS", 4)
	contains(t, ok(t, "status", "--store", url, "--details"), "to-nats", "alive")
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
	contains(t, r.err.String(), `"msg":"relay works","relay":"to-nats"`, `"msg":"relay has ended"`, "ending in good order")
	contains(t, ok(t, "status", "--store", url, "--details"), "nobody")
}

func TestRelayRunsSeveralRelaysOnSeveralStores(t *testing.T) {
	t.Parallel()
	first, second, broker := newOutbox(t), newOutbox(t), startNATS(t)
	file := filepath.Join(t.TempDir(), "postrider.yaml")
	must(t, os.WriteFile(file, fmt.Appendf(nil, `
stores:
  - {name: first, url: "%s", keep_delivered: 1h}
  - {name: second, url: "%s"}
relays:
  - {name: to-a, store: first, publisher: "%s?stream=A", topics: [a.*], start: oldest}
  - {name: to-b, store: first, publisher: {url: "%s", options: {stream: B}}, topics: [b.*], concurrency: 2}
  - {name: to-c, store: second, publisher: "%s?stream=C", on_dead: hold, poll_max: 100ms}
`, first, second, broker, broker, broker), 0o600))
	for _, m := range [][3]string{{first, "a.x", "1"}, {first, "b.x", "2"}, {second, "c.x", "3"}, {first, "a.y", "4"}} {
		ok(t, "publish", "--store", m[0], "--type", m[1], "--key", "k", "--payload", m[2])
	}
	r := start(t, []string{"POSTRIDER_RELAYS_TO_C_PUBLISHER=" + broker + "?stream=D"}, "relay", "--config", file)
	for stream, want := range map[string]string{"A": "[1 4]", "B": "[2]", "D": "[3]"} {
		r.err.await(t.Context(), t, map[string]string{"A": "relay=to-a store", "B": "relay=to-b store", "D": "relay=to-c store"}[stream])
		n := len(want) / 2
		if got := fmt.Sprint(arrivals(t, broker, stream, n)); got != want {
			t.Errorf("stream %s has %s, want %s", stream, got, want)
		}
	}
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}

	one := start(t, nil, "relay", "--config", file, "--only", "to-b", "--name", "to-e", "--publisher", broker+"?stream=E")
	if got := fmt.Sprint(arrivalsOnceThere(t, one, broker, "E")); got != "[2]" {
		t.Errorf("stream E has %s", got)
	}
	one.end(t)
	fails(t, exitUsage, "the configuration has 3, choose one with --only", "relay", "--config", file, "--name", "x")
	fails(t, exitUsage, "--only to-x: there is no such relay in the configuration; it has to-a, to-b, to-c", "relay", "--config", file, "--only", "to-x")
	fails(t, exitUsage, "--store takes one of their names: first, second", "relay", "--config", file, "--store", first)
}

func arrivalsOnceThere(t *testing.T, r *running, broker, stream string) []string {
	t.Helper()
	r.err.await(t.Context(), t, "relay works")
	return arrivals(t, broker, stream, 1)
}

func TestRelayWaitsForABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	down := listener.Addr().String()
	must(t, listener.Close())
	r := start(t, nil, "relay", "--store", newOutbox(t), "--publisher", "nats://user:secret@"+down+"?stream=S", "--listen", "127.0.0.1:0")
	address := <-r.address
	if body := awaitStatus(t, address, http.StatusServiceUnavailable); body != "relay to-nats: waiting for the broker\n" {
		t.Errorf("ready says %q", body)
	}
	if code := r.end(t); code != exitDone {
		t.Errorf("exit code %d:\n%s", code, r.err.String())
	}
	if text := r.err.String(); len(text) == 0 || strings.Contains(text, "secret") {
		t.Errorf("the log must name the broker and no password:\n%s", text)
	}
}

func TestRelayRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	url, broker := newOutbox(t), startNATS(t)
	fails(t, exitUsage, "no stream is named", "relay", "--store", url, "--publisher", broker)
	fails(t, exitUsage, `postrider: publisher: "pigeon" is no kind of broker; write nats://`, "relay", "--store", url, "--publisher", "pigeon://u:secret@h")
	fails(t, exitUsage, "in the URL: unknown option dedupe_windo (did you mean dedupe_window?) of nats", "relay", "--store", url,
		"--publisher", broker+"?stream=S&dedupe_windo=1m")
	fails(t, exitUsage, `relay to-nats: nats: URL option max_in_flight: "many" is not a whole number`, "relay", "--store", url,
		"--publisher", broker+"?stream=S&max_in_flight=many")
	fails(t, exitFailed, "create the outbox with: postrider migrate up", "relay", "--store", url+".not-there", "--publisher", broker+"?stream=S")
	fails(t, exitFailed, "listen for /livez and /readyz", "relay", "--store", url, "--publisher", broker+"?stream=S", "--listen", "256.0.0.1:1")
	for words, publisher := range map[string]string{
		"relay to-nats: nats: no stream is named; add the option stream": "nats://h", "nats: replicas=-1; give 1, 3 or 5": "nats://h?stream=S&replicas=-1",
		"rabbitmq: no exchange is named; add the option exchange": "amqp://h", "kafka: partitions=0, replicas=-1": "kafka://h?replicas=-1",
		"redis: replicas=-1; give 0 or more": "redis://h?replicas=-1", "no secret; make one with: echo whsec_": "https://h/x",
	} {
		r := run(t, "relay", "--store", url, "--publisher", publisher)
		expect(t, r, exitUsage, words, publisher)
		if strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: more than one line, or a broker was asked first:\n%s", publisher, r.err)
		}
	}
	needs := writeFile(t, "relays: [{name: a, publisher: \""+broker+"?stream=S\", require_dedupe: 1h, require_message_bytes: 4MiB}]\n")
	r := run(t, "relay", "--store", url, "--config", needs)
	expect(t, r, exitUsage, "relay a: relay: RequireDedupe is 1h0m0s, and the broker drops duplicates for 2m0s only; lengthen that")
	contains(t, r.err, "RequireMessageBytes is 4194304, and the broker takes messages of 1044480 bytes at most; raise its limit")
	fails(t, exitUsage, "--stop-timeout must be positive", "relay", "--store", url, "--publisher", broker, "--stop-timeout", "-1s")
}

// TestFlagsOfARelayThatAreEmpty: an unset shell variable must not widen what a relay takes.
func TestFlagsOfARelayThatAreEmpty(t *testing.T) {
	t.Parallel()
	url := newOutbox(t)
	for words, flag := range map[string][]string{
		`--topics "": there is an empty one; leave --topics away for all topics`: {"--topics", ""},
		`--topics "a,": there is an empty one`:                                   {"--topics", "a,"},
		`--topics " ": there is an empty one`:                                    {"--topics", " "},
		`--only "": there is an empty one; leave --only away for all relays`:     {"--only", ""},
		"--name is empty":                           {"--name", ""},
		"--concurrency must be 1 or more, is 0":     {"--concurrency", "0"},
		"--stop-timeout must be positive, is 0s":    {"--stop-timeout", "0s"},
		`--listen: "8080" is not host:port; for ev`: {"--listen", "8080"},
	} {
		fails(t, exitUsage, words, append([]string{"relay", "--store", url, "--publisher", "nats://h?stream=S"}, flag...)...)
	}
	fails(t, exitUsage, "--publisher is empty", "relay", "--store", url, "--publisher", "")
	fails(t, exitUsage, `--topics "": there is an empty one`, "route", "explain", "x", "--publisher", "nats://h?stream=S", "--topics", "")
}

func TestConfigurationOfARelayArrives(t *testing.T) {
	t.Parallel()
	zero := time.Duration(0)
	c := relayConfig(config.Relay{
		Name: "n", Topics: []string{"a"}, Start: "now", AcceptUnordered: true, Concurrency: 1, MaxBatch: 2, MaxInFlight: 3,
		MaxInFlightBytes: 4, MaxHeldKeys: 5, MaxAttempts: 6, BackoffBase: 7, BackoffMax: 8, OnDead: "hold", ParkAfter: 9,
		AttemptTimeout: 10, LeaseTTL: 11, PollMin: 12, PollMax: 13, SettleInterval: 14, SettleBatch: 15,
		RequireDedupe: 18, RequireMessageBytes: 19,
	}, config.Store{KeepDelivered: &zero, MaxLogBytes: 16, KeepRedrives: 20}, 17, nil, nil)
	want := relay.Config{
		Name: "n", Topics: []string{"a"}, Start: relay.FromNow, AcceptUnordered: true, Concurrency: 1, MaxBatch: 2, MaxInFlight: 3,
		MaxInFlightBytes: 4, MaxHeldKeys: 5, MaxAttempts: 6, BackoffBase: 7, BackoffMax: 8, OnDead: relay.HoldKey, ParkAfter: 9,
		AttemptTimeout: 10, LeaseTTL: 11, PollMin: 12, PollMax: 13, SettleInterval: 14, SettleBatch: 15, KeepDelivered: -1,
		MaxLogBytes: 16, KeepRedrives: 20, StopTimeout: 17, RequireDedupe: 18, RequireMessageBytes: 19, Version: readBuild().Version,
	}
	if fmt.Sprintf("%+v", c) != fmt.Sprintf("%+v", want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestShownPublisherHidesSecrets(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://u:p@a:1,u:p@b:2?token=x":         "nats://a:1,b:2",
		"nats://u:p@a:1,nats://u:p@b:2?stream=S": "nats://a:1,b:2",
		"nats://a:1,nats://b:2":                  "nats://a:1,b:2",
		"nats://a:1":                             "nats://a:1",
		"https://hooks.example/T00/secret":       "https://hooks.example/…",
		"https://u:p@h:1?key=x#secret=y":         "https://h:1/…",
		"http://h#secret=y":                      "http://h/…",
	} {
		if got := backend.ShownPublisher(url); got != want {
			t.Errorf("%s is shown as %s, want %s", url, got, want)
		}
	}
}

func TestRelayOfOneStoreFromTheEnvironment(t *testing.T) {
	t.Parallel()
	url, broker := newOutbox(t), startNATS(t)
	file := writeFile(t, `
stores: [{name: here, url: "`+url+`"}, {name: there, url: "sqlite:not-there.db"}]
relays:
  - {name: a, store: here, publisher: "`+broker+`?stream=A"}
  - {name: b, store: there, publisher: "`+broker+`?stream=B"}
`)
	publishKeys(t, url, "order/1")
	r := start(t, nil, "relay", "--config", file, "--store", "here")
	arrivalsOnceThere(t, r, broker, "A")
	r.end(t)
	r = start(t, []string{"POSTRIDER_STORE_URL=" + url, "POSTRIDER_PUBLISHER=" + broker + "?stream=C"}, "relay")
	arrivalsOnceThere(t, r, broker, "C")
	r.end(t)
	if strings.Contains(r.err.String(), "stands for no key") {
		t.Errorf("a variable is taken for a mistake:\n%s", r.err.String())
	}
}
