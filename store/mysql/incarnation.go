package mysqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/store"
)

// An incarnation is the time between two starts of a server. Its random name is in a table of the engine MEMORY, which a restart
// empties; that ends every lease granted under the incarnation. The row is found by the name of the server, so the copy on a
// replica has no effect when the replica is promoted. The first half of the incarnation's name identifies the server.
//
// On a server that does not allow MEMORY, the table is an InnoDB table and survives a crash. There a crash must lose nothing.

// presentSQL reads the current incarnation, NULL if there is none yet.
func presentSQL(prefix string) string {
	return `(SELECT incarnation FROM ` + prefix + `incarnations WHERE server = ` + serverNameSQL + `)`
}

const (
	// drawIncarnationSQL is not part of a transaction: the engine MEMORY has none.
	drawIncarnationSQL = `INSERT IGNORE INTO {prefix}incarnations (server, incarnation, begun_at)
		VALUES ({server}, CONCAT(LEFT(SHA2({server}, 256), 16), '-', ?), {now})`
	incarnationsEngineSQL = `SELECT engine FROM information_schema.tables
		WHERE table_schema = DATABASE() AND table_name = '{prefix}incarnations'`
	flushSQL = `SELECT @@GLOBAL.innodb_flush_log_at_trx_commit`
)

// errNoIncarnation: the server has restarted, and no lease has been acquired since. See Store.repeat.
var errNoIncarnation = errors.New("the server has no incarnation although one was drawn; connections reach different servers")

// begun makes sure that the server has an incarnation.
func (t txn) begun() error {
	if t.incarnation == "" {
		return errNoIncarnation
	}
	t.s.served.note(t.s, t.incarnation)
	return nil
}

func (s *Store) drawIncarnation(ctx context.Context) error {
	_, err := s.pooled().exec(ctx, drawIncarnationSQL, store.NewToken())
	return err
}

// sameServer reports whether two incarnations are of one server.
func sameServer(a, b string) bool {
	one, _, _ := strings.Cut(a, "-")
	other, _, _ := strings.Cut(b, "-")
	return one == other
}

// checkIncarnations refuses a server on which a crash would end no lease and lose settlements. It accepts users without rights to
// the table, such as publishers: they take no leases.
func (s *Store) checkIncarnations(ctx context.Context) error {
	var engine string
	var flush int
	t := s.pooled()
	err := errors.Join(t.get(ctx, incarnationsEngineSQL, nil, &engine), t.get(ctx, flushSQL, nil, &flush))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return s.cfg.explain("look at the table of incarnations", err)
	}
	if !strings.EqualFold(engine, engineMemory) && flush != 1 {
		return fmt.Errorf("mysql store: %w: table %sincarnations is not of the engine MEMORY, so that leases outlive a crash, and "+
			"innodb_flush_log_at_trx_commit is %d, so that a crash loses what was settled; set that to 1", ErrUnsuitable, s.cfg.Prefix, flush)
	}
	return nil
}

// incarnations tracks the incarnations that this process has seen.
type incarnations struct {
	mu      sync.Mutex
	present string
	before  map[string]bool
	// returns counts how often an earlier incarnation has come back since the time since.
	returns int
	since   time.Time
	said    bool
}

// returnsWithin is the time within which two returns mean that statements reach different servers.
const returnsWithin = 10 * time.Minute

// note records the incarnation that a statement has met, and drops what was derived from another one. If earlier incarnations
// come back repeatedly, their server was not restarted: statements reach different servers.
func (i *incarnations) note(s *Store, incarnation string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.present == incarnation {
		return
	}
	if i.present != "" {
		s.closing.reset()
		s.publishing.Store(0)
	}
	if i.before == nil || len(i.before) > 100 {
		i.before = make(map[string]bool)
	}
	i.before[i.present], i.present = true, incarnation
	if !i.before[incarnation] {
		return
	}
	if now := time.Now(); i.returns == 0 || now.Sub(i.since) > returnsWithin {
		i.returns, i.since = 0, now
	}
	if i.returns++; i.returns >= 2 && !i.said {
		i.said = true
		s.cfg.Logger.Error("statements reach different servers, and leases are lost again and again; connect to one primary", "outbox", s.cfg.Prefix)
	}
}
