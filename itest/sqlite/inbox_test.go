package sqlite_test

import (
	"testing"

	"github.com/postrider/postrider/store/storetest"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, features, harness)
}

func TestGuard(t *testing.T) {
	t.Parallel()
	storetest.Guard(t, features, harness)
}
