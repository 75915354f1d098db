package store

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Positions keeps how far consumers have processed the logs of brokers. Methods with a tx parameter run in that transaction, as
// those of Inbox do.
type Positions[Tx any] interface {
	// Position returns the position of consumer in a partition of a log, nil if it has none.
	Position(ctx context.Context, tx Tx, consumer, partition string) (*LogPosition, error)
	// MovePosition stores a position if its Number is one more than that of the stored one; the first is 1. The transaction
	// commits under a lease of the consumer (TxSettler.CommitSettled). Errors: ErrPositionMoved.
	MovePosition(ctx context.Context, tx Tx, consumer string, p LogPosition) error
	// LogPositions returns all positions of consumer by partition, as committed.
	LogPositions(ctx context.Context, consumer string) ([]LogPosition, error)
}

// ErrPositionMoved: the stored position is not the one before, because another process has moved it.
var ErrPositionMoved = errors.New("another process has moved the position")

// LogPosition is how far a consumer has processed a partition of a log. Everything in it but Partition, Number and Moved is
// stored as one document.
type LogPosition struct {
	Partition string `json:"-"`
	// Number counts the moves.
	Number int64 `json:"-"`
	// Moved is how long ago it was stored.
	Moved time.Duration `json:"-"`
	// Incarnation is the log incarnation. Everything up to Offset is processed, parked or dead-lettered.
	Incarnation string `json:"incarnation"`
	Offset      int64  `json:"offset"`
	// Anchors are messages of the log up to Offset, oldest first, by which a log that has lost its tail is recognized: the
	// distances from Offset double.
	Anchors []LogAnchor `json:"anchors,omitempty"`
	// End is the highest offset that the log had assigned when the position was stored: End-Offset is the lag.
	End int64 `json:"end"`
	// Sparse: the offsets of the log are not numbers of messages.
	Sparse bool `json:"sparse,omitempty"`
	// Open is for how long, when the position was stored, messages beyond Offset may have been processed. Their IDs are kept:
	// a crash makes the consumer read them again.
	Open time.Duration `json:"open,omitempty"`
	// Divided: the log is read in parts, which have positions of their own. This one stays as it was. Whole names the partition with this
	// position for a position in a part, and From is the Number that it had when the part began.
	Divided bool   `json:"divided,omitempty"`
	Whole   string `json:"whole,omitempty"`
	From    int64  `json:"from,omitempty"`
	// Replaced counts how often the log turned out to be another incarnation, or to have lost its tail.
	Replaced int64 `json:"replaced,omitempty"`
	// Missing counts the offsets that the broker removed before they were read. From MissingFrom to MissingTo is the last such
	// range. Offsets of other topics in the same log count too. In a sparse log, each range counts as one.
	Missing     int64 `json:"missing,omitempty"`
	MissingFrom int64 `json:"missing_from,omitempty"`
	MissingTo   int64 `json:"missing_to,omitempty"`
}

// LogAnchor is a message of a log: its offset and mark (postrider.Position).
type LogAnchor struct {
	Offset int64  `json:"o"`
	Mark   string `json:"m"`
}

// Follows reports whether p, a position in a part of a log, was stored since the log was divided the last time; whole is the position in the
// whole log.
func (p *LogPosition) Follows(whole *LogPosition) bool {
	return whole.Divided && p.Whole == whole.Partition && p.From == whole.Number
}

// IsCurrent reports whether a log is read by this position, of all that a consumer has. Otherwise the log has been divided since, or is whole
// again.
func (p *LogPosition) IsCurrent(all []LogPosition) bool {
	return !p.Divided && !slices.ContainsFunc(all, func(whole LogPosition) bool { return whole.Partition == p.Whole && !p.Follows(&whole) })
}

// Lag is the number of offsets beyond the position when it was stored, -1 if there were messages beyond it and the log does not
// tell how many.
func (p *LogPosition) Lag() int64 {
	if p.Sparse && p.End > p.Offset {
		return -1
	}
	return max(p.End-p.Offset, 0)
}
