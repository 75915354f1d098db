package web_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/doctor"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

// examine runs all checks, which take less than 5 seconds together (scenario D2 of the operations design).
func examine(tb testing.TB, s *postgres.Store) {
	tb.Helper()
	began := time.Now()
	r := doctor.Run(context.Background(), doctor.Checks(s), doctor.Options{})
	if took := time.Since(began); r.Failed() || took > 5*time.Second {
		tb.Errorf("after %s: %s: %+v", took, r.Summary(), r.Results)
	}
}

// delivered counts messages.
type delivered struct{ n atomic.Int64 }

func (d *delivered) Publish(_ context.Context, msgs []*postrider.Message) []error {
	d.n.Add(int64(len(msgs)))
	return nil
}

func (*delivered) Capabilities() postrider.Capabilities { return postrider.Capabilities{Ordered: true} }

// relayWithDoctor compares what a relay delivers in a second with a run of the doctor in it, and without (scenario D5: each minute, where the
// administration runs, it takes less than 2 %). An operation is a pair of such seconds, and the ratio is the median of the pairs.
func relayWithDoctor(b *testing.B, s *postgres.Store) {
	counter := &delivered{}
	r, err := relay.New(s, relay.Config{Name: "load", Publisher: counter, Logger: slog.New(slog.DiscardHandler)})
	check(b, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.Run(ctx) })
	defer running.Wait()
	defer stop()
	for counter.n.Load() == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	second := func(during func()) float64 {
		begun, from := time.Now(), counter.n.Load()
		during()
		time.Sleep(time.Second - time.Since(begun))
		return float64(counter.n.Load()-from) / time.Since(begun).Seconds()
	}
	var ratios, rates []float64
	for b.Loop() {
		without := second(func() {})
		with := second(func() { examine(b, s) })
		ratios, rates = append(ratios, with/without), append(rates, without)
	}
	slices.Sort(ratios)
	slices.Sort(rates)
	lost := 1 - ratios[len(ratios)/2]
	b.ReportMetric(rates[len(rates)/2], "messages/s")
	b.ReportMetric(100*lost, "%lost-each-second")
	b.ReportMetric(100*lost/60, "%lost-each-minute")
}
