package relay_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	clitest.Must(t, err)
	resp, err := http.DefaultClient.Do(req)
	clitest.Must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	clitest.Must(t, err)
	return resp.StatusCode, string(body)
}

// awaitStatus polls /readyz until it returns a status.
func awaitStatus(t *testing.T, address net.Addr, want int) string {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(clitest.Patience)
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
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	clitest.PublishKeys(t, url, "order/1", "order/1", "order/2")
	r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS", "--listen", "127.0.0.1:0", "--log-format", "json")
	address := <-r.Address
	if body := awaitStatus(t, address, http.StatusOK); body != "ok\n" {
		t.Errorf("ready says %q", body)
	}
	if code, _ := get(t, fmt.Sprintf("http://%s/livez", address)); code != http.StatusOK {
		t.Errorf("live is %d", code)
	}
	clitest.Arrivals(t, broker, "ORDERS", 3)
	clitest.PublishKeys(t, url, "order/3") // as if by another process
	clitest.Arrivals(t, broker, "ORDERS", 4)
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--details"), "to-nats", "alive")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Contains(t, r.Err.String(), `"msg":"relay works","relay":"to-nats"`, `"msg":"relay has ended"`, "stopping; signal again")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--details"), "nobody")
}

func TestRelayRunsSeveralRelaysOnSeveralStores(t *testing.T) {
	t.Parallel()
	first, second, broker := clitest.NewOutbox(t), clitest.NewOutbox(t), clitest.StartNATS(t)
	file := filepath.Join(t.TempDir(), "postrider.yaml")
	clitest.Must(t, os.WriteFile(file, fmt.Appendf(nil, `
stores:
  - {name: first, url: "%s", keep_delivered: 1h}
  - {name: second, url: "%s"}
relays:
  - {name: to-a, store: first, publisher: "%s?stream=A", topics: [a.*], start: oldest}
  - {name: to-b, store: first, publisher: {url: "%s", options: {stream: B}}, topics: [b.*], concurrency: 2}
  - {name: to-c, store: second, publisher: "%s?stream=C", on_dead: hold, poll_max: 100ms}
`, first, second, broker, broker, broker), 0o600))
	for _, m := range [][3]string{{first, "a.x", "1"}, {first, "b.x", "2"}, {second, "c.x", "3"}, {first, "a.y", "4"}} {
		clitest.OK(t, "publish", "--store", m[0], "--type", m[1], "--key", "k", "--payload", m[2])
	}
	r := clitest.Start(t, []string{"POSTRIDER_RELAYS_TO_C_PUBLISHER=" + broker + "?stream=D"}, "relay", "--config", file)
	for stream, want := range map[string]string{"A": "[1 4]", "B": "[2]", "D": "[3]"} {
		r.Err.Await(t.Context(), t, map[string]string{"A": "relay=to-a store", "B": "relay=to-b store", "D": "relay=to-c store"}[stream])
		n := len(want) / 2
		if got := fmt.Sprint(clitest.Arrivals(t, broker, stream, n)); got != want {
			t.Errorf("stream %s has %s, want %s", stream, got, want)
		}
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}

	one := clitest.Start(t, nil, "relay", "--config", file, "--only", "to-b", "--name", "to-e", "--publisher", broker+"?stream=E")
	if got := fmt.Sprint(arrivalsOnceThere(t, one, broker, "E")); got != "[2]" {
		t.Errorf("stream E has %s", got)
	}
	one.End(t)
	clitest.Fails(t, program.ExitUsage, "the configuration has 3, choose one with --only", "relay", "--config", file, "--name", "x")
	clitest.Fails(t, program.ExitUsage, "--only to-x: there is no such relay in the configuration; it has to-a, to-b, to-c", "relay", "--config", file, "--only", "to-x")
	clitest.Fails(t, program.ExitUsage, "--store takes one of their names: first, second", "relay", "--config", file, "--store", first)
}

func arrivalsOnceThere(t *testing.T, r *clitest.Process, broker, stream string) []string {
	t.Helper()
	r.Err.Await(t.Context(), t, "relay works")
	return clitest.Arrivals(t, broker, stream, 1)
}

func TestRelayWaitsForABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	down := listener.Addr().String()
	clitest.Must(t, listener.Close())
	r := clitest.Start(t, nil, "relay", "--store", clitest.NewOutbox(t), "--publisher", "nats://user:secret@"+down+"?stream=S", "--listen", "127.0.0.1:0")
	address := <-r.Address
	if body := awaitStatus(t, address, http.StatusServiceUnavailable); body != "not ready\n" {
		t.Errorf("ready says %q", body)
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	if text := r.Err.String(); len(text) == 0 || strings.Contains(text, "secret") {
		t.Errorf("the log must name the broker and no password:\n%s", text)
	}
}

