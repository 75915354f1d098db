// Package given declares what the page takes for granted.
package given

import (
	"context"
	"database/sql"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

var (
	shop             *outbox.Outbox[*sql.Tx]
	tx               *sql.Tx
	logger           watermill.LoggerAdapter
	watermillMessage *watermillmessage.Message
	message          *postrider.Message
	err              error
)
