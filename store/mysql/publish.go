package mysqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/internal/stored"
	"github.com/postrider/postrider/store"
)

var _ store.Outbox[*sql.Tx] = (*Store)(nil)

const (
	// insertRows and insertBytes limit one INSERT.
	insertRows  = 1_000
	insertBytes = 8 << 20
	// rowOverhead is an upper limit for the text of a row, in bytes, without its values.
	rowOverhead = 512
)

// The server ends a transaction on its own in a deadlock, and before statements such as CREATE TABLE; the connection then
// continues without one. The missing savepoint shows it.
const (
	markTxSQL = `SAVEPOINT postrider_begun`
	sameTxSQL = `RELEASE SAVEPOINT postrider_begun`
)

// beginAgainSQL replaces the empty transaction that the driver has begun: the driver sets an isolation level in a round trip of its
// own, and here it shares one with the limit. It names no chain and no release, since completion_type may ask for them.
const beginAgainSQL = `ROLLBACK AND NO CHAIN NO RELEASE; SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION`

// AND CHAIN begins an empty transaction, which is rolled back with the *sql.Tx. Otherwise a statement of another goroutine that
// still uses the *sql.Tx could run in between, as a transaction of its own, and be committed.
const (
	commitSQL   = `COMMIT AND CHAIN`
	rollbackSQL = `ROLLBACK AND CHAIN`
)

const (
	insertSQL = `INSERT INTO {prefix}log (partition_id, ` + messageColumns + `) VALUES `
	// samePartition is the first row's partition. If the number of partitions is not the one that the rows were made for, it is
	// an error (two rows for one value), whatever sql_mode is.
	samePartition = `IF((` + partitionsSQL + `) = %d, %d, (SELECT 1 UNION SELECT 2))`
	writtenSQL    = `SELECT id FROM {prefix}log WHERE %s`
)

// Begin implements store.Outbox and store.Transactor: the transaction is READ COMMITTED, and ends when it waits for its next
// statement for longer than Config.IdleTimeout. End it with Commit, CommitSettled or Rollback, which restore the connection's old
// limit. If ctx ends instead, the connection keeps the limit until the next transaction that this store begins on it has ended.
func (s *Store) Begin(ctx context.Context) (*sql.Tx, error) {
	return s.beginIdle(ctx, s.cfg.IdleTimeout)
}

func (s *Store) beginIdle(ctx context.Context, idle time.Duration) (*sql.Tx, error) {
	limit, _ := s.limitsOf(idle)
	options, statements := &sql.TxOptions{Isolation: sql.LevelReadCommitted}, []string{limit, markTxSQL}
	if s.server.mariaDB() {
		options, statements = nil, []string{beginAgainSQL, limit, markTxSQL}
	}
	tx, err := s.db.BeginTx(ctx, options)
	if err != nil {
		return nil, s.cfg.explain("begin a transaction", err)
	}
	if err = s.sequence(ctx, tx, statements...); err != nil {
		_ = tx.Rollback() // err is the cause
		return nil, s.cfg.explain("begin a transaction", err)
	}
	return tx, nil
}

// Commit implements store.Outbox, for a transaction that Begin has begun. Errors: store.ErrNoTransaction when tx is nil or has
// ended; those of the server, also when the server has already ended the transaction, as in a deadlock whose error was ignored;
// store.ErrUncertain.
func (s *Store) Commit(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	if err := s.end(ctx, tx, sameTxSQL); err != nil {
		if s.cfg.ErrorCode(err) == codeNoneSuch {
			err = fmt.Errorf("%w: %w", errEnded, err)
		}
		return errors.Join(s.inTransaction("commit", err), s.Rollback(ctx, tx))
	}
	return nil
}

// end executes statements, commits, and then restores the limit, so that the limit applies while locks are held. If a statement
// fails, nothing is committed. After the commit, nothing is an error any more: if ctx ends meanwhile, database/sql has the connection,
// which keeps the limit as after Begin.
func (s *Store) end(ctx context.Context, tx *sql.Tx, statements ...string) error {
	ctx, cancel := stored.WithGrace(ctx)
	defer cancel()
	_, unlimit := s.limits()
	commit := []string{commitSQL}
	if s.server.mariaDB() { // in one round trip
		commit, statements, unlimit = append(statements, commitSQL, unlimit), nil, ""
	}
	if err := s.sequence(ctx, tx, statements...); err != nil {
		return err
	}
	if err := s.sequence(ctx, tx, commit...); err != nil {
		return s.cfg.uncertain(err)
	}
	if unlimit != "" {
		_, _ = tx.ExecContext(ctx, unlimit)
	}
	_ = tx.Rollback() // already committed: an error is the connection's, which is not used again
	s.leave(tx)
	return nil
}

