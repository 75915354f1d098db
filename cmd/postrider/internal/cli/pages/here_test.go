package pages_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider"
	memorybroker "github.com/postrider/postrider/broker/memory"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/erasure"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/saga"
	"github.com/postrider/postrider/store"
)

var (
	onPostgres = regexp.MustCompile(`postgres://(?:\w+@)?(?:db/shop|127\.0\.0\.1/postgres|…)(\?)?`)
	sagaVerb   = regexp.MustCompile(`^postrider saga (\w+) order-4711`)
	made       = regexp.MustCompile(`^(POSTRIDER_TEST_.* )?make `)
	address    = regexp.MustCompile(`(?:127\.0\.0\.1|10\.0\.0\.7)?:(8080|8686|9464)\b`)
)

// here returns a command with the servers, files and identities of the desk in place of those that its page names.
func (d *desk) here(t *testing.T, command string) string {
	t.Helper()
	if printed, piped := strings.CutSuffix(command, "| psql shop"); piped && strings.HasPrefix(command, "postrider migrate print") {
		command = printed + "| psql --quiet --set ON_ERROR_STOP=1 '" + d.world.url(d.world.database(t, "template1")) + "'"
	}
	command = onPostgres.ReplaceAllStringFunc(command, func(found string) string {
		if strings.HasPrefix(command, "postrider saga ") {
			return d.store // the engine of a desk has it
		}
		u := d.onPostgres(t)
		if strings.HasSuffix(found, "?") {
			u += map[bool]string{true: "&", false: "?"}[strings.Contains(u, "?")]
		}
		return u
	})
	command = strings.NewReplacer(
		"nats://127.0.0.1:4222", d.world.nats, "nats://nats:4222", d.world.nats,
		"/etc/postrider.yaml", "postrider.yaml", "/etc/orders.secret", "orders.secret", "/etc/bash_completion.d/", "./", `"${fpath[1]}/`, `"./`,
		"/var/lib/postgresql", ".", "--from 4711", "--from 2",
		"| psql shop", "| psql --quiet --set ON_ERROR_STOP=1 '"+d.onPostgres(t)+"'",
		"5bd1e9956a0c77d2", store.Fingerprint("receiver says no"),
	).Replace(command)
	if strings.HasSuffix(command, "| mysql shop") {
		u := d.world.mysql()
		command = strings.TrimSuffix(command, "shop") + fmt.Sprintf("--host=%s --port=%s --user=%s %s", u.Hostname(), u.Port(), u.User.Username(), u.Path[1:])
	}
	if strings.HasPrefix(command, "postrider route ") && !strings.Contains(command, "--config") && !strings.Contains(command, "--publisher") {
		command = "POSTRIDER_CONFIG=postrider.yaml " + command
	}
	if made.MatchString(command) { // it runs tests, or what tests run
		repository, err := filepath.Abs(root)
		clitest.Must(t, err)
		return made.ReplaceAllString(command, "${1}make --dry-run --directory="+repository+" ")
	}
	command = strings.NewReplacer(
		"postrider demo shop", "postrider demo shop --port 0", "/tmp/shop", "shop", "--for 1m", "--for 3s",
		"/usr/local/bin/", "etc/", "/etc/postrider/secrets/", "etc/", "/etc/systemd/system/", "etc/",
	).Replace(command)
	if living.MatchString(command) {
		command = address.ReplaceAllString(command, d.lives(t))
	}
	command = address.ReplaceAllStringFunc(command, func(string) string { return fmt.Sprint("127.0.0.1:", servertest.Port(t)) })
	for _, p := range prepared {
		if p.command.MatchString(command) {
			command = strings.ReplaceAll(command, p.named, p.prepare(t, d))
		}
	}
	if m := sagaVerb.FindStringSubmatch(command); m != nil {
		command = strings.ReplaceAll(command, "order-4711", d.instance(t, m[1]))
	}
	return command
}

