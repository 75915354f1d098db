// Package given declares what the page takes for granted.
package given

import (
	"context"
	"database/sql"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/postgres"
	"gorm.io/gorm"
)

type Order struct{ ID string }

var (
	dsn     string
	gormDB  *gorm.DB
	order   Order
	message *postrider.Message
)

func TxOfGORM(*gorm.DB) (*sql.Tx, error) { return nil, nil }
