// Package postgres keeps the outbox in PostgreSQL 13 and later, through pgx, as an append-only log.
//
// # Use
//
// Migrate creates the tables, and New makes a Store on a pool. outbox.New[pgx.Tx], relay.New and the deadletter operations work
// on the Store; its SQL method serves applications that use database/sql, and NewSQL those that have no pool of pgx. Any language can
// publish with the SQL function {prefix}publish; docs/sql-contract.md describes it and the columns of the log.
//
// The package keeps no session state, except on the connection of Listen: no named prepared statements, no advisory locks beyond a
// transaction, no temporary tables. Everything but notifications works through PgBouncer in transaction mode. If the pooler does
// not support prepared statements, set the pool's default_query_exec_mode to exec or cache_describe.
//
// # The cursor, and why nothing is skipped
//
// A row takes its sequence when it is inserted and becomes visible when its transaction commits, so rows do not become visible in
// sequence order. Two simple cursors are wrong: "seq > position" loses the rows of a transaction that commits after the reader
// has passed them, and "only rows older than the oldest running transaction" makes no progress while anyone, in any database of
// the cluster, leaves a transaction open.
//
// The cursor here is a pair (p, S) of a position and a snapshot. It means: the rows with seq ≤ p that are visible in S have been
// delivered. A fetch is one statement, so all of it runs under one snapshot σ. The fetch returns σ together with
//
//   - late rows: seq ≤ p, visible in σ, not visible in S. Not visible in S means that the transaction's id is among those that S
//     lists as running, or is at least xmax(S);
//   - fresh rows: seq > p, visible in σ, in order of seq, up to a limit.
//
// Let f be the last fresh row returned, or p if there is none. The next cursor is (f, σ). Claim: if (p, S) is true, (f, σ) is
// true once the returned rows are delivered. Take a row r with seq ≤ f that is visible in σ. If seq > p, it is fresh, and since
// the fresh rows returned are a prefix, in order of seq, of all that are visible, it was returned. If seq ≤ p and it is visible
// in S, it was delivered before. If seq ≤ p and it is not visible in S, it is late and was returned. There is no other case. A
// row with seq ≤ f that is not visible in σ will be late in some later fetch, whenever it commits. No step waits for another
// transaction, and none depends on how many rows have already been delivered.
//
// The cursor does not cause duplicates either: late rows are not visible in S, and fresh rows have seq > p.
//
// A relay may settle less than a whole fetch. Once all late rows are settled, (s, σ) is true for every fresh row s up to which
// all are settled: in the argument above, replace f by s. While a late row is unsettled, the cursor stays (p, S). That is the
// rule in store.Batch. If fetches are chained, each continuing from the cursor of the previous one, their cursors become true in
// turn, so a relay may fetch ahead and persist the cursor of the settled part of the chain.
//
// Row visibility follows the id of the top-level transaction, which is also the id that pg_current_xact_id and pg_snapshot use:
// savepoints change nothing. Prepared transactions count as running. The rows of a rolled-back transaction do not exist, whether
// or not its id counts as visible.
//
// # Order
//
// Within a key, rows are delivered in order of seq if the producers of the key take turns: each commits before the next one
// inserts, as it does when each locks the aggregate's row first. Whenever one row of the key is then visible in a snapshot, all
// earlier rows of the key are too; and late and fresh rows are both read in order of seq, late rows first.
//
// # Late rows in pages
//
// A bulk transaction can bring more late rows than fit into a fetch. They are then read in pages. While late rows remain after a
// page, no fresh row is delivered and σ stays that of the first page. The cursor is then (p, S, σ, l) and means: the rows with
// seq ≤ p that are visible in S have been delivered, and so have those with seq ≤ l (l ≤ p) that are visible in σ. A page under a
// later snapshot asks for l < seq ≤ p, not visible in S, visible in σ (an explicit condition, since more rows have become
// visible). The last page leaves (p, σ). This state is part of store.Cursor.Snapshot, so it survives a restart.
//
// Partitions whose cursors share S read late rows together; l is then the sequence of the last late row of any of them, which is
// true for each. When the first page is full, a second statement reads which partitions have late rows after it. The others have
// no part in the bulk and continue at (f, σ) at once. A partition that has some gets no fresh rows until the whole bulk has been
// read.
//
// # The ceiling
//
// The search for late rows covers the ids that S lists as running, of which there are few, and the ids from xmax(S) on. The
// latter are the transactions that ran at the time of S and, in a naive search, the whole backlog since then: after a restart, a
// fetch would read all of it. So a cursor also carries a ceiling that is above the transaction id of every row with seq ≤ p, and
// the search ends there.
//
// The ceiling is correct for these reasons. The columns of the log begin with xid and seq, and PostgreSQL evaluates defaults in
// column order, so the transaction of a row has its id before the row takes its sequence. Sequences are not cached (cache 1), so
// they are assigned in order of time across sessions. The row at position f was visible in σ, so every sequence up to f was taken
// before σ, and the id of every such row was assigned before σ. After taking σ, the fetch computes the next id to be assigned
// (age(xid) counts from it); that is the ceiling. A relay that begins at the present takes its position first and an id of its
// own afterwards.
//
// TestTransactionIDIsAssignedBeforeSequence checks the server for every way of writing to the log that the contract allows. The
// contract forbids naming xid or seq in an INSERT: a VALUES list with (seq, xid) both DEFAULT is evaluated in the order of that
// list. Such a row could be missed if its transaction is the last to get its id before a fetch and commits after it.
//
// # What is written
//
// A settlement that only moves cursors inserts one row per partition and deletes the previous one; messages are not touched.
// Parked messages and dead letters are copied from the log inside the database. None of this waits for the disk: the write-ahead
// log keeps the order of commits, so a crash loses the last settlements as a whole, and the messages that they recorded are
// delivered again. The fence keeps every process from continuing from settlements that were lost.
//
// # The fence
//
// The table of leases is UNLOGGED: crash recovery empties it, and on a promoted standby it has no rows. Because a server may keep
// unlogged tables nevertheless, and rows may come from a dump or a copy, each row names the incarnation under which it was
// granted. {prefix}incarnation() combines three values:
//
//   - the start of the postmaster;
//   - the reset of the background writer's statistics, from PostgreSQL 15. Recovery resets them, including recovery after the
//     crash of one backend, which does not change the start;
//   - the identity of the table.
//
// A lease holds if its row has the caller's token and the present incarnation.
//
// Every settlement and every handler transaction locks the rows of its leases FOR KEY SHARE, in partition order, and moves the
// cursor only from number n-1 to n. Lease rows change only when a lease is granted or released, by statements that lock them FOR
// UPDATE; a heartbeat writes one row of {prefix}relays, so a REPEATABLE READ transaction can span it. Cursors keep the digest of
// their last settlement, which distinguishes a repeated settlement from a different one.
//
// A crash while publishers commit with synchronous_commit off, or a failover, can make the server issue transaction ids and
// sequences a second time. A fetch or settlement whose cursor is beyond what the server knows is therefore lost, like one without
// a lease.
//
// After a crash, a process that still holds a lease by its own clock gets it back at once. Others wait until no other process
// counts as alive, or until the longest lease time has passed since {prefix}incarnations recorded the start of the incarnation.
// If the timeline of the write-ahead log differs from the one that the outbox was last used on, a standby was promoted. The
// record of which processes are alive may then be old, and only the time counts.
//
// # Retention
//
// The log is partitioned by seq into segments of 2^39 numbers. Two empty ones are always ahead of the publishers, which need no
// help to enter them. When the time of the present segment is over, Maintain attaches one more and sets the sequence to the first
// number of the next one (see log_advance in migration 8). The gap is harmless, and the previous segment gets no more messages
// except from statements that have already drawn their numbers. The sequence is set only when no running statement began before
// the next segment was attached, since a statement routes its rows only to the segments that existed when it started.
//
// An earlier segment that is past retention and delivered is locked by itself, checked against the persisted cursors of all
// relays, late rows included, and truncated; that needs no lock on the log. The empty table is detached when no long transaction
// holds the log, since that needs a brief lock on the log: at most 20 ms of waiting and 50 ms in all. It is then dropped.
//
// Each of these changes is one message to the server that holds the whole transaction. The server never waits for the process in
// the middle of it, so a process that is killed, disconnected or paused leaves no lock and nothing half done.
//
// The sequence only rises unless somebody sets it back. The unique index (partition, seq) then refuses numbers that are taken,
// and Maintain sets the sequence beyond every number assigned so far and sends the relays back to the beginning of the log.
//
// # Consumers
//
// What an inbox does in a user's transaction is limited to rows. Statements that may wait for another transaction lock claims and
// keys in sorted order, and the next statement reads what may have changed meanwhile. A message is parked only once its key's row
// is locked, or recreated, and takes its sequence then. No setting of the transaction is changed. A consumer has rows in
// the table of cursors for the numbers of its settlements; whether a name is a consumer's is in postrider_relay_partitions.
//
// # Restore
//
// Transaction ids mean nothing in another cluster, so the outbox stores the system identifier of the cluster that its ids belong
// to. In another cluster, before any partition is leased:
//
//   - the log is read to find, for each cursor, the oldest row that may not have been delivered (the ids can still be compared with
//     each other);
//   - every cursor goes back to before that row, and leases are revoked;
//   - ids that could be taken for this cluster's are replaced by one that is long over.
//
// The log may be large, so the Store does that in the background, in short transactions that also record how far they came: any
// process continues where another one ended. Publishers do not wait for it.
//
// A dump restored into its own cluster, in any database, and a physical copy need none of this.
//
// A server that comes back without its last commits ends all leases (see The fence), so relays need no restart after a failover.
package postgres

// Where things are; TestMapOfFiles compares this list with the folder. Files that begin alike belong together.
//
//	opening and configuration   config postgres pool own_conn sqlpool sqlstore schema qualify errors
//	migrations and rights       migrate migrate_lock grants
//	publishing                  insert publish batch pipelined pipelined_tx flush notify listen sequence
//	transactions                implicit limited limited_tx sqltx
//	leases                      lease acquire heartbeat filters kind stalled
//	fetching                    cursor fetch fetch_sql late scan find_held
//	settling                    settle settle_input parked held dead attempts
//	retention                   segments retention
//	another cluster             restore adopt
//	consumers                   inbox inbox_calls inbox_sql inbox_open inbox_ledger inbox_park inbox_handletx inbox_guard inbox_status position
//	operators (store.Records)   records record held_read decide dead_repair redrive logged erase purge remove misplaced admin
//	sagas                       saga saga_sql saga_tx saga_read saga_records saga_maintain
//	status and doctor           status sizes checks checks_schema checks_sessions
