package sqlite_test

import (
	"testing"

	"github.com/postrider/postrider/store/storetest"
)

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	storetest.DeadLetters(t, features, harness)
}
