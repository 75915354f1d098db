package stacks

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/gorm"
)

// PlaceWithGORM inserts an order and publishes OrderPlaced in one transaction of GORM.
func PlaceWithGORM(ctx context.Context, db *gorm.DB, box Outbox, o Order) error {
	err := db.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		if err := db.Create(&o).Error; err != nil {
			return err
		}
		tx, err := TxOfGORM(db)
		if err != nil {
			return err
		}
		return publishPlaced(ctx, box, tx, o)
	})
	if err == nil {
		box.Wake() // relays of this process deliver at once
	}
	return err
}

// TxOfGORM returns the transaction of database/sql that a *gorm.DB is in, also with gorm.Config.PrepareStmt and in nested transactions.
func TxOfGORM(db *gorm.DB) (*sql.Tx, error) {
	pool := db.Statement.ConnPool
	if prepared, ok := pool.(*gorm.PreparedStmtTX); ok {
		pool = prepared.Tx
	}
	tx, ok := pool.(*sql.Tx)
	if !ok {
		return nil, fmt.Errorf("the *gorm.DB is in no transaction of database/sql (%T): pass the one that Transaction gives", pool)
	}
	return tx, nil
}

// GORMIn returns db in a transaction that somebody else has begun, such as that of a message's handler.
func GORMIn(ctx context.Context, db *gorm.DB, tx *sql.Tx) *gorm.DB {
	in := db.Session(&gorm.Session{NewDB: true, Context: ctx})
	in.Statement.ConnPool = tx
	return in
}
