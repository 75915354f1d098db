package kafkabroker

import (
	"context"

	"github.com/postrider/postrider"
)

var _ postrider.RiskReader = (*Publisher)(nil)

// Risks implements postrider.RiskReader, for Config.Topic. Without one, the topics are known when messages are published; the log then
// has their risks.
func (p *Publisher) Risks(ctx context.Context) ([]string, error) {
	if p.cfg.Topic == "" {
		return nil, nil
	}
	t, err := p.topics.look(ctx, p.cfg.Topic)
	if err != nil {
		return nil, err
	}
	return t.risks, t.untold
}
