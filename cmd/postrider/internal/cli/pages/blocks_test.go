package pages_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/config"
)

// tables are those of the services that publish in SQL.
const tables = `
create table orders (id int primary key, state text);
create table accounts (id int primary key, balance int);
create table outbox (id int primary key, topic text, aggregate_id text, type text, payload jsonb, sent_at timestamptz);
create table outboxevent (id uuid primary key, aggregatetype text, aggregateid text, type text, payload jsonb);
insert into accounts values (42, 100);
insert into outbox values (1, 'orders', 'order/42', 'order.placed', '{}', null), (2, 'orders', 'order/42', 'order.paid', '{}', null);
`

// blocksIn are the blocks of a kind in all documents, with the name of their document.
func blocksIn(t *testing.T, kind string) (names, blocks []string) {
	t.Helper()
	block := regexp.MustCompile("(?ms)^ *```" + kind + "\n(.*?)^ *```")
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		clitest.Must(t, err)
		for _, m := range block.FindAllStringSubmatch(string(text), -1) {
			names, blocks = append(names, name), append(blocks, m[1])
		}
	}
	return names, blocks
}

// TestSQL runs the SQL of the pages, each block in its database.
func TestSQL(t *testing.T) {
	t.Parallel()
	url := clitest.NewMigrated(t)
	server, schema, found := strings.Cut(url, "schema=")
	if !found {
		t.Fatalf("no schema in %s", url)
	}
	conn, err := pgx.Connect(t.Context(), strings.TrimRight(server, "?&"))
	clitest.Must(t, err)
	defer conn.Close(t.Context())
	postgres := func(statements string) error {
		_, err := conn.PgConn().Exec(t.Context(), statements).ReadAll()
		return err
	}
	clitest.Must(t, postgres("set search_path to "+schema+";"+tables))
	u := clitest.NewMySQL(t)
	clitest.OK(t, "migrate", "up", "--store", u.String())
	mysql := clitest.ConnectMySQL(t, u)
	_, err = mysql.ExecContext(t.Context(), "CREATE TABLE accounts (id INT PRIMARY KEY, balance INT)")
	clitest.Must(t, err)

	names, blocks := blocksIn(t, "sql")
	for i, block := range blocks {
		if strings.Contains(block, "CALL ") { // MySQL
			for statement := range strings.SplitSeq(block, ";") {
				if statement = strings.TrimSpace(statement); statement != "" {
					_, err = mysql.ExecContext(t.Context(), statement)
				}
				if err != nil {
					t.Errorf("%s: %v in:\n%s", names[i], err, block)
				}
			}
			continue
		}
		if err := postgres(strings.NewReplacer("$1", "'acme'", "$2", "'17'", "$3", "12").Replace(block)); err != nil {
			t.Errorf("%s: %v in:\n%s", names[i], err, block)
		}
	}
	if len(blocks) < 8 {
		t.Errorf("only %d blocks were found", len(blocks))
	}
	var published, waiting int
	clitest.Must(t, conn.QueryRow(t.Context(), "select (select count(*) from postrider_log), (select count(*) from outbox where sent_at is null)").Scan(&published, &waiting))
	if published != 7 || waiting != 0 {
		t.Errorf("%d messages were published, want 7; %d wait in the old table", published, waiting)
	}
}

// TestConfigurations: the configurations that the pages show can be loaded. Some show a part of a relay.
func TestConfigurations(t *testing.T) {
	t.Parallel()
	names, blocks := blocksIn(t, "yaml")
	loaded := 0
	for i, block := range blocks {
		switch {
		case strings.HasPrefix(block, "services:"): // of Docker Compose
			continue
		case strings.HasPrefix(block, "publisher:"):
			block = "relays:\n  - name: a\n    " + strings.ReplaceAll(block, "\n", "\n    ")
		case strings.HasPrefix(block, "    "):
			block = "relays:\n  - name: a\n    publisher: nats://nats:4222?stream=A\n" + block
		}
		if !strings.HasPrefix(block, "store:") {
			block = "store: {url: 'sqlite:shop.db'}\n" + block
		}
		file := clitest.WriteFile(t, block)
		if _, err := config.Load(file); err != nil {
			t.Errorf("%s: %v in:\n%s", names[i], err, block)
		}
		loaded++
	}
	if loaded < 9 {
		t.Errorf("only %d blocks were found", loaded)
	}
}
