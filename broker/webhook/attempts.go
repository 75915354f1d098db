package webhook

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

const (
	// Attempts that are not written yet: up to maxQueued of them, each of 2 KB at most. They are written recordBatch at a
	// time, or what there is recordEvery after the first.
	maxQueued   = 2_000
	recordBatch = 500
	recordEvery = 200 * time.Millisecond
	// recordTimeout bounds a try to write a batch, of which there are recordTries.
	recordTimeout = 5 * time.Second
	recordTries   = 2
	// dropEvery is the time between two looks for attempts whose time is over.
	dropEvery = time.Minute
	// maxError is the length of an error in the log, in bytes.
	maxError = 1_000
)

// recorder brings attempts into the log, beside the deliveries: they never wait for it.
type recorder struct {
	log    postrider.AttemptLog
	relay  string
	keep   time.Duration
	logger *slog.Logger

	queue  chan postrider.DeliveryAttempt
	lost   atomic.Int64 // since the last batch
	cancel context.CancelFunc
	ended  chan struct{}
}

// startRecorder returns nil, which records nothing, when there is no log.
func startRecorder(cfg Config) *recorder {
	if cfg.Attempts == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &recorder{
		log: cfg.Attempts, relay: cfg.Relay, keep: cfg.KeepAttempts, logger: cfg.Logger,
		queue: make(chan postrider.DeliveryAttempt, maxQueued), cancel: cancel, ended: make(chan struct{}),
	}
	go r.run(ctx)
	return r
}

// attempted notes an attempt that ended with err.
func (r *recorder) attempted(m *postrider.Message, began time.Time, x exchange, err error) {
	if r == nil {
		return
	}
	outcome := postrider.OutcomeOf(err).Kind.String()
	if errors.Is(err, context.Canceled) {
		outcome = "cancelled"
	}
	sum := sha256.Sum256(x.request)
	attempt := postrider.DeliveryAttempt{
		MessageID: m.ID, Relay: r.relay, Attempt: m.Attempt, At: began.UTC().Truncate(time.Microsecond), Took: time.Since(began),
		Outcome: outcome, Status: x.status, Answer: x.text, Error: errorText(err), RequestSHA256: sum[:],
	}
	select {
	case r.queue <- attempt:
	default:
		r.lost.Add(1)
	}
}

// errorText is an error as any database can hold it.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "�"), "\x00", "�")
	if len(text) <= maxError {
		return text
	}
	n := maxError
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// run writes what is queued until the queue is closed and empty, or ctx ends.
func (r *recorder) run(ctx context.Context) {
	defer close(r.ended)
	drop := time.NewTicker(dropEvery)
	defer drop.Stop()
	for {
		select {
		case first, ok := <-r.queue:
			if !ok {
				return
			}
			r.write(ctx, r.collect(first))
		case <-drop.C:
			r.drop(ctx)
		}
	}
}

// collect gathers a batch.
func (r *recorder) collect(first postrider.DeliveryAttempt) []postrider.DeliveryAttempt {
	batch := []postrider.DeliveryAttempt{first}
	enough := time.NewTimer(recordEvery)
	defer enough.Stop()
	for len(batch) < recordBatch {
		select {
		case a, ok := <-r.queue:
			if !ok {
				return batch
			}
			batch = append(batch, a)
		case <-enough.C:
			return batch
		}
	}
	return batch
}

func (r *recorder) write(ctx context.Context, batch []postrider.DeliveryAttempt) {
	var err error
	for range recordTries {
		try, cancel := context.WithTimeout(ctx, recordTimeout)
		err = r.log.RecordAttempts(try, batch, r.keep)
		cancel()
		if err == nil {
			break
		}
		r.wait(ctx)
	}
	lost := r.lost.Swap(0)
	if err != nil {
		lost += int64(len(batch))
	}
	if lost > 0 {
		r.logger.Warn("attempts are missing in the attempts log; deliveries do not depend on it", "missing", lost, "error", err)
	}
}

// wait is the time between two tries.
func (r *recorder) wait(ctx context.Context) {
	pause := time.NewTimer(recordEvery)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// drop drops what is past its time.
func (r *recorder) drop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	for {
		n, err := r.log.DropAttempts(ctx)
		if err != nil {
			r.logger.Warn("old attempts could not be dropped from the attempts log; it is tried again", "error", err)
		}
		if n == 0 || err != nil {
			return
		}
	}
}

// close writes what is queued, within recordTimeout. Nobody calls attempted any more.
func (r *recorder) close() {
	if r == nil {
		return
	}
	defer time.AfterFunc(recordTimeout, r.cancel).Stop()
	close(r.queue)
	<-r.ended
	r.cancel()
}
