// Package given declares what the page takes for granted.
package given

import (
	"context"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/resilience"
)

var (
	r        *relay.Relay
	provider interface {
		Charge(ctx context.Context, m *postrider.Message) error
	}
)
