package memory_test

import (
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/storetest"
)

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers)
}

func TestTxStore(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, features, harness)
}

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers)
}
