// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox"
)

var in *inbox.Inbox[pgx.Tx]
