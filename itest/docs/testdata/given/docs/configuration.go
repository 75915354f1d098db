// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/observe"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/postgres"
)

var (
	observer *observe.Relay
	store    *postgres.Store
)
