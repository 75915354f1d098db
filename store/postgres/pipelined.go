package postgres

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider"
)

// pipelinedTx is a transaction that saves round trips: BEGIN is sent with the first statement, and inserted messages are sent in
// front of the next statement or with COMMIT, so the server executes everything in the order of the calls.
//
// Whatever cannot take them along (CopyFrom, a statement without parameters, which may contain several) is preceded by a
// round trip of its own. What hands out the connection (a nested transaction, Conn, LargeObjects) ends the saving: from then on,
// each call is sent at once.
//
// An error leaves the transaction as the server left it. Where that is unknown, or BEGIN was not executed, it is aborted: every
// statement fails, and COMMIT rolls back.
type pipelinedTx struct {
	pooled  poolConn
	conn    *pgx.Conn
	begin   pgx.TxOptions
	context context.Context // that of Begin, for Conn and LargeObjects, which are given none

	mu      sync.Mutex // a goroutine may outlive the function given to InTx
	tx      pgx.Tx     // nil until BEGIN was sent
	waiting []insertion
	bytes   int  // of the messages that wait
	direct  bool // nothing waits any more
	aborted bool
	closed  bool
}

// insertion is a statement that inserts messages.
type insertion struct {
	sql     string
	checked string // fails on the server unless every message is written
	args    []any
	rows    int
}

// Messages wait up to this size in bytes; then they are sent at once.
const waitingBytes = 256 << 10

// errAborted is the server's answer to a statement in an aborted transaction.
var errAborted = &pgconn.PgError{
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: failedTransaction,
	Message: "current transaction is aborted, commands ignored until end of transaction block",
}

func beginPipelined(ctx context.Context, pool pool, options pgx.TxOptions) (*pipelinedTx, error) {
	conn, err := pool.acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &pipelinedTx{pooled: conn, conn: conn.Conn(), begin: options, context: ctx}, nil
}

// insert sends messages with the next statement or with COMMIT. In a read-only session it sends them now, since they cannot be
// written.
func (t *pipelinedTx) insert(ctx context.Context, i insertion, size int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return translate("insert messages", err)
	}
	if t.tx != nil && (t.direct || t.serverAborted()) {
		tag, err := t.tx.Exec(ctx, i.sql, i.args...)
		return i.result(tag, err)
	}
	t.keep(i, size)
	if t.bytes <= waitingBytes && !readOnly(t.conn.PgConn()) {
		return nil
	}
	err := t.flush(ctx)
	if n := len(t.waiting); err != nil && n > 0 { // nothing was sent
		t.waiting, t.bytes = t.waiting[:n-1], t.bytes-size
	}
	return err
}

// result checks that every message was written.
func (i insertion) result(tag pgconn.CommandTag, err error) error {
	switch {
	case err == nil && tag.Select():
		return nil
	case i.sql == i.checked && code(err) == divisionByZero:
		return fmt.Errorf("%w: %w", errNotInserted, err)
	case err != nil:
		return translate("insert messages", err)
	}
	return allInserted(tag.RowsAffected(), i.rows)
}

// insertAll inserts messages in chunks, as the function insertAll does.
func (t *pipelinedTx) insertAll(ctx context.Context, msgs []*postrider.Message, inserts *inserts) error {
	for chunk := range chunks(msgs) {
		sql, args, err := inserts.typed(chunk)
		if err != nil {
			return err
		}
		size := 0
		for _, m := range chunk {
			size += m.Size()
		}
		if err := t.insert(ctx, insertion{sql: sql, checked: inserts.checked[sql], args: args, rows: len(chunk)}, size); err != nil {
			return err
		}
	}
	return nil
}

// keep copies the payloads, which the caller may change after Publish.
func (t *pipelinedTx) keep(i insertion, size int) {
	for n, arg := range i.args {
		switch arg := arg.(type) {
		case []byte:
			i.args[n] = bytes.Clone(arg)
		case [][]byte:
			for m, payload := range arg {
				arg[m] = bytes.Clone(payload)
			}
		}
	}
	t.waiting = append(t.waiting, i)
	t.bytes += size
}

