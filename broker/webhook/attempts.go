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
	// The queue holds up to maxQueued unwritten attempts of at most 2 KB each. A batch is written when it has
	// recordBatch attempts, or recordEvery after its first one.
	maxQueued   = 2_000
	recordBatch = 500
	recordEvery = 200 * time.Millisecond
	// recordTimeout is the time limit of one try to write a batch; recordTries is the number of tries.
	recordTimeout = 5 * time.Second
	recordTries   = 2
	// dropEvery is the interval at which expired attempts are removed.
	dropEvery = time.Minute
	// maxError is the maximum length of an error text in the log, in bytes.
	maxError = 1_000
)

// recorder writes attempts to the log in the background; deliveries do not wait for it.
type recorder struct {
	log    postrider.AttemptLog
	relay  string
	keep   time.Duration
	logger *slog.Logger

	queue  chan postrider.DeliveryAttempt
	lost   atomic.Int64 // attempts dropped since the last batch
	cancel context.CancelFunc
	ended  chan struct{}
}

// startRecorder returns nil, which records nothing, if there is no log.
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

// attempted queues the record of an attempt that ended with err.
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

// errorText returns the text of an error in a form that any database can store.
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

// run writes queued attempts until the queue is closed and empty.
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

// wait waits between two tries.
func (r *recorder) wait(ctx context.Context) {
	pause := time.NewTimer(recordEvery)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-ctx.Done():
	}
}

// drop removes expired attempts.
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

// close writes the queued attempts, within recordTimeout. attempted must not be called any more.
func (r *recorder) close() {
	if r == nil {
		return
	}
	defer time.AfterFunc(recordTimeout, r.cancel).Stop()
	close(r.queue)
	<-r.ended
	r.cancel()
}
