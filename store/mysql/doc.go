// Package mysqlstore keeps the outbox in a MySQL (8.0.13 or newer) or MariaDB (10.6 or newer) database, through database/sql and
// with any driver. A message is written in the *sql.Tx of the business change; relays in any number of processes deliver it.
//
//	db, err := sql.Open("mysql", "shop:secret@tcp(db:3306)/shop") // github.com/go-sql-driver/mysql
//	...
//	_, err = mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, mysqlstore.Latest)
//	...
//	store, err := mysqlstore.New(db, mysqlstore.Config{})
//
// See docs/stores/mysql.md for the settings that matter and the limits, docs/sql-contract.md for the procedure with which any
// client publishes, and dialect.go for the differences between MySQL and MariaDB.
//
// # The cursor, and why nothing is skipped
//
// The log is append-only. A row takes its sequence (AUTO_INCREMENT) when it is inserted and becomes visible when its transaction
// commits. So rows do not become visible in sequence order, and "seq > position" loses rows that commit after the reader has
// passed them. MySQL does not show which transactions a snapshot has seen. But sequences are dense: a row that a reader has not
// seen leaves a gap in the numbers. So a cursor is a position and the gaps before it. It means: the rows of the partition with
// seq ≤ position that are in no gap have been delivered.
//
// A fetch is one statement, so all of it sees one database state, σ. It reads
//
//   - late rows: rows in the gaps of the cursors, in seq order;
//   - fresh rows: all rows of all partitions with seq > position, in seq order, up to a limit. Every sequence between two of them
//     is missing in σ and becomes a gap.
//
// Let e be the last sequence read. The next cursor is (e, G'), where G' is the old gaps without the rows that were found, plus
// the new gaps up to e. Claim: if (p, G) is correct, (e, G') is correct once the returned rows are delivered. Take a row with seq
// ≤ e:
//
//   - seq ≤ p, in no gap of G: it was delivered before.
//   - In a gap of G and visible in σ: it is late and was returned.
//   - seq > p and visible in σ: it is fresh and was returned.
//   - Otherwise it is not visible in σ, and its sequence is in G': it will be late in a later fetch, whenever it commits.
//
// The cases exclude each other, so no row is returned twice. A cursor that stops at a fresh row s < e with the gaps of e is
// correct too: only gaps up to the position count. No step waits for another transaction.
//
// MariaDB's snapshots are not one state. It looks at the running transactions one after another, and one that waited for
// another may commit in between: then σ has its row without that of the transaction before it. So a second statement
// looks for what is missing before the last row of σ. It begins after both commits and sees the first as well. The fetch then ends
// before the first row that the second statement finds, so that a later fetch returns the two in order. What comes before that row
// has nothing missing before it that had committed. MySQL takes a snapshot under a lock.
//
// σ may be old, e.g. on a connection that is routed to a replica: the argument needs one state, not the newest.
//
// # Gaps that never fill
//
// A transaction that rolls back leaves a permanent gap, and so does an INSERT that reserved more sequences than it used. The
// relay closes a gap that has been missing for Config.CloseGapAfter: in a transaction of its own, it writes a row of no partition
// (partition_id -1) in its place. By the primary key, either the message or the closing row exists, never both, so nobody needs
// to know which transactions are still open. From then on the sequence is no longer missing, for any relay.
//
// Closing blocks nobody. The relay reads each gap at REPEATABLE READ with a locking read that does not wait (FOR UPDATE NOWAIT):
//
//   - A gap in which a transaction has written a row, committed or not, stays open. An uncommitted row is locked for as long as
//     its transaction is open, prepared transactions included.
//   - Any other gap is locked until the closing rows are written.
//
// An INSERT that took a sequence and has written no row after all this time fails with a duplicate key, and nothing of it is
// kept. Insert and the procedure repeat it, which takes other sequences. (The rows of one INSERT are adjacent, and the first is
// written at once. So this takes a session that was paused between taking the sequences and writing the first row.)
//
// So a cursor has one gap for each cluster of rows of open transactions, and gaps for what was rolled back in the last seconds.
// The fetch that finds gaps that are already old, as in a backlog, closes them.
//
// # Order
//
// Within a key, rows are delivered in seq order if the producers of a key take turns: each commits before the next one inserts,
// as when each first locks its aggregate's row. Then, whenever one row of the key is visible in a state, all rows before it are
// visible too. Late rows come before fresh ones, both in order, and nothing fresh is delivered while late rows that did not fit
// remain.
//
// # Reading
//
// The log is read by primary key, for all partitions together, since only that shows the gaps. Messages in partitions that a
// process does not hold are read without their payload. Partitions whose cursors are far apart are read in groups. Rows are never
// claimed and do not change when they are delivered: a settlement that only moves cursors is one UPDATE by primary key.
//
// # Locks
//
// The row of a lease in the cursors table is the fence: settling under a lease, checking it and taking it over all write that
// row. A settlement changes it only if the token, the server's incarnation (see incarnation.go) and the number are right, in the
// UPDATE that moves the cursor.
//
// Transactions of the store are READ COMMITTED. They lock no gaps, except when they close gaps, which are before committed rows,
// while publishers write after those. Settlements and operators' decisions lock in this order: the cursors of their partitions
// (in partition order), decisions, parked messages, held keys. Acquiring a lease skips leases that are locked. A heartbeat writes
// only the row of its process. What an inbox does in a user's transaction locks rows only: claims and keys in sorted order. A
// transaction of the store that is in a deadlock or waits too long for a lock is run again.
//
// # Retention
//
// Delivered messages are dropped by primary key from the beginning of the log, in transactions of at most 1,000, up to the
// position that every relay has passed with no gap before it. That position, the floor, is stored; a relay that begins with the
// oldest message begins after it.
//
// # Values
//
// Times are microseconds since 1970 on the database's clock (UTC_TIMESTAMP), whatever the session's time zone. Texts are
// VARBINARY and BLOB: they are compared byte by byte, and the character set of a connection does not change them. Statements
// carry their values as numbers and hexadecimal literals, so that each is one round trip with every driver setting.
package mysqlstore