// prepared are what commands are about and a reader has made before: how it is made, and what the page calls it.
var prepared = []struct {
	command *regexp.Regexp
	named   string
	prepare func(t *testing.T, d *desk) string
}{
	{regexp.MustCompile(`^postrider token revoke`), "k3x9q2m7aa", func(t *testing.T, d *desk) string {
		t.Helper()
		clitest.OK(t, "token", "create", "--name", "anna", "--role", "operator", "--store", d.store)
		return strings.Fields(strings.Split(clitest.OK(t, "token", "list", "--store", d.store), "\n")[1])[0]
	}},
	{regexp.MustCompile(`^postrider legal-hold release`), operationID, func(t *testing.T, d *desk) string {
		t.Helper()
		return d.made(t, "legal-hold", "place", "--because", "case 17")
	}},
	{regexp.MustCompile(`^postrider health --config`), "postrider.yaml", func(t *testing.T, d *desk) string {
		t.Helper()
		clitest.Must(t, os.WriteFile(filepath.Join(d.dir, "living.yaml"), []byte("http: {listen: '"+d.lives(t)+"'}\n"), 0o600))
		return "living.yaml"
	}},
	{regexp.MustCompile(`^postrider erase resume`), operationID, interruptedErasure},
	{regexp.MustCompile(`^postrider replay (cancel|pause|run|show)`), operationID, startedReplay},
	{regexp.MustCompile(`^postrider replay resume`), operationID, func(t *testing.T, d *desk) string {
		t.Helper()
		id := startedReplay(t, d)
		clitest.OK(t, "replay", "pause", id, "--store", d.store)
		return id
	}},
	{regexp.MustCompile(`^postrider redrive (continue|cancel)`), " 3", stoppedRedrive},
	{regexp.MustCompile(`^postrider outbox remove to-nats`), "to-nats", func(*testing.T, *desk) string {
		return "to-old-broker" // which has no dead letters
	}},
	{regexp.MustCompile(`^postrider dead import dead`), "dead.ndjson", func(t *testing.T, d *desk) string {
		t.Helper()
		name := filepath.Join(d.dir, "dead.ndjson")
		if _, err := os.Stat(name); err != nil {
			clitest.OK(t, "dead", "export", "--output", name, "--store", d.store)
		}
		return name
	}},
	{regexp.MustCompile(`postrider\.rules\.yml`), "postrider.rules.yml", func(t *testing.T, d *desk) string {
		t.Helper()
		for _, folder := range []string{"prometheus", "grafana"} {
			clitest.Must(t, os.CopyFS(d.dir, os.DirFS(filepath.Join(root, "deploy", folder))))
		}
		return "postrider.rules.yml"
	}},
	{regexp.MustCompile(`schema=messaging`), "messaging", func(t *testing.T, d *desk) string {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), d.onPostgres(t))
		clitest.Must(t, err)
		_, err = conn.Exec(t.Context(), "CREATE SCHEMA messaging")
		clitest.Must(t, err)
		clitest.Must(t, conn.Close(t.Context()))
		return "messaging"
	}},
	{regexp.MustCompile(`^postrider relay resume`), "to-nats", func(t *testing.T, d *desk) string {
		t.Helper()
		clitest.Run(t, "relay", "pause", "to-nats", "--because", "test", "--store", d.store) // unless the page has paused it
		return "to-nats"
	}},
	{regexp.MustCompile(`^postrider relay pause billing`), "billing", func(t *testing.T, d *desk) string {
		t.Helper()
		clitest.SettleAll(t, clitest.OpenOutbox(t, d.store), "to-billing", clitest.Delivered)
		return "to-billing"
	}},
	{regexp.MustCompile(`postrider\.example\.org`), "https://postrider.example.org", served},
	{regexp.MustCompile(`^postrider saga show ID`), "ID", shipping},
	{regexp.MustCompile(`^postrider saga show 0199f3a4`), parkedID, shipping},
	{regexp.MustCompile(`^postrider saga diff`), "sagas.json", func(t *testing.T, d *desk) string {
		t.Helper()
		d.sagas(t).graphs(d.dir)
		return "sagas.json"
	}},
	{regexp.MustCompile(`^postrider saga bulk`), "order-fulfilment", func(t *testing.T, d *desk) string {
		t.Helper()
		d.sagas(t).begin("charge")
		return "order-fulfilment"
	}},
}

// operationID is what the pages call a replay, an erasure and a legal hold.
const operationID = "0190f3c2-8a4e-7d05-9d2b-0c5d1f6a7b88"

// stoppedRedrive returns the ID, after a space, of a redrive whose first message has failed again.
func stoppedRedrive(t *testing.T, d *desk) string {
	t.Helper()
	o := clitest.OpenOutbox(t, d.store)
	dead := deadletter.New(o)
	r, err := dead.StartRedrive(t.Context(), deadletter.Plan{Filter: store.DeadFilter{Relay: "to-partner"}, First: true, By: "olga"})
	clitest.Must(t, err)
	driven := make(chan error, 1)
	go func() {
		_, err := dead.Drive(context.WithoutCancel(t.Context()), r.ID, nil)
		driven <- err
	}()
	for {
		select {
		case err := <-driven:
			if !errors.Is(err, deadletter.ErrStopped) {
				t.Fatalf("redrive %d: %v, want that it has stopped", r.ID, err)
			}
			return fmt.Sprint(" ", r.ID)
		default:
		}
		clitest.SettleDue(t, o, "to-partner", func(s *store.Settlement, e store.Entry) {
			s.Dead = append(s.Dead, store.DeadOutcome{Sequence: e.Message.Sequence, Key: e.Message.Key, Reason: "attempts exhausted", Cause: "still down", Attempts: 1})
		})
	}
}

