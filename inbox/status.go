package inbox

import (
	"context"
	"time"

	"github.com/postrider/postrider/relay"
)

// StatusStore tells what consumers have consumed. How they are doing otherwise (what they have put aside, who runs them) is
// in relay.Status, under their names. Store/postgres, store/sqlite, store/mysql and store/memory implement it.
type StatusStore interface {
	// Consumers describes every consumer that the store knows, by name. Its cost does not grow with what is remembered.
	Consumers(ctx context.Context) ([]ConsumerStatus, error)
}

// ConsumerStatus is what a consumer has consumed.
type ConsumerStatus struct {
	Name string `json:"name"`
	// Remembered counts the IDs of consumed messages that are remembered; Oldest is how long ago the oldest was taken.
	// Messages that the source can bring again for longer than IDs are kept have their effect twice.
	Remembered relay.Count   `json:"remembered"`
	Oldest     time.Duration `json:"oldest"`
	// Watermarks say how far the partitions of ordered sources were consumed, by partition and epoch.
	Watermarks []WatermarkStatus `json:"watermarks,omitempty"`
}

// WatermarkStatus is how far the log of a source's partition was consumed.
type WatermarkStatus struct {
	Partition string `json:"partition"`
	Epoch     string `json:"epoch"`
	Offset    int64  `json:"offset"`
	// Moved is how long ago it moved last. A source with more to consume, and a watermark that does not move, is a consumer
	// that is stopped or stuck.
	Moved time.Duration `json:"moved"`
}