// readOnly reports what PostgreSQL 14 and newer tell about the session.
func readOnly(conn *pgconn.PgConn) bool {
	return conn.ParameterStatus("default_transaction_read_only") == "on" || conn.ParameterStatus("in_hot_standby") == "on"
}

func (t *pipelinedTx) usable() error {
	switch {
	case t.closed:
		return pgx.ErrTxClosed
	case t.aborted:
		return errAborted
	}
	return nil
}

// lead is what a pipeline sends before the statement that it was made for.
func (t *pipelinedTx) lead() *pgx.Batch {
	batch := &pgx.Batch{}
	if t.tx == nil {
		batch.BeginTx(t.begin)
	}
	for _, i := range t.waiting {
		batch.Queue(i.sql, i.args...)
	}
	return batch
}

// leadToCommit is lead in front of COMMIT, which is executed before this program has seen what the statements wrote.
func (t *pipelinedTx) leadToCommit() *pgx.Batch {
	for i := range t.waiting {
		t.waiting[i].sql = t.waiting[i].checked
	}
	return t.lead()
}

// led reads the results of what was sent in front.
func (t *pipelinedTx) led(results pgx.BatchResults) error {
	if t.tx == nil {
		if _, err := results.Exec(); err != nil {
			return err
		}
		t.tx = results.Tx()
	}
	for ; len(t.waiting) > 0; t.waiting = t.waiting[1:] {
		if err := t.waiting[0].result(results.Exec()); err != nil {
			return err
		}
	}
	t.waiting, t.bytes = nil, 0
	return nil
}

// after takes note of what an error has left. If nothing was sent, messages go on waiting. If the server aborted the transaction,
// they are undone with it, even if the transaction returns to a savepoint: they are newer. Otherwise, it is unknown what was
// executed.
func (t *pipelinedTx) after(err error) error {
	if err == nil || pgconn.SafeToRetry(err) {
		return err
	}
	t.waiting, t.bytes = nil, 0
	if t.tx == nil || !t.serverAborted() {
		t.aborted = true
	}
	return err
}

// intact reports whether the server's transaction can go on after everything that was sent was answered.
func (t *pipelinedTx) intact() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tx != nil && !t.conn.IsClosed() && t.conn.PgConn().TxStatus() == 'T'
}

func (t *pipelinedTx) serverAborted() bool { return t.conn.PgConn().TxStatus() == 'E' }

// send sends a batch that begins with lead and returns its results, of which those of lead are read.
func (t *pipelinedTx) send(ctx context.Context, batch *pgx.Batch) (pgx.BatchResults, error) {
	results := t.conn.SendBatch(ctx, batch)
	if err := t.led(results); err != nil {
		_ = results.Close() // err is the cause of what this one reports
		return nil, t.after(err)
	}
	return results, nil
}

// flush sends what waits, and BEGIN.
func (t *pipelinedTx) flush(ctx context.Context) error {
	batch := t.lead()
	if batch.Len() == 0 {
		return nil
	}
	results, err := t.send(ctx, batch)
	if err != nil {
		return err
	}
	return t.after(results.Close())
}

// flushed returns the transaction that the server has begun.
func (t *pipelinedTx) flushed(ctx context.Context) (pgx.Tx, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, err
	}
	err := t.flush(ctx)
	return t.tx, err // set by flush
}

// piped sends a statement, and in front of it what waits. It returns no results if the statement must be sent by itself, on tx.
func (t *pipelinedTx) piped(ctx context.Context, sql string, args []any) (results pgx.BatchResults, tx pgx.Tx, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.usable(); err != nil {
		return nil, nil, err
	}
	batch := t.lead()
	if batch.Len() == 0 {
		return nil, t.tx, nil
	}
	if alone(args) {
		err := t.flush(ctx)
		return nil, t.tx, err
	}
	batch.Queue(sql, args...)
	results, err = t.send(ctx, batch)
	return results, nil, err
}

// alone reports whether a batch cannot contain a statement with these arguments: without any, it may be several statements, and
// the only option that a batch knows is pgx.QueryRewriter.
func alone(args []any) bool {
	if len(args) == 0 {
		return true
	}
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return true
		case pgx.QueryRewriter:
		default:
			return false
		}
	}
	return false
}

// done is after, for results that are read without the lock.
func (t *pipelinedTx) done(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.after(err)
}
