// Package mysqlstore keeps the outbox in a MySQL (8.0.13 or newer) or MariaDB (10.6 or newer) database, through database/sql
// and with any driver: a message is written in the *sql.Tx of the business change, and relays of any number of processes
// deliver it.
//
//	db, err := sql.Open("mysql", "shop:secret@tcp(db:3306)/shop") // github.com/go-sql-driver/mysql
//	...
//	_, err = mysqlstore.Migrate(ctx, db, mysqlstore.Config{}, mysqlstore.Latest)
//	...
//	store, err := mysqlstore.New(db, mysqlstore.Config{})
//
// docs/stores/mysql.md has the settings that matter and the limits, docs/sql-contract.md the procedure with which any client
// publishes. What MySQL and MariaDB differ in stands in dialect.go.
//
// # The cursor, and why nothing is skipped
//
// The log is append-only. A row takes its sequence (AUTO_INCREMENT) when it is inserted and becomes visible when its
// transaction commits, so sequences do not become visible in their order, and "seq > position" loses what commits behind the
// reader. MySQL shows nobody which transactions a snapshot has seen. But sequences are dense: what a reader has not seen is
// missing in the row of numbers. So a cursor is a position with the gaps before it, and means: delivered are the rows of the
// partition with seq ≤ position that are in no gap.
//
// A fetch is one statement, so all of it sees one state of the database, σ. It reads
//
//   - late rows: those in the gaps of the cursors, in order of seq;
//   - fresh rows: all rows of all partitions with seq > position, in order, up to a limit. Every sequence between two of them
//     is missing in σ, and becomes a gap.
//
// Let e be the last sequence read. The next cursor is (e, G'), where G' is the old gaps without those that were found, and the
// new ones up to e. Claim: if (p, G) told the truth, (e, G') does once the returned rows are delivered. Take a row with seq ≤
// e. If seq ≤ p and it is in no gap of G, it was delivered before. If it is in a gap of G and visible in σ, it is late and was
// returned. If seq > p and visible in σ, it is fresh and was returned. In the other cases it is not visible in σ, and its
// sequence is in G': it will be late in some later fetch, whenever it commits. Nothing comes twice, for the cases exclude each
// other. A cursor that stops at a fresh row s < e with the gaps of e is true as well: of gaps only those up to the position
// count. No step waits for another transaction.
//
// It does not matter how old σ is, e.g. on a connection that is routed to a replica: the argument needs one state, not the
// newest.
//
// # Gaps that never fill
//
// A transaction that rolls back leaves a gap for good, and so does an INSERT that reserved more sequences than it used. A gap
// that has been missing for Config.CloseGapAfter is closed: the relay writes a row of no partition (partition_id -1) in its
// place, in a transaction of its own. By the primary key either the message is there or the row that closes its place, never
// both: nobody need know which transactions are still open. From then on the sequence is no longer missing, for any relay.
//
// Closing disturbs nobody. The relay looks at each gap with a locking read that does not wait (FOR UPDATE NOWAIT) at REPEATABLE
// READ. A gap in which somebody has written a row, committed or not, is left alone: an uncommitted row is locked, however long
// its transaction stays open, prepared ones included. Otherwise the gap is locked until the rows are written. Who has taken a
// sequence and written no row of his INSERT yet, after all this time, finds his place taken: his INSERT fails with a duplicate
// key, nothing of it is kept, and Insert and the procedure repeat it, which takes other sequences. (Rows of one INSERT are
// neighbours, and the first is written at once; so it takes a session that stood still between taking the sequences and
// writing the first row.)
//
// So a cursor has a gap for each cluster of rows of open transactions and for what was rolled back in the last seconds. Gaps
// that are old already when they are first read, as in a backlog, are closed by the fetch that finds them.
//
// # Order
//
// Within a key, rows are delivered in order of seq, if producers of a key take turns: each commits before the next one
// inserts, as it does when it locks its aggregate's row first. Then, whenever one row of the key is visible in a state, all
// before it are; late rows come before fresh ones, both in order; and while late rows are left behind for want of room,
// nothing fresh is delivered.
//
// # Reading
//
// The log is read by primary key, for all partitions together, since only that shows the gaps; what a process does not
// hold is read without its payload. Partitions whose cursors lie far apart are read in groups. Rows are never claimed, nor
// changed when they are delivered: a settlement that only moves cursors is one UPDATE by primary key.
//
// # Locks
//
// The row of a lease in the table of cursors is the fence: whoever settles under a lease, checks it or takes it over writes that
// row. A settlement changes it only if token, incarnation of the server (see incarnation.go) and number are right, in the
// UPDATE that moves the cursor.
//
// Transactions of the store are READ COMMITTED: no gap is locked but for the closing of gaps, which lie before committed rows,
// while publishers write behind them. Settlements and the decisions of operators lock the cursors of their partitions first,
// in order, then decisions, then parked messages, then held keys. Whoever wants a lease skips one that is locked. A heartbeat
// writes the row of its process and nothing else. What an inbox does in a user's transaction locks rows only: claims and keys
// in sorted order. A transaction of the store that is in a deadlock or meets a lock for too long is run again.
//
// # Retention
//
// Delivered messages are dropped by primary key from the beginning of the log, in transactions of at most 1,000, up to where
// every relay has passed everything that will ever be there; that place, the floor, is kept, and a relay that begins with the
// oldest message begins behind it.
//
// # Values
//
// Times are microseconds since 1970 on the database's clock (UTC_TIMESTAMP), whatever time zone a session has. Texts are
// VARBINARY and BLOB: they are compared byte by byte, and no character set of a connection changes them. Statements carry
// their values as numbers and hexadecimal literals, so that each is one round trip with every setting of the driver.
package mysqlstore
