package mysqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/postrider/postrider/store"
)

type numbered struct{ Number uint16 }

func (e numbered) Error() string { return fmt.Sprintf("error %d", e.Number) }

// TestUncertain: whoever is told that nothing was committed may do it again.
func TestUncertain(t *testing.T) {
	t.Parallel()
	cfg := Config{ErrorCode: codeOf}
	for err, want := range map[error]bool{
		sql.ErrTxDone:              false, // not sent
		numbered{codeNoneSuch}:     false, // no savepoint
		numbered{codeDeadlock}:     false,
		numbered{1317}:             true, // an operator has ended the statement
		numbered{1969}:             true, // its time limit
		numbered{1053}:             true, // the server shuts down
		driver.ErrBadConn:          true,
		context.DeadlineExceeded:   true,
		errors.New("invalid conn"): true,
	} {
		if got := errors.Is(cfg.uncertain(err), store.ErrUncertain); got != want {
			t.Errorf("%v: uncertain %v, want %v", err, got, want)
		}
	}
}
