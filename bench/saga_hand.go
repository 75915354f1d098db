package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/bench/internal/report"
)

// handSagas is a state machine by hand: it reads replies in order, and writes the same rows as the engine, with the data of 600 bytes and
// a state of the same size. It knows nothing of timeouts, retries, other processes and replies that come twice.
type handSagas struct {
	b *bundle
	// read locks the next replies and their instances; write changes the instances and adds history and commands.
	read, write string
}

// handState is the state of an instance.
type handState struct {
	Token string `json:"token"`
	Step  int    `json:"step"`
	Rest  string `json:"rest"`
}

func newHandSagas(ctx context.Context, b *bundle) (*handSagas, error) {
	_, err := b.pool.Exec(ctx, `
create table hand_sagas (id text primary key, rev bigint not null, state bytea not null, data bytea not null, status text not null,
	waiting text not null, updated_at timestamptz not null default now()) with (fillfactor = 50);
create table hand_history (id text not null, rev bigint not null, at timestamptz not null default now(), input text not null, step text not null,
	entries text not null, patch bytea not null, primary key (id, rev));
create table hand_commands (seq bigint generated always as identity primary key, id text not null, type text not null, topic text not null,
	key text not null, headers text not null, payload bytea not null, at timestamptz not null default now());
create table hand_replies (seq bigint generated always as identity primary key, id text not null, payload bytea not null);
create table hand_read (position bigint not null)`)
	return &handSagas{b, `
select r.seq, r.id, r.payload, s.rev, s.state, s.data from hand_read p
cross join lateral (select * from hand_replies r where r.seq > p.position order by r.seq limit $1) as r
join hand_sagas s on s.id = r.id order by r.seq for update of s`, `
with changed as (
	update hand_sagas s set rev = c.rev, state = c.state, data = c.data, waiting = c.step, updated_at = clock_timestamp()
	from unnest($1::text[], $2::bigint[], $3::bytea[], $4::bytea[], $5::text[]) as c (id, rev, state, data, step) where s.id = c.id
), history as (
	insert into hand_history (id, rev, input, step, entries, patch)
	select id, rev, 'reply', step, $7, patch from unnest($1::text[], $2::bigint[], $5::text[], $6::bytea[]) as h (id, rev, step, patch)
)
insert into hand_commands (id, type, topic, key, headers, payload)
select id, 'card.charge', 'cards', 'saga/' || id, headers, payload from unnest($1::text[], $8::text[], $9::bytea[]) as m (id, headers, payload)`}, err
}

// entry handles one reply for each instance, in transactions of size.
func (h *handSagas) entry(name string, size int) entry {
	return entry{name: name, role: report.Limit, prepare: h.prepare, run: func(ctx context.Context) (report.Figures, error) {
		conn, err := h.b.pool.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Release()
		for done := 0; done < h.b.n; done += size {
			if err := h.transact(ctx, conn, size); err != nil {
				return nil, err
			}
		}
		var changed, history, commands int
		if err := conn.QueryRow(ctx, `select (select count(*) from hand_sagas where rev = 2), (select count(*) from hand_history),
			(select count(*) from hand_commands)`).Scan(&changed, &history, &commands); err != nil {
			return nil, err
		}
		if changed != h.b.n || history != h.b.n || commands != h.b.n {
			return nil, fmt.Errorf("%d instances changed, with %d entries and %d commands, of %d", changed, history, commands, h.b.n)
		}
		return nil, nil
	}}
}

func (h *handSagas) prepare(ctx context.Context) error {
	if _, err := h.b.pool.Exec(ctx, `truncate hand_sagas, hand_history, hand_commands, hand_replies, hand_read;
		insert into hand_read values (0)`); err != nil {
		return err
	}
	batch := &pgx.Batch{}
	for i := range h.b.n {
		o := orderOf(i)
		data, err := json.Marshal(o)
		if err != nil {
			return err
		}
		state, err := json.Marshal(handState{Token: strings.Repeat("0", 32), Rest: strings.Repeat("a", 400)})
		if err != nil {
			return err
		}
		batch.Queue("insert into hand_sagas (id, rev, state, data, status, waiting) values ($1, 1, $2, $3, 'running', 'reserve')", o.ID, state, data)
		batch.Queue("insert into hand_replies (id, payload) values ($1, $2)", o.ID, reply(map[string]string{"postrider-saga": o.ID}, "reserve").Payload)
	}
	if err := h.b.pool.SendBatch(ctx, batch).Close(); err != nil {
		return err
	}
	if _, err := h.b.pool.Exec(ctx, "update hand_read set position = (select min(seq) - 1 from hand_replies)"); err != nil {
		return err
	}
	_, err := h.b.pool.Exec(ctx, "vacuum analyze")
	return err
}

// handChange is what a transition writes.
type handChange struct {
	ids, steps, headers            []string
	revs                           []int64
	states, data, patches, payload [][]byte
}

// transact handles the next replies in one transaction of four round trips.
func (h *handSagas) transact(ctx context.Context, conn *pgxpool.Conn, size int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, h.read, size)
		if err != nil {
			return err
		}
		var c handChange
		var seq, rev int64
		var id string
		var payload, state, data []byte
		if _, err := pgx.ForEachRow(rows, []any{&seq, &id, &payload, &rev, &state, &data}, func() error {
			return c.advance(id, rev, payload, state, data)
		}); err != nil {
			return err
		}
		batch := &pgx.Batch{}
		batch.Queue(h.write, c.ids, c.revs, c.states, c.data, c.steps, c.patches, `[{"name":"step.done","step":"reserve"},{"name":"command.sent","step":"charge"}]`,
			c.headers, c.payload)
		batch.Queue("update hand_read set position = $1", seq)
		return tx.SendBatch(ctx, batch).Close()
	})
}

// advance is one transition.
func (c *handChange) advance(id string, rev int64, payload, state, data []byte) error {
	var o placedOrder
	var s handState
	var r part
	for text, into := range map[*[]byte]any{&payload: &r, &state: &s, &data: &o} {
		if err := json.Unmarshal(*text, into); err != nil {
			return err
		}
	}
	s.Step++
	o.Stock = r.ID
	patch := fmt.Appendf(nil, `[{"p":"/stock","n":%q}]`, r.ID)
	headers, err := json.Marshal(map[string]string{
		"saga": id, "run": id, "step": "charge", "attempt": "1", "token": s.Token, "reply": "postrider.saga.bench", "key": "saga/" + id,
		"since": "2026-11-23T00:00:00Z",
	})
	if err != nil {
		return err
	}
	changed, err := json.Marshal(o)
	if err != nil {
		return err
	}
	newState, err := json.Marshal(s)
	if err != nil {
		return err
	}
	command, err := json.Marshal(partOf(o))
	c.ids, c.revs, c.steps, c.patches = append(c.ids, id), append(c.revs, rev+1), append(c.steps, orderSteps[s.Step]), append(c.patches, patch)
	c.states, c.data, c.headers, c.payload = append(c.states, newState), append(c.data, changed), append(c.headers, string(headers)), append(c.payload, command)
	return err
}
