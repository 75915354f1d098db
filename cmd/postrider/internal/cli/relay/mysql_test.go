package relay_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

func TestMySQLFromMigrationToRelay(t *testing.T) {
	t.Parallel()
	u, broker := clitest.NewMySQL(t), clitest.StartNATS(t)
	url := u.String()
	clitest.Fails(t, program.ExitFailed, "postrider migrate up", "status", "--store", url)
	clitest.Fails(t, program.ExitNo, "is not up to date; run: postrider migrate up", "migrate", "status", "--store", url)
	clitest.Contains(t, clitest.OK(t, "migrate", "up", "--store", url+"?partitions=3"), "up 0001_")
	clitest.OK(t, "migrate", "status", "--store", url)
	clitest.Contains(t, clitest.OK(t, "migrate", "print", "--store", url), "CREATE TABLE", "DELIMITER ;;")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url), "3 partitions")

	clitest.PublishKeys(t, url, "order/1", "order/2")
	_, err := clitest.ConnectMySQL(t, u).ExecContext(t.Context(), `CALL postrider_publish('orders', 'order/1', 'order.placed', '{}', NULL)`)
	clitest.Must(t, err)
	if n := strings.Count(clitest.OK(t, "tail", "--store", url, "--from", "oldest", "--stop", "--json"), "\n"); n != 3 {
		t.Errorf("tail shows %d messages", n)
	}
	tail := clitest.Start(t, nil, "tail", "--store", url, "--from", "1h")
	tail.Out.Await(t.Context(), t, "order/2")

	r := clitest.Start(t, nil, "relay", "--store", url, "--publisher", broker+"?stream=ORDERS")
	r.Err.Await(t.Context(), t, "relay works")
	clitest.Arrivals(t, broker, "ORDERS", 3)
	clitest.PublishKeys(t, url, "order/3")
	clitest.Arrivals(t, broker, "ORDERS", 4)
	tail.Out.Await(t.Context(), t, "order/3")
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--details"), "to-nats", "alive")
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
	tail.End(t)
	clitest.Contains(t, clitest.OK(t, "status", "--store", url, "--details"), "nobody")
	clitest.Contains(t, clitest.OK(t, "explain", "--key", "order/1", "--store", url), "not held; its partition has a backlog of 0")
	clitest.Contains(t, clitest.OK(t, "migrate", "down", "--to", "0", "--yes", "--store", url), "down 0001_")
}

// TestMySQLReplay: a relay with a new name redelivers what another has delivered, as long as the log keeps it.
func TestMySQLReplay(t *testing.T) {
	t.Parallel()
	url, broker := clitest.NewMySQLOutbox(t), clitest.StartNATS(t)
	clitest.PublishKeys(t, url, "order/1", "order/2", "order/1")
	clitest.SettleAll(t, clitest.OpenOutbox(t, url), "to-nats", clitest.Delivered)
	config := clitest.WriteFile(t, `
store: {url: "`+url+`"}
relays:
  - {name: again, start: oldest, publisher: "`+broker+`?stream=AGAIN"}
`)
	r := clitest.Start(t, nil, "relay", "--config", config)
	r.Err.Await(t.Context(), t, "relay works")
	got := strings.Join(clitest.Arrivals(t, broker, "AGAIN", 3), "\n")
	if strings.Count(got, `"order/1"`) != 2 || strings.Count(got, `"order/2"`) != 1 {
		t.Errorf("delivered again:\n%s", got)
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
}
