package postgres

// The statements of a settlement that work on held keys. Their parameters are those of mineSQL.
const (
	// lockHeldSQL locks the keys that the following statements read. Others who park messages of a key hold the key in the same
	// transaction. So the statements after this one, each with its own snapshot, see the messages that they parked; or the others
	// find the key released and hold it again.
	lockHeldSQL = mineSQL + `
select 1 from (select name from mine order by name) as m cross join lateral (
	select from {held} h where h.relay = $1::text and h.key = m.name offset 0 for update) as h`

	// heldPlaceSQL is the place (ctid) of the row of a key that lockHeldSQL has locked.
	heldPlaceSQL = `lateral (select h.ctid as place from {held} h where h.relay = $1::text and h.key = m.name offset 0) as k`

	// holdSQL holds a key for a decision (after < 0) only while the blocking message's dead letter is open. Otherwise an operator
	// has already decided, and the key is due at once. The state is not a bare column, so that the planner does not use the index of
	// open dead letters instead of the one by sequence.
	holdSQL = mineSQL + `
insert into {held} as h (relay, key, partition, seq, reason, cause, attempts, since, next_attempt_at)
select $1::text, m.name, m.part, m.number, m.why, m.what, m.tries, clock_timestamp(),
	case when m.after >= 0 then clock_timestamp() + m.after::float8 * interval '1 microsecond'
		when not exists (select 1 from {dead} d
			where d.relay = $1::text and d.partition = m.part and d.seq = m.number and d.state || '' = 'open' offset 0)
		then clock_timestamp() end
from mine m order by m.name
on conflict (relay, key) do update set seq = excluded.seq, reason = excluded.reason, cause = excluded.cause,
	attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at`

	// releaseKeysSQL comes after lockHeldSQL. It releases the keys that have no queued messages and returns them.
	releaseKeysSQL = mineSQL + `, free as materialized (
	select m.name from mine m where not exists (
		select 1 from {parked} p
		where p.relay = $1::text and p.partition = m.part and p.key = m.name and p.due_at is null offset 0)
), freed as (
	delete from {held} h using free m cross join ` + heldPlaceSQL + ` where h.ctid = k.place
)
select name from free`

	// resumeKeysSQL makes the keys that are still held due at once.
	resumeKeysSQL = mineSQL + `
update {held} h set next_attempt_at = clock_timestamp(), ` + newHeadSQL + `
from mine m cross join ` + heldPlaceSQL + `
left join lateral (` + firstWaitingSQL + ` and p.partition = m.part and p.key = m.name ` + firstOnlySQL + `) w on true
where h.ctid = k.place`

	// newHeadSQL makes the first queued message the blocking one if the blocking message is gone.
	newHeadSQL = `seq = coalesce(w.seq, h.seq), reason = case when w.seq <> h.seq then w.reason else h.reason end,
	cause = case when w.seq <> h.seq then '' else h.cause end,
	attempts = case when w.seq <> h.seq then w.attempts else h.attempts end`
	firstWaitingSQL = `select p.seq, p.reason, p.attempts from {parked} p where p.relay = $1::text and p.due_at is null`
	firstOnlySQL    = `order by p.seq limit 1`
)
