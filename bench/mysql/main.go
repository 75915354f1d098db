// Command mysql compares the outbox on MySQL and MariaDB with a hand-written table, on the same server, in turns: the
// cost of publishing, the rate of draining a backlog, and the effect of a running relay on publishers.
//
//	go run ./mysql mysql://root@127.0.0.1:3306/ # creates databases, and drops them
//
// By hand means: INSERT into a table; one loop that selects the oldest 1,000 rows and deletes them by primary key.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

func main() {
	rounds := flag.Int("rounds", 3, "how often each way is measured; the medians count")
	backlog := flag.Int("backlog", 100_000, "messages that are drained")
	publishing := flag.Duration("publishing", 5*time.Second, "how long each way publishes in a round")
	only := flag.String("only", "", "measure only this: publish, drain, disturbance or retention, which is measured only then")
	flag.Parse()
	if err := run(flag.Arg(0), *only, *rounds, *backlog, *publishing); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(server, only string, rounds, backlog int, publishing time.Duration) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := newBench(ctx, server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.drop()) }()
	for _, part := range []struct {
		name    string
		measure func() error
	}{
		{"publish", func() error { return b.comparePublishing(ctx, rounds, publishing) }},
		{"drain", func() error { return b.compareDraining(ctx, rounds, backlog) }},
		{"disturbance", func() error { return b.disturbance(ctx, rounds, publishing) }},
		{"retention", func() error { return b.retention(ctx, rounds, publishing) }},
	} {
		if only == part.name || only == "" && part.name != "retention" {
			if err := part.measure(); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTurns measures each way once per round and returns the medians.
func inTurns(rounds int, ways ...func() (float64, error)) ([]float64, error) {
	figures := make([][]float64, len(ways))
	for range rounds {
		for i, measure := range ways {
			n, err := measure()
			if err != nil {
				return nil, err
			}
			figures[i] = append(figures[i], n)
		}
	}
	medians := make([]float64, len(ways))
	for i := range figures {
		medians[i] = median(figures[i])
	}
	return medians, nil
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func (b *bench) comparePublishing(ctx context.Context, rounds int, length time.Duration) error {
	m, err := inTurns(rounds,
		func() (float64, error) { return b.publish(ctx, ours, length) },
		func() (float64, error) { return b.publish(ctx, road{"hand"}, length) })
	if err == nil {
		fmt.Fprintf(b.out, "publish, %d writers, a business row and a message: %.0f tx/s, by hand %.0f: %.2f\n", writers, m[0], m[1], m[0]/m[1])
	}
	return err
}

func (b *bench) compareDraining(ctx context.Context, rounds, backlog int) error {
	m, err := inTurns(rounds,
		func() (float64, error) { return b.drain(ctx, backlog, false) },
		func() (float64, error) { return b.drainByHand(ctx, backlog) },
		func() (float64, error) { return b.drain(ctx, backlog, true) })
	if err == nil {
		fmt.Fprintf(b.out, "drain a backlog of %d: %.0f messages/s, by hand %.0f: %.2f\n", backlog, m[0], m[1], m[0]/m[1])
		fmt.Fprintf(b.out, "drain it and drop it: %.0f messages/s: %.2f\n", m[2], m[2]/m[1])
	}
	return err
}

// bench is a database with an outbox and a table of the same columns.
type bench struct {
	db    *sql.DB
	store *mysqlstore.Store
	drop  func() error
	names int
	out   io.Writer
}

const payloadBytes = 500

func newBench(ctx context.Context, server string) (*bench, error) {
	u, err := url.Parse(server)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("%q is not the URL of a server, as in mysql://root@127.0.0.1:3306/", server)
	}
	c := mysql.NewConfig()
	c.Net, c.Addr, c.User = "tcp", u.Host, u.User.Username()
	c.Passwd, _ = u.User.Password()
	admin, err := open(c)
	if err != nil {
		return nil, err
	}
	c.DBName = "bench_" + strings.ReplaceAll(postrider.NewID(), "-", "")
	if _, err := admin.ExecContext(ctx, "CREATE DATABASE "+c.DBName); err != nil {
		return nil, err
	}
	b := &bench{out: os.Stdout}
	if b.db, err = open(c); err != nil {
		return nil, err
	}
	b.drop = func() error {
		_, err := admin.ExecContext(context.WithoutCancel(ctx), "DROP DATABASE "+c.DBName)
		return errors.Join(err, b.db.Close(), admin.Close())
	}
	if _, err := mysqlstore.Migrate(ctx, b.db, mysqlstore.Config{}, mysqlstore.Latest); err != nil {
		return nil, errors.Join(err, b.drop())
	}
	for _, table := range []string{"CREATE TABLE orders (id BIGINT AUTO_INCREMENT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB",
		"CREATE TABLE hand LIKE postrider_log"} {
		if _, err := b.db.ExecContext(ctx, table); err != nil {
			return nil, errors.Join(err, b.drop())
		}
	}
	if b.store, err = mysqlstore.New(b.db, mysqlstore.Config{}); err != nil {
		return nil, errors.Join(err, b.drop())
	}
	return b, nil
}

func open(c *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(64)
	return db, nil
}

func message(i int) *postrider.Message {
	m := &postrider.Message{Type: "order.placed", Key: fmt.Sprintf("order/%d", i%10_000), Payload: make([]byte, payloadBytes)}
	m.FillDefaults("bench", time.Now())
	return m
}