var errEnded = errors.New("the transaction has ended; return the errors of its statements, and use none that commit")

// stillBegun fails if a transaction has ended since Begin.
func stillBegun(ctx context.Context, tx executor) error {
	if _, err := tx.ExecContext(ctx, sameTxSQL); err != nil {
		return fmt.Errorf("%w: %w", errEnded, err)
	}
	return nil
}

// Rollback implements store.Outbox.
func (s *Store) Rollback(ctx context.Context, tx *sql.Tx) error {
	if tx == nil {
		return nil
	}
	defer s.leave(tx)
	if _, unlimit := s.limits(); unlimit != "" {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), restoreWithin)
		defer cancel()
		_ = s.sequence(after, tx, rollbackSQL, unlimit) // if this fails, the connection is gone or the transaction has ended
	}
	if err := tx.Rollback(); err != nil && !errors.Is(err, sql.ErrTxDone) {
		return s.cfg.explain("roll back", err)
	}
	return nil
}

// Insert implements store.Outbox: it writes all messages or none, whatever the isolation level of tx. Errors:
// store.ErrNoTransaction, ErrTooLarge (tx can go on), ErrDeadlock (tx is lost; run it again), ErrLockTimeout, ErrFull and those
// of the server.
func (s *Store) Insert(ctx context.Context, tx *sql.Tx, msgs []*postrider.Message) error {
	if tx == nil {
		return store.ErrNoTransaction
	}
	if len(msgs) == 0 {
		return nil
	}
	t := txn{s: s, on: tx}
	chunks, err := s.chunks(msgs)
	if err != nil {
		return err
	}
	var wrote gaps
	if len(chunks) == 1 {
		wrote, err = t.insert(ctx, wrote, chunks[0])
	} else {
		// Several statements: after a failure in the middle, a user who commits anyway must not commit the first messages.
		err = t.savepoint(ctx, "postrider_insert", func() (err error) {
			for _, chunk := range chunks {
				if wrote, err = t.insert(ctx, wrote, chunk); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		return s.inTransaction("write messages", err)
	}
	s.wrote.Update(tx, func(known gaps, _ bool) gaps {
		known = slices.Clone(known) // Written may read it
		for _, r := range wrote {
			known = known.add(r)
		}
		return known
	})
	return nil
}

// chunks splits messages into groups for one INSERT each.
func (s *Store) chunks(msgs []*postrider.Message) ([][]*postrider.Message, error) {
	var out [][]*postrider.Message
	first, size := 0, 0
	most := s.mostBytes() - rowOverhead // for the statement
	limit := min(insertBytes, most)
	for i, m := range msgs {
		n := sizeOf(m)
		if n > most {
			return nil, fmt.Errorf("message %s of %d bytes: %w: max_allowed_packet is %d", m.ID, m.Size(), ErrTooLarge, s.server.maxPacket)
		}
		if i > first && (size+n > limit || i-first == insertRows) {
			out = append(out, msgs[first:i])
			first, size = i, 0
		}
		size += n
	}
	return append(out, msgs[first:]), nil
}

// sizeOf is about how many bytes a message takes in a statement.
func sizeOf(m *postrider.Message) int {
	payload := len(m.Payload)
	rest := m.Size() - payload
	if payload < large {
		payload *= 2
	}
	return rowOverhead + 2*rest + payload
}

// undoTimeout limits the return to a savepoint, which goes on when the caller's context has ended: the connection may have died without a
// word.
const undoTimeout = 10 * time.Second

func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// savepoint undoes what f did if f fails.
func (t txn) savepoint(ctx context.Context, name string, f func() error) error {
	if _, err := t.on.ExecContext(ctx, `SAVEPOINT `+name); err != nil {
		return err
	}
	err := f()
	if err == nil {
		_, err = t.on.ExecContext(ctx, `RELEASE SAVEPOINT `+name)
		return err
	}
	if t.s.cfg.ErrorCode(err) == codeDeadlock {
		return err // nothing is left of the transaction
	}
	ctx, cancel := undoing(ctx)
	defer cancel()
	_, undo := t.on.ExecContext(ctx, `ROLLBACK TO SAVEPOINT `+name)
	return errors.Join(err, undo)
}

// insertTries is how often an INSERT is tried when its sequences were closed or the number of partitions has changed.
const insertTries = 4

// insert executes one INSERT and adds its sequences to wrote. If the number of partitions has changed, it uses the current one;
// if one of its sequences was closed before it wrote the row, it takes others.
func (t txn) insert(ctx context.Context, wrote gaps, msgs []*postrider.Message) (gaps, error) {
	s := t.s
	n := cmp.Or(s.publishing.Load(), s.partitions.Load())
	for try := 1; ; try++ {
		st, err := s.insertStatement(msgs, n)
		if err != nil {
			return wrote, err
		}
		res, err := t.send(ctx, st)
		switch code := s.cfg.ErrorCode(err); {
		case err == nil:
			first, err := res.LastInsertId()
			return wrote.add(span{first, first + int64(len(msgs)) - 1}), err
		case try == insertTries, code != codeTwoRows && code != codeDuplicate:
			return wrote, err
		case code == codeTwoRows:
			// A locking read sees the current number at every isolation level.
			if err := t.get(ctx, partitionsSQL+` LOCK IN SHARE MODE`, nil, &n); err != nil {
				return wrote, err
			}
			s.publishing.Store(n)
		}
	}
}

// insertStatement returns the INSERT for messages, for an outbox of n partitions.
func (s *Store) insertStatement(msgs []*postrider.Message, n int64) (*statement, error) {
	var values []any
	rows := make([]string, len(msgs))
	for i, m := range msgs {
		p := postrider.PartitionOf(m.Key, m.ID, int(n))
		partition := any(p)
		if i == 0 {
			partition = expression(s.names.Replace(fmt.Sprintf(samePartition, n, p)))
		}
		var err error
		if values, err = appendMessage(append(values, partition), m); err != nil {
			return nil, err
		}
		rows[i] = insertRow
	}
	var st statement
	st.add(s.expand(insertSQL)+strings.Join(rows, `, `), values)
	return &st, nil
}

var insertRow = `(?` + strings.Repeat(`, ?`, stored.Columns) + `)`

// appendMessage appends the columns of a message, with times on the database's clock.
func appendMessage(values []any, m *postrider.Message) ([]any, error) {
	values, err := stored.Append(values, m, 0)
	if err != nil {
		return values, err
	}
	n := len(values)
	values[n-1] = expression(nowSQL)
	if m.DeliverAfter > 0 {
		values[n-2] = expression(fmt.Sprintf(`%s + %d`, nowSQL, m.DeliverAfter.Microseconds()))
	}
	return values, nil
}

// Written implements store.Outbox.
func (s *Store) Written(ctx context.Context, tx *sql.Tx, ids []string) ([]string, error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	written := make(map[string]bool)
	for where := range s.ours(tx) {
		// Without the IDs, of which any number would have to fit into a packet.
		found, err := stored.Column[string](ctx, txn{s: s, on: tx}.query, fmt.Sprintf(writtenSQL, where))
		if err != nil {
			return nil, s.inTransaction("look up written messages", err)
		}
		for _, id := range found {
			written[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !written[id] }), nil
}

// ours yields conditions for the sequences that a transaction has taken, in ascending order, each of a size for one statement;
// one that is never true if it has taken none, so that the server is asked whether the transaction has ended.
func (s *Store) ours(tx *sql.Tx) iter.Seq[string] {
	const atATime = 200
	return func(yield func(string) bool) {
		taken, _ := s.wrote.Of(tx)
		if len(taken) == 0 {
			yield(`FALSE`)
		}
		for spans := range slices.Chunk(taken, atATime) {
			conditions := make([]string, len(spans))
			for i, r := range spans {
				conditions[i] = fmt.Sprintf(`seq BETWEEN %d AND %d`, r.from, r.to)
			}
			if !yield(strings.Join(conditions, ` OR `)) {
				return
			}
		}
	}
}

const publishedSQL = `SELECT seq, ` + messageColumns + ` FROM {prefix}log WHERE %s ORDER BY seq`

// Published implements store.Outbox, for messages that were published through this Store.
func (s *Store) Published(ctx context.Context, tx *sql.Tx) (out []*postrider.Message, err error) {
	if tx == nil {
		return nil, store.ErrNoTransaction
	}
	for where := range s.ours(tx) {
		msgs, err := stored.Messages(ctx, txn{s: s, on: tx}.query, fmt.Sprintf(publishedSQL, where))
		if err != nil {
			return nil, s.inTransaction("read what was published", err)
		}
		out = append(out, msgs...)
	}
	return out, nil
}
