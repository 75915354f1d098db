package postgres_test

import (
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
)

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers(dsn(t)))
}
