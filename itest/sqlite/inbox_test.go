package sqlite_test

import (
	"testing"

	"github.com/postrider/postrider/store/storetest"
)

func TestInbox(t *testing.T) {
	t.Parallel()
	storetest.Inbox(t, features, harness)
}
