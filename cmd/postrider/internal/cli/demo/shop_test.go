package demo_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/internal/servertest"
)

func TestShop(t *testing.T) {
	t.Parallel()
	out := clitest.OK(t, "demo", "shop", "--for", "4s", "--port", "0", "--seed", "7")
	clitest.Contains(t, out, "postrider demo shop: one process, SQLite, JetStream in this process, load ambient, seed 7",
		"ledger: exact", "the shop closes", "Every promise was kept.", "ledger exact")
	if strings.Contains(out, "\x1b") {
		t.Error("there are escape sequences although it is no terminal")
	}
}

func TestShopFlags(t *testing.T) {
	t.Parallel()
	settings := clitest.OK(t, "demo", "shop", "--print-config")
	clitest.Contains(t, settings, "load: ambient\n", "step-timeout: 15s\n", "port: 8081\n")
	help := regexp.MustCompile(`(?s)\nFlags:\n(.*?)\n\n`).FindString(clitest.OK(t, "demo", "shop", "--help"))
	flags := regexp.MustCompile(`(?m)^ +(?:-\w, )?--([\w-]+)`).FindAllStringSubmatch(help, -1)
	if len(flags) < 20 {
		t.Errorf("the help has only %d flags:\n%s", len(flags), help)
	}
	for _, f := range flags {
		if f[1] != "help" && f[1] != "print-config" {
			clitest.Contains(t, "\n"+settings, "\n"+f[1]+": ")
		}
	}
	clitest.Fails(t, program.ExitUsage, "there is no such scenario", "demo", "shop", "--scenario", "99")
	clitest.Fails(t, program.ExitUsage, `"heavy" is no load`, "demo", "shop", "--load", "heavy")
	clitest.Fails(t, program.ExitUsage, `--compensate must be request or observe, is "wait"`, "demo", "shop", "--compensate", "wait")
	clitest.Fails(t, program.ExitFailed, "the shop runs on SQLite and PostgreSQL", "demo", "shop", "--store", "mysql://root@127.0.0.1/x")
}

// TestBothKindsAreShownAlike: the sagas of an orchestrated and of a choreographed order have the same columns. When the books of a shop
// are wrong that is opened again, its exit code says so.
func TestBothKindsAreShownAlike(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clitest.Contains(t, clitest.OK(t, "demo", "shop", "--scenario", "5", "--port", "0", "--dir", dir), "ledger exact", "The order is choreographed:")
	store := "sqlite:" + filepath.Join(dir, "orders.db")
	list := clitest.OK(t, "saga", "list", "--status", "compensated", "--store", store)
	clitest.Contains(t, list, "order-fulfilment ", "order-fulfilment-by-events ")
	columns := make(map[string][]string)
	for _, id := range regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}`).FindAllString(list, -1) {
		var shown map[string]any
		if err := json.Unmarshal([]byte(clitest.OK(t, "saga", "show", id, "--json", "--store", store)), &shown); err != nil {
			t.Fatal(err)
		}
		delete(shown, "key") // of the definition; a contract has none
		columns[shown["kind"].(string)] = slices.Sorted(maps.Keys(shown))
	}
	if len(columns) != 2 || !slices.Equal(columns["orchestrated"], columns["choreographed"]) {
		t.Errorf("columns:\n%v", columns)
	}
	reopen := []string{"demo", "shop", "--load", "none", "--for", "1s", "--port", "0", "--dir", dir}
	clitest.Contains(t, clitest.OK(t, reopen...), "Every promise was kept.")
	inventory, err := sql.Open("sqlite", filepath.Join(dir, "inventory.db"))
	clitest.Must(t, err)
	_, err = inventory.ExecContext(t.Context(), `UPDATE products SET free = free - 1 WHERE sku = 'P-01'`)
	clitest.Must(t, errors.Join(err, inventory.Close()))
	clitest.Fails(t, program.ExitNo, "a promise broke", reopen...)
}

func TestShopOnServers(t *testing.T) {
	t.Parallel()
	out := clitest.OK(t, "demo", "shop", "--for", "4s", "--port", "0", "--load", "20",
		"--store", servertest.Get(t, servertest.Postgres), "--publisher", servertest.Get(t, servertest.NATS))
	clitest.Contains(t, out, "Every promise was kept.", "ledger exact")
}

// TestServiceWithoutItsStarter: a service whose standard input has ended says so, and not that a connection was given up. The database
// never answers.
func TestServiceWithoutItsStarter(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	clitest.Must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	clitest.Fails(t, program.ExitFailed, "the process that started this service has ended", "demo", "shop", "--service", "orders",
		"--publisher", "nats://127.0.0.1:1", "--store", fmt.Sprintf("postgres://u@%s/shop?sslmode=disable", l.Addr()))
}
