package postgres_test

import (
	"testing"

	"github.com/postrider/postrider/store/storetest"
)

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	storetest.DeadLetters(t, storetest.Features{CoarseRetention: coarse}, harness(dsn(t)))
}
