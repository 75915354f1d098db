package mysql_test

import (
	"database/sql"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	mysqlstore "github.com/postrider/postrider/store/mysql"
)

var consumers = inboxtest.Harness[*sql.Tx]{
	Open: func(t testing.TB) inboxtest.Store[*sql.Tx] {
		return newStore(t, newDatabase(t).migrated(t, nil, mysqlstore.Config{Partitions: 4}), mysqlstore.Config{})
	},
	Histories: 2,
}

func TestConsumers(t *testing.T) {
	t.Parallel()
	inboxtest.Run(t, consumers)
}

func TestConsumersModel(t *testing.T) {
	t.Parallel()
	inboxtest.Model(t, consumers)
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers)
}

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers)
}
