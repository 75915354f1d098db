// Inbox measures how fast messages are processed, with one row each as their effect: in hand-written loops, by consumers,
// and by a relay with transactions. docs/inbox.md explains the figures.
//
//	go run ./bench/inbox            # about five minutes
//	go run ./bench/inbox -quick     # to see that it works
//
// It starts its own PostgreSQL, whose commits wait for the disk. Each variant is measured in turn with the one that it is
// compared with, right before or after it; the result is the median of the ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/itest/process"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/inbox:", err)
		os.Exit(1)
	}
}

// way is a way to process n messages.
type way struct {
	name string
	run  func(ctx context.Context, b *bench, n int) (time.Duration, error)
}

// pair is two ways to compare: ours, and the reference.
type pair struct {
	ours, alongside way
	part            float64 // of the messages
}

func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("bench/inbox", flag.ContinueOnError)
	messages := flags.Int("messages", 20_000, "messages of a measurement; those that commit each by itself have a fifth")
	rounds := flags.Int("rounds", 7, "how often each pair is measured")
	quick := flags.Bool("quick", false, "few messages, one round")
	only := flags.String("run", "", "measure only the pairs of which ours is named like this regular expression, e.g. 'by ID$'")
	url := flags.String("postgres", "", "URL of a PostgreSQL server to use instead of one started for this")
	if err := flags.Parse(args); err != nil {
		return err
	}
	named, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *quick {
		*messages, *rounds = 500, 1
	}
	if *url == "" {
		server, stop, err := startPostgres(ctx)
		if err != nil {
			return err
		}
		defer stop()
		*url = server
	}
	pool, err := newPool(ctx, *url)
	if err != nil {
		return err
	}
	defer pool.Close()

	chosen := slices.DeleteFunc(slices.Clone(pairs), func(p pair) bool { return !named.MatchString(p.ours.name) })
	results := make([]result, len(chosen))
	for round := range *rounds {
		for i, p := range chosen {
			n := max(int(float64(*messages)*p.part), 100)
			if err := results[i].add(ctx, pool, p, n, round%2 == 0); err != nil {
				return err
			}
		}
	}
	return report(out, chosen, results)
}

// newPool has a connection for each concurrent transaction, and four for the relay of parked messages.
func newPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = parallel + 4
	return pgxpool.NewWithConfig(ctx, cfg)
}

// result is the rates of a pair, in messages per second.
type result struct{ ours, alongside, ratios []float64 }

// add measures a pair once; the order alternates from round to round.
func (r *result) add(ctx context.Context, pool *pgxpool.Pool, p pair, n int, oursFirst bool) error {
	var rates [2]float64
	order := []int{1, 0}
	if oursFirst {
		order = []int{0, 1}
	}
	for _, i := range order {
		w := []way{p.ours, p.alongside}[i]
		var err error
		if rates[i], err = measure(ctx, pool, w, n); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	r.ours, r.alongside, r.ratios = append(r.ours, rates[0]), append(r.alongside, rates[1]), append(r.ratios, rates[0]/rates[1])
	return nil
}

// startPostgres starts a server that keeps its data in a temporary folder until stop is called.
func startPostgres(ctx context.Context) (url string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "postrider-bench-inbox-*")
	if err != nil {
		return "", nil, err
	}
	remove := func() { _ = os.RemoveAll(dir) }
	if err := os.Chmod(dir, 0o755); err != nil { // PostgreSQL runs as another user and needs access
		remove()
		return "", nil, err
	}
	s, err := process.StartPostgres(ctx, dir, "fsync=on", "full_page_writes=on", "synchronous_commit=on")
	if err != nil {
		remove()
		return "", nil, err
	}
	return s.URL, func() {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "bench/inbox: stop PostgreSQL:", err)
		}
		remove()
	}, nil
}

// measure processes n messages in new tables, and returns messages per second.
func measure(ctx context.Context, pool *pgxpool.Pool, w way, n int) (float64, error) {
	b, err := newBench(ctx, pool)
	if err != nil {
		return 0, err
	}
	took, err := w.run(ctx, b, n)
	if err == nil {
		err = b.check(ctx, n)
	}
	if dropErr := b.drop(ctx); err == nil {
		err = dropErr
	}
	return float64(n) / took.Seconds(), err
}

func report(out io.Writer, pairs []pair, results []result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\tmessages/s\tbeside\tmessages/s\tratio\t(quartiles)")
	for i, r := range results {
		fmt.Fprintf(w, "%s\t%.0f\t%s\t%.0f\t%.2f\t(%.2f–%.2f)\n", pairs[i].ours.name, quantile(r.ours, 0.5), pairs[i].alongside.name,
			quantile(r.alongside, 0.5), quantile(r.ratios, 0.5), quantile(r.ratios, 0.25), quantile(r.ratios, 0.75))
	}
	return w.Flush()
}

// quantile returns the value below which the given part of the values lies.
func quantile(values []float64, part float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[int(part*float64(len(sorted)-1)+0.5)]
}
