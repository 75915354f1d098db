// Package postgres keeps the outbox on PostgreSQL 13 and later, through pgx, as an append-only log.
//
// # Use
//
// Migrate creates the tables, New makes a Store over a pool. The Store is what outbox.New[pgx.Tx], relay.New and the
// deadletter operations work on; its SQL method serves applications on database/sql. Any language publishes with the SQL
// function {prefix}publish; docs/sql-contract.md describes it and the columns of the log.
//
// Nothing is kept in a session: no prepared names, no advisory locks beyond a transaction, no temporary tables. Everything
// but Listen works behind PgBouncer in transaction mode, with a pool whose default_query_exec_mode is exec or
// cache_describe when the pooler does not know prepared statements.
//
// # The cursor, and why nothing is skipped
//
// A row takes its sequence when it is inserted and becomes visible when its transaction commits, so sequences do not
// become visible in their order. Two simple cursors are wrong: "seq > position" loses the rows of a transaction that commits
// behind the reader, and "only rows older than the oldest running transaction" stands still for as long as anybody, in any
// database of the cluster, leaves a transaction open.
//
// The cursor here is a pair (p, S) of a position and a snapshot. It means: delivered are the rows with seq ≤ p that are
// visible in S. A fetch is one statement, so all of it runs under one snapshot σ, which it returns. It returns
//
//   - late rows: seq ≤ p, visible in σ, not visible in S. Not visible in S means that the transaction's id is among those
//     that S lists as running, or is at least xmax(S);
//   - fresh rows: seq > p, visible in σ, in order of seq, up to a limit.
//
// Let f be the last fresh row returned, or p if there is none. The next cursor is (f, σ). Claim: if (p, S) told the truth,
// (f, σ) does once the returned rows are delivered. Take a row r with seq ≤ f visible in σ. If seq > p it is fresh, and
// since fresh rows are a prefix in order of seq of all that are visible, it was returned. If seq ≤ p and it is visible in S,
// it was delivered before. If seq ≤ p and it is not visible in S, it is late and was returned. There is no other case. And a
// row with seq ≤ f that is not visible in σ will be late in some later fetch, whenever it commits. No step waits for
// another transaction, and none depends on how many rows lie behind.
//
// Nothing is delivered twice by the cursor either: late rows are not visible in S, fresh rows lie behind p.
//
// A relay settles less than a whole fetch. Once all late rows are settled, (s, σ) is true for every fresh row s up to which
// all are settled: in the argument above, replace f by s. While a late row is unsettled the cursor stays (p, S). That is the
// rule in relay.Batch. Cursors of fetches that were chained, each behind the one before, are true in turn, so a relay may
// fetch ahead and persist the cursor of the settled end of the chain.
//
// Visibility of rows follows the id of the top-level transaction, which is what pg_current_xact_id and pg_snapshot speak
// of: savepoints change nothing. Prepared transactions count as running. What a rolled-back transaction wrote is not there,
// whether or not its id counts as visible.
//
// # Order
//
// Within a key, rows are delivered in order of seq, if producers of a key take turns: each commits before the next one
// inserts, as it does when it locks its aggregate's row first. For then, whenever one row of the key is visible in a
// snapshot, all before it are; and both late and fresh rows are read in order of seq, late ones first.
//
// # Late rows in pages
//
// A bulk transaction can bring more late rows than fit into a fetch. Its rows are then read in pages. While there are some
// behind a page no fresh row is delivered, and σ stays that of the first page: the cursor is (p, S, σ, l) and means: delivered are the
// rows with seq ≤ p that are visible in S, and those with seq ≤ l (l ≤ p) that are visible in σ. A page under a later
// snapshot asks for l < seq ≤ p, not visible in S, visible in σ (which must be said, since more has become visible). The last
// page leaves (p, σ). This state is part of relay.Cursor.Snapshot, so it survives a restart. Partitions whose cursors share
// S read late rows together; l is then the sequence of the last late row of any of them, which is true for each. When the
// first page is full, a second statement reads which partitions have late rows behind it; the others have no part in the bulk
// and go on to (f, σ) at once. One that has some waits with its fresh rows until all of the bulk has been read.
//
// # The ceiling
//
// The search for late rows asks for the ids that S lists as running, of which there are few, and for those from xmax(S) on.
// The latter are those that ran at the time of S and, in a naive search, all of the backlog since then: after a restart, a
// fetch would read all of it. So a cursor also carries a ceiling, which lies above the transaction id of every row with
// seq ≤ p, and the search ends there.
//
// Where it comes from: the columns of the log begin with xid and seq, and PostgreSQL evaluates defaults in the order of the
// columns, so the transaction of a row has its id before the row takes its sequence. Sequences are not cached (cache 1), so
// they are taken in the order of time across sessions. The row at position f was visible in σ, so every sequence up to f
// was taken before σ, and every id of such a row assigned before σ. The fetch computes, after σ was taken, the next id to
// be assigned (age(xid) counts from it); that is the ceiling. A relay that begins at the present takes its position first
// and an id of its own afterwards. TestTransactionIDIsAssignedBeforeSequence holds the server to it for every way into the
// log that the contract allows. The one that it does not allow is to name xid or seq in an INSERT: a list of VALUES with
// (seq, xid) both DEFAULT is evaluated in the order of that list. Such a row could be missed if its transaction is the
// last to get its id before a fetch and commits after it.
//
// # What is written
//
// A settlement that only moves cursors inserts a row per partition and deletes the one before; messages are not touched.
// Parked messages and dead letters are copied from the log inside the database. None of it waits for the disk: the write-ahead log
// keeps the order of commits, so a crash loses the last settlements as a whole, and what they recorded is delivered again. The fence
// sees to it that no process goes on from what was lost.
//
// # The fence
//
// The table of leases is UNLOGGED: recovery from a crash empties it, and a standby that is promoted has no rows in it. Where a
// server keeps unlogged tables all the same, or the rows come from a dump or a copy, each row says under which incarnation it was
// granted: {prefix}incarnation() has the start of the postmaster, the reset of the background writer's statistics (from PostgreSQL 15;
// recovery resets them, the end of one backend included, which does not change the start) and the identity of the table. A lease holds
// if its row has the caller's token and the present incarnation.
//
// Every settlement and every transaction of a handler locks the rows of its leases FOR KEY SHARE, in the order of the partitions, and
// moves the cursor only from number n-1 to n. The rows of leases change only when a lease is granted or released, by statements that lock
// them FOR UPDATE; a heartbeat writes one row of {prefix}relays, so a REPEATABLE READ transaction can span it. Cursors keep the
// digest of their last settlement, which tells a repetition from another content.
//
// A crash under publishers that commit with synchronous_commit off, or a failover, lets the server issue transaction ids and sequences
// a second time. A fetch or settlement whose cursor lies beyond what the server knows is therefore lost, like one without a lease.
//
// After a crash, whoever still holds a lease by its own clock gets it at once. Others wait until no other process counts as
// alive, or until the longest lease time has passed since {prefix}incarnations noted the beginning. When the timeline of the
// write-ahead log is another one than the outbox was last used on, a standby was promoted, the record of who is alive may be old, and
// only the time counts.
//
// # Retention
//
// The log is partitioned by seq into segments of 2^39 numbers. Two empty ones are always ahead of the publishers, who need
// nobody's help to enter them. When the present segment has had its time, Maintain attaches one more and sets the sequence to the
// first number of the next (see log_advance in migration 8): the gap harms nobody, and the segment that was left gets no more
// messages, but from statements that have drawn their numbers already. The sequence is set only when no statement runs that
// began before the next segment was attached, since a statement routes its rows to the segments that it has found.
//
// A segment that was left, is past retention and was delivered is locked by itself, checked against the persisted cursors of all
// relays, late rows included, and truncated; that needs no lock on the log. The empty table is detached when no long
// transaction holds the log, since that needs a lock on it for a moment: 20 ms of waiting and 50 ms in all at most. It is dropped
// after that.
//
// Each of these changes is one message to the server, which holds the whole transaction. The server never waits for the process in
// the midst of it, so a process that is killed, cut off or paused leaves no lock behind and nothing half done.
//
// The sequence rises for ever unless somebody sets it back. The unique index (partition, seq) then refuses numbers that are
// taken, and Maintain sets the sequence beyond all that it has assigned and sends the relays back to the beginning of the log.
//
// # Consumers
//
// What an inbox does in a user's transaction keeps to rows: claims and keys are locked in sorted order, by statements that
// wait for another transaction, and what may have changed meanwhile is read by the statement behind. A message is parked
// only when its key's row is locked, or recreated, and takes its sequence then. No setting of the transaction is changed.
// The cursors of a consumer stand at the end of the log (inbox.EndOfLog), where a fetch finds nothing.
//
// # Restore
//
// Transaction ids mean nothing in another cluster. The outbox keeps the system identifier of the cluster that its ids
// belong to. On another one, at the first use or the next heartbeat, every cursor goes back to before the oldest row that
// may not have been delivered (the ids still have their meaning among themselves), ids that could be taken for this
// cluster's are replaced by one that is long over, leases are taken back, and a warning is logged. A dump restored into its
// own cluster, in whatever database, and a physical copy need none of it.
//
// A server that comes back without its last commits ends all leases (see The fence), so relays need no restart after a failover.
package postgres
