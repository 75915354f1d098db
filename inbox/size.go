package inbox

import (
	"log/slog"
	"sync/atomic"
	"time"
)

// batchSize is how many messages share a transaction.
type batchSize struct {
	fits       atomic.Int64 // for how many there is time
	slow       atomic.Bool  // handlers take so long that keys must not wait for each other in a transaction
	conflictAt atomic.Int64 // when messages that shared a transaction were last in conflict with other transactions, in Unix nanoseconds
}

// firstFit is how many messages the first transactions take. While transactions take less than growBelow, later ones take twice as
// many; when they take longer than shrinkAbove, half as many, down to firstFit.
const (
	firstFit    = 16
	growBelow   = 50 * time.Millisecond
	shrinkAbove = 4 * growBelow
)

// slowHandler is how long the handler of a message may take, on average, for messages of different keys to share a transaction while
// workers are idle. It is about what a transaction takes by itself.
const slowHandler = 2 * time.Millisecond

// aloneFor is how long each message has its own transaction after a transaction that several shared was in conflict with others. A
// handler locks the rows of one message in the same order as everybody else, but a shared transaction locks them message by message. Two of
// these can block each other, and everybody who waits for their rows, until the database ends one.
const aloneFor = time.Minute

// limit is how many messages the next transaction takes at most.
func (s *batchSize) limit() int {
	if time.Since(time.Unix(0, s.conflictAt.Load())) < aloneFor {
		return 1
	}
	return int(s.fits.Load())
}

// fitted records that a transaction with the maximum number of messages, n of at most most, was committed, and how long it took.
func (s *batchSize) fitted(n int, took time.Duration, most int) {
	fits := s.fits.Load()
	switch {
	case int64(n) != fits:
	case took < growBelow && n < most:
		s.fits.CompareAndSwap(fits, min(2*fits, int64(most)))
	case took > shrinkAbove && n > firstFit:
		s.fits.CompareAndSwap(fits, max(fits/2, firstFit))
	}
}

// conflicted records that messages that shared a transaction were in conflict with other transactions.
func (s *batchSize) conflicted(consumer string, log *slog.Logger) {
	now := time.Now()
	if before := s.conflictAt.Swap(now.UnixNano()); now.Sub(time.Unix(0, before)) >= aloneFor {
		log.Info("messages that shared a transaction were in a deadlock with others; each gets its own transaction",
			"consumer", consumer, "for", aloneFor)
	}
}