// served starts the administration, and returns its URL.
func served(t *testing.T, d *desk) string {
	t.Helper()
	token := strings.TrimSpace(clitest.OK(t, "token", "create", "--name", "curl", "--role", "viewer", "--store", d.store))
	d.environ = append(d.environ, "TOKEN="+token)
	p := clitest.Start(t, d.environ, "serve", "--store", d.store, "--listen", "127.0.0.1:0")
	t.Cleanup(func() { p.End(t) })
	return "http://" + (<-p.Address).String()
}

func startedReplay(t *testing.T, d *desk) string {
	t.Helper()
	return d.made(t, "replay", "start", "--relay", "to-nats", "--all", "--because", "new view", "--yes", "--detach")
}

// interruptedErasure returns the ID of an erasure that was interrupted.
func interruptedErasure(t *testing.T, d *desk) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	e, err := erasure.New(clitest.OpenOutbox(t, d.store)).Erase(ctx, erasure.Plan{Key: "order/42", By: "eva", Reason: "request 1217"},
		func(erasure.Erasure) { cancel() })
	if err == nil || e.Ended() {
		t.Fatalf("interrupted %+v, %v", e, err)
	}
	return e.ID
}

// sagaStep is the step at which the instance is about which a command decides.
var sagaStep = map[string]string{"answer": "review", "signal": "check", "undone": "charge", "skip": "notify", "compensate": "notify"}

// instance returns an instance of a saga about which a command can decide.
func (d *desk) instance(t *testing.T, verb string) string {
	t.Helper()
	e := d.sagas(t)
	e.broken.Store(verb == "retry" || verb == "complete")
	id := e.begin(cmp.Or(sagaStep[verb], "ship"))
	e.broken.Store(false)
	switch verb {
	case "resume":
		clitest.OK(t, "saga", "pause", id, "--because", "test", "--store", d.store)
	case "undone":
		clitest.OK(t, "saga", "cancel", id, "--because", "test", "--store", d.store)
		e.is(id, saga.Compensating)
	}
	return id
}

// sagas returns the engine of the desk.
func (d *desk) sagas(t *testing.T) *engine {
	t.Helper()
	if d.engine == nil {
		d.engine = newEngine(t, d.store)
	}
	return d.engine
}

// living are commands that need the relay to-nats and the consumer order-view to live.
var living = regexp.MustCompile(`^postrider (redrive (start|run)|replay (start|run)|health)|/metrics`)

// lives starts the relay and the consumer, and returns the address at which the relay answers.
func (d *desk) lives(t *testing.T) string {
	t.Helper()
	if d.relay != "" {
		return d.relay
	}
	d.relay = fmt.Sprint("127.0.0.1:", servertest.Port(t))
	p := clitest.Start(t, d.environ, "relay", "--store", d.store, "--publisher", d.world.nats+"?stream=ORDERS", "--listen", d.relay, "--metrics", d.relay)
	t.Cleanup(func() { p.End(t) })
	for begun := time.Now(); clitest.Run(t, "health", "--address", d.relay).Code != 0; {
		if time.Since(begun) > patience {
			t.Fatalf("the relay is not ready:\n%s", p.Err.String())
		}
	}
	broker, err := memorybroker.New(memorybroker.Config{})
	clitest.Must(t, err)
	source, err := broker.Subscriber(memorybroker.SubscriberConfig{Group: "order-view", Topics: []string{"orders"}})
	clitest.Must(t, err)
	in, err := inbox.New(clitest.OpenOutbox(t, d.store).Transactions.(store.Inbox[*sql.Tx]))
	clitest.Must(t, err)
	c, err := inbox.NewConsumer(in, source, inbox.ConsumerConfig{Name: "order-view", Logger: slog.New(slog.DiscardHandler)})
	clitest.Must(t, err)
	clitest.Must(t, c.HandleFunc("order.placed", func(context.Context, *sql.Tx, *postrider.Message) error { return nil }))
	runs(t, c.Run)
	return d.relay
}

// made runs a command that writes JSON with an ID, and returns the ID.
func (d *desk) made(t *testing.T, args ...string) string {
	t.Helper()
	var made struct{ ID string }
	clitest.Must(t, json.Unmarshal([]byte(clitest.OK(t, append(args, "--json", "--store", d.store)...)), &made))
	return made.ID
}

func shipping(t *testing.T, d *desk) string {
	t.Helper()
	return d.sagas(t).begin("ship")
}
