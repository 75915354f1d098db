package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider/relay"
)

// StatusStore reports what consumers have consumed. The rest of their status (parked messages, the processes that run
// them) is in relay.Status, under their names. Store/postgres, store/sqlite, store/mysql and store/memory implement it.
type StatusStore interface {
	// Consumers describes every consumer that the store knows, by name. Its cost does not grow with the number of kept
	// IDs.
	Consumers(ctx context.Context) ([]ConsumerStatus, error)
}

// ConsumerStatus describes what a consumer has consumed.
type ConsumerStatus struct {
	Name string `json:"name"`
	// Remembered counts the kept IDs of consumed messages; Oldest is the age of the oldest. Messages that the source can
	// redeliver for longer than IDs are kept may be processed twice.
	Remembered relay.Count   `json:"remembered"`
	Oldest     time.Duration `json:"oldest"`
	// Watermarks lists the progress in the partitions of ordered sources, by partition and log incarnation.
	Watermarks []WatermarkStatus `json:"watermarks,omitempty"`
}

// WatermarkStatus is the progress in the log of a source's partition.
type WatermarkStatus struct {
	Partition string `json:"partition"`
	Epoch     string `json:"epoch"`
	Offset    int64  `json:"offset"`
	// Moved is how long ago the watermark last moved. If the source has more messages and the watermark does not move,
	// the consumer is stopped or stuck.
	Moved time.Duration `json:"moved"`
}
