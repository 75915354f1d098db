// Package given declares what the page takes for granted.
package given

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

var (
	tx          *sql.Tx
	err         error
	shop        *outbox.Outbox[*sql.Tx]
	orderPlaced *postrider.Message
	broker      interface {
		Publish(m *postrider.Message) error
	}
)