func TestRelayRefusesWhatItCannotDo(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	clitest.Fails(t, program.ExitUsage, "no stream is named", "relay", "--store", url, "--publisher", broker)
	clitest.Fails(t, program.ExitUsage, `postrider: publisher: "pigeon" is no kind of broker; write nats://`, "relay", "--store", url, "--publisher", "pigeon://u:secret@h")
	clitest.Fails(t, program.ExitUsage, "in the URL: unknown option dedupe_windo (did you mean dedupe_window?) of nats", "relay", "--store", url,
		"--publisher", broker+"?stream=S&dedupe_windo=1m")
	clitest.Fails(t, program.ExitUsage, `relay to-nats: nats: URL option max_in_flight: "many" is not a whole number`, "relay", "--store", url,
		"--publisher", broker+"?stream=S&max_in_flight=many")
	clitest.Fails(t, program.ExitFailed, "create the outbox with: postrider migrate up", "relay", "--store", url+".not-there", "--publisher", broker+"?stream=S")
	clitest.Fails(t, program.ExitFailed, "listen for /livez and /readyz", "relay", "--store", url, "--publisher", broker+"?stream=S", "--listen", "256.0.0.1:1")
	for words, publisher := range map[string]string{
		"relay to-nats: nats: no stream is named; add the option stream": "nats://h", "nats: replicas=-1; give 1, 3 or 5": "nats://h?stream=S&replicas=-1",
		"rabbitmq: no exchange is named; add the option exchange": "amqp://h", "kafka: partitions=0, replicas=-1": "kafka://h?replicas=-1",
		"redis: replicas=-1; give 0 or more": "redis://h?replicas=-1", "no secret; make one with: echo whsec_": "https://h/x",
	} {
		r := clitest.Run(t, "relay", "--store", url, "--publisher", publisher)
		clitest.Expect(t, r, program.ExitUsage, words, publisher)
		if strings.Count(r.Err, "\n") != 1 {
			t.Errorf("%s: more than one line, or a broker was asked first:\n%s", publisher, r.Err)
		}
	}
	needs := clitest.WriteFile(t, "relays: [{name: a, publisher: \""+broker+"?stream=S\", require_dedupe: 1h, require_message_bytes: 4MiB}]\n")
	r := clitest.Run(t, "relay", "--store", url, "--config", needs)
	clitest.Expect(t, r, program.ExitUsage, "relay a: relay: RequireDedupe is 1h0m0s, and the broker drops duplicates for 2m0s only; lengthen that")
	clitest.Contains(t, r.Err, "RequireMessageBytes is 4194304, and the broker takes messages of 1044480 bytes at most; raise its limit")
	clitest.Fails(t, program.ExitUsage, "--stop-timeout must be positive", "relay", "--store", url, "--publisher", broker, "--stop-timeout", "-1s")
}

// TestRelayThatCannotContinue does not affect the others of its process, which stops being ready and in the end says what failed.
func TestRelayThatCannotContinue(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	clitest.Enroll(t, clitest.OpenOutbox(t, url), "orders") // no relay may have the name of a consumer
	file := clitest.WriteFile(t, `
store: {url: "`+url+`"}
relays:
  - {name: orders, publisher: "`+broker+`?stream=A"}
  - {name: to-nats, publisher: "`+broker+`?stream=B"}
`)
	r := clitest.Start(t, nil, "relay", "--config", file, "--listen", "127.0.0.1:0")
	address := <-r.Address
	r.Err.Await(t.Context(), t, "relay cannot continue; the other relays of this process are not affected\" relay=orders")
	clitest.PublishKeys(t, url, "order/1") // when the first relay has failed
	awaitDelivered(t, r, url, "to-nats", 1)
	awaitStatus(t, address, http.StatusServiceUnavailable)
	if code := r.End(t); code != program.ExitFailed {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Contains(t, r.Err.String(), "postrider: relay orders: ", `"relay works" relay=to-nats`)
	clitest.Lacks(t, r.Err.String(), `"relay works" relay=orders`)
}

// TestFlagsOfARelayThatAreEmpty: an unset shell variable must not widen what a relay takes.
func TestFlagsOfARelayThatAreEmpty(t *testing.T) {
	t.Parallel()
	url := clitest.NewOutbox(t)
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
		clitest.Fails(t, program.ExitUsage, words, append([]string{"relay", "--store", url, "--publisher", "nats://h?stream=S"}, flag...)...)
	}
	clitest.Fails(t, program.ExitUsage, "--publisher is empty", "relay", "--store", url, "--publisher", "")
	clitest.Fails(t, program.ExitUsage, `--topics "": there is an empty one`, "route", "explain", "x", "--publisher", "nats://h?stream=S", "--topics", "")
}

