// Package given declares what the page takes for granted.
package given

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
)

var (
	in     *inbox.Inbox[pgx.Tx]
	js     jetstream.JetStream
	stream jetstream.Stream
)
