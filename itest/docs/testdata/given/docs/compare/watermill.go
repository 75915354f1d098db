// Package given declares what the page takes for granted.
package given

import (
	"context"
	"database/sql"
	"encoding/json"

	"github.com/ThreeDotsLabs/watermill"
	watersql "github.com/ThreeDotsLabs/watermill-sql/v4/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/components/forwarder"
	watermillmessage "github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/message/router/middleware"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
)

type Order struct{ ID string }

func inTx(context.Context, func(context.Context, *sql.Tx) error) error   { return nil }
func processed(context.Context, *sql.Tx, string) (known bool, err error) { return false, nil }
func takeOut(context.Context, *sql.Tx, Order) error                      { return nil }
func withTenant(ctx context.Context, _ string) context.Context           { return ctx }

var (
	OrderPlaced      = postrider.Define[Order]("order.placed")
	in               *inbox.Inbox[*sql.Tx]
	stream           postrider.Subscriber
	router           *watermillmessage.Router
	subscriber       watermillmessage.Subscriber
	shop             *outbox.Outbox[*sql.Tx]
	tx               *sql.Tx
	logger           watermill.LoggerAdapter
	watermillMessage *watermillmessage.Message
	message          *postrider.Message
	err              error
)
