package natsbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

var _ postrider.RiskReader = (*Publisher)(nil)

// shortAge is how old messages of a stream should be able to become: longer than a consumer is down.
const shortAge = time.Hour

// Risks implements postrider.RiskReader.
func (p *Publisher) Risks(ctx context.Context) ([]string, error) {
	stream, err := p.js.Stream(ctx, p.stream.Name)
	if err != nil {
		return nil, streamError(p.cfg, err)
	}
	return streamRisks(stream.CachedInfo().Config), nil
}

// streamRisks returns the settings of a stream by which it drops messages that nobody has read.
func streamRisks(c jetstream.StreamConfig) (out []string) {
	if c.Storage == jetstream.MemoryStorage {
		out = append(out, fmt.Sprintf("stream %s is in memory, and a restart of its servers loses it; make it again with --storage file, "+
			"since the storage of a stream cannot be changed", c.Name))
	}
	if limit := c.MaxBytes > 0 || c.MaxMsgs > 0; limit && c.Discard == jetstream.DiscardOld {
		out = append(out, fmt.Sprintf("stream %s drops its oldest messages when it is full, read or not; run: nats stream edit %[1]s --discard new", c.Name))
	}
	if c.MaxAge > 0 && c.MaxAge < shortAge {
		out = append(out, fmt.Sprintf("stream %s drops messages after %s, read or not; run: nats stream edit %[1]s --max-age 24h", c.Name, c.MaxAge))
	}
	return out
}