func TestShownPublisherHidesSecrets(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://u:p@a:1,u:p@b:2?token=x":         "nats://a:1,b:2",
		"nats://u:a/b@c:1":                       "nats://…",
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
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	file := clitest.WriteFile(t, `
stores: [{name: here, url: "`+url+`"}, {name: there, url: "sqlite:not-there.db"}]
relays:
  - {name: a, store: here, publisher: "`+broker+`?stream=A"}
  - {name: b, store: there, publisher: "`+broker+`?stream=B"}
`)
	clitest.PublishKeys(t, url, "order/1")
	r := clitest.Start(t, nil, "relay", "--config", file, "--store", "here")
	arrivalsOnceThere(t, r, broker, "A")
	r.End(t)
	r = clitest.Start(t, []string{"POSTRIDER_STORE_URL=" + url, "POSTRIDER_PUBLISHER=" + broker + "?stream=C"}, "relay")
	arrivalsOnceThere(t, r, broker, "C")
	r.End(t)
	if strings.Contains(r.Err.String(), "stands for no key") {
		t.Errorf("a variable is taken for a mistake:\n%s", r.Err.String())
	}
}

// TestPublisherFromAFile: POSTRIDER_PUBLISHER_FILE names a file with the URL, which is in no output.
func TestPublisherFromAFile(t *testing.T) {
	t.Parallel()
	url, file := clitest.NewOutbox(t), filepath.Join(t.TempDir(), "publisher")
	clitest.Must(t, os.WriteFile(file, []byte("nats://u:QZX@mq.example?stream=S\n"), 0o600))
	r := clitest.Invocation{Environ: []string{"POSTRIDER_PUBLISHER_FILE=" + file}, Args: []string{"relay", "--store", url}}.Run(t)
	clitest.Expect(t, r, program.ExitUsage, "the password would be sent to mq.example without encryption; use tls://")
	if strings.Contains(r.Out+r.Err, "QZX") {
		t.Errorf("the output has the password: %s", r.Err)
	}
}

// TestMetricsOfARelay: the state of the store and what the process did, next to the health endpoints.
func TestMetricsOfARelay(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewOutbox(t), clitest.StartNATS(t)
	file := clitest.WriteFile(t, `
store: {url: "`+url+`"}
relays:
  - {name: to-nats, publisher: "`+broker+`?stream=S", delivery_target: 5m}
  - {name: elsewhere, publisher: "`+broker+`?stream=T", delivery_target: 7s}
http: {listen: 127.0.0.1:0}
telemetry: {read_every: 100ms, types: [other], prefix: shop}
`)
	clitest.Hold(t, url, "elsewhere") // its process is another one
	clitest.PublishKeys(t, url, "order/1", "order/2")
	r := clitest.Start(t, nil, "relay", "--config", file, "--metrics", "127.0.0.1:0", "--only", "to-nats")
	address := <-r.Address
	awaitStatus(t, address, http.StatusOK)
	awaitDelivered(t, r, url, "to-nats", 2)
	const labels = `{relay="to-nats",side="relay",store="main"}`
	wanted := []string{
		"shop_delivered_total" + labels + " 2\n", "shop_delivery_target_seconds" + labels + " 300\n", "shop_destination_up" + labels + " 1\n",
		`shop_delivery_target_seconds{relay="elsewhere",side="relay",store="main"} 7` + "\n",
		`shop_relay_attempts_total{outcome="delivered",relay="to-nats",side="relay",store="main",type="_other"} 2`,
		`shop_store_up{store="main",system="sqlite"} 1`, `shop_store_free_bytes{store="main"}`, "shop_relay_latency_seconds_count" + labels + " 2\n",
		"go_goroutines", "process_resident_memory_bytes",
	}
	var body string
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		_, body = get(t, fmt.Sprintf("http://%s/metrics", address))
		missing := slices.IndexFunc(wanted, func(line string) bool { return !strings.Contains(body, line) })
		if missing < 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s in\n%s", wanted[missing], body)
		}
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	clitest.Contains(t, r.Err.String(), "answering /livez, /readyz and /metrics")
	clitest.Fails(t, program.ExitUsage, `--metrics: "9464" is not host:port`, "relay", "--store", url, "--publisher", broker+"?stream=S", "--metrics", "9464")
}
