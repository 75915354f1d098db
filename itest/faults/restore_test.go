package faults

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/relay"
)

// TestRestoreUnderIdleRelay: the database is restored to an earlier state while relays run that have delivered
// everything. Sequences and transaction IDs are reused. Messages published from then on are delivered, in order per key,
// and so are those that the restored database does not have as delivered.
func TestRestoreUnderIdleRelay(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		save, restore func(p *postgresWorld)
		counted       bool // redeliveries after a dump may count again
	}{
		"dump":      {(*postgresWorld).dump, (*postgresWorld).restoreDump, false},
		"cold copy": {(*postgresWorld).copyCold, (*postgresWorld).restoreCold, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPostgresWorld(t)
			p.useDatabase("shop")
			plain := newRecorder()
			for range 2 {
				p.runHandler(p.store(10), relay.Config{Name: "plain"}, plain)
				runHandlerTx(p.world, p.store(20), relay.Config{Name: "effects"}, addEffect("effects", onPostgres))
			}
			load := p.newLoad()
			load.publish(accounts)
			p.awaitSettled(p.store(2))
			tt.save(p)
			for range 3 {
				load.publish(accounts)
			}
			p.awaitSettled(p.store(2))
			tt.restore(p)
			for range 4 {
				load.publish(accounts)
			}
			facts := p.facts()
			if len(facts) != 5*accounts {
				t.Errorf("%d steps after the restore, want %d", len(facts), 5*accounts)
			}
			p.awaitEffects("effects", facts)
			p.awaitDelivered(plain, "plain", facts, true)
			if all := p.awaitSettled(p.store(2)); tt.counted {
				p.checkCounts(all, len(facts), "plain", "effects")
			}
		})
	}
}

// useDatabase creates outbox and tables in another database of the server, which can be dropped.
func (p *postgresWorld) useDatabase(name string) {
	p.t.Helper()
	p.admin(p.server.URL, "create database "+name)
	p.url = strings.Replace(p.url, "/postgres?", "/"+name+"?", 1)
	p.reopen()
	p.makeTables(postgresTables())
}

func (p *postgresWorld) dump() {
	p.t.Helper()
	p.run("pg_dump", "--format=custom", "--file="+filepath.Join(p.dir, "dump"), p.url)
}

func (p *postgresWorld) restoreDump() {
	p.t.Helper()
	p.admin(p.server.URL, "drop database shop with (force); create database shop")
	p.run("pg_restore", "--dbname="+p.url, filepath.Join(p.dir, "dump"))
}

func (p *postgresWorld) copyCold() {
	p.t.Helper()
	p.stop(syscall.SIGINT)
	p.copyData(filepath.Join(p.dir, "copy"))
	p.start()
}

func (p *postgresWorld) restoreCold() {
	p.t.Helper()
	p.stop(syscall.SIGINT)
	p.restoreData(filepath.Join(p.dir, "copy"))
	p.start()
}

// TestNumbersIssuedTwice: publishers commit asynchronously, so that a crash undoes their commits, and sequences and
// transaction IDs are reused. What is finally committed is delivered, in order per key.
func TestNumbersIssuedTwice(t *testing.T) {
	t.Parallel()
	p := newPostgresWorld(t, lateLog...)
	plain := newRecorder()
	for range 2 {
		p.runHandler(p.store(10), relay.Config{Name: "plain"}, plain)
	}
	url := p.url + "&synchronous_commit=off"
	load := newLoad(t, stores[pgx.Tx](postgresStore(t, url, 10)), onPostgres, p.random)
	load.publish(accounts)
	p.awaitSettled(p.store(2))
	p.writeLate()
	lost := 0
	for range 3 {
		before := len(p.facts())
		load.publish(accounts)
		p.killBackend()
		lost += before + accounts - len(p.facts())
	}
	load.publish(accounts)
	facts := p.facts()
	t.Logf("%d steps were lost and %d are there", lost, len(facts))
	if lost == 0 {
		t.Error("nothing was lost in the crashes: no number was issued twice")
	}
	p.awaitDelivered(plain, "plain", facts, true)
	p.checkCounts(p.awaitSettled(p.store(2)), len(facts), "plain")
}
