package postgres_test

import (
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/store/storetest"
)

func TestTxStore(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, inboxFeatures, harness(dsn(t)))
}

func TestTxStoreWithSimpleProtocol(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, inboxFeatures, harness(withParam(t, dsn(t), "default_query_exec_mode", "simple_protocol")))
}

func TestTxStoreOverPgBouncer(t *testing.T) {
	t.Parallel()
	storetest.HandleTx(t, inboxFeatures, harness(withParam(t, startPgBouncer(t), "default_query_exec_mode", "exec")))
}

func TestHandleTx(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTx(t, consumers(dsn(t)))
}

func TestHandleTxModel(t *testing.T) {
	t.Parallel()
	inboxtest.HandleTxModel(t, consumers(dsn(t)))
}
