package sqlite_test

import (
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/storetest"
)

func TestTxStore(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, features, harness)
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers)
}

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers)
}
