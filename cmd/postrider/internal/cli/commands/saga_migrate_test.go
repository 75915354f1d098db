package commands_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/saga"
)

// deploy replaces the engine by one of another build.
func (s *shop) deploy(d saga.Definition[parcel]) {
	s.t.Helper()
	s.stop()
	quiet := slog.New(slog.DiscardHandler)
	e, err := saga.New[*sql.Tx](s.store, s.box, saga.Config{Name: "shop", Logger: quiet})
	clitest.Must(s.t, err)
	s.parcels, err = saga.Register(e, d)
	clitest.Must(s.t, err)
	r, err := relay.New(s.store, relay.Config{Name: "engine", Topics: []string{e.Topic()}, Logger: quiet})
	clitest.Must(s.t, err)
	clitest.Must(s.t, e.Relay(r))
	runRelay(s.t, r)
}

// TestSagaMigrate: instances whose version is not deployed any more continue with the next one.
func TestSagaMigrate(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	for _, id := range []string{"41", "42", "43"} {
		s.start(id)
	}
	second := parcels()
	second.Version = 2
	second.Steps = append(second.Steps, saga.Ask[parcel]{
		Name: "rate", Timeout: saga.NoTimeout, Question: func(parcel) string { return "How was it?" }, Options: []string{"good", "bad"},
	})
	s.deploy(second)
	clitest.Fails(t, program.ExitFailed, "no process has reported version 9", "saga", "migrate", "41", "--to", "9", "--because", "test", "--store", s.url)
	clitest.Fails(t, program.ExitUsage, "--to is the version", "saga", "bulk", "migrate", "--saga", "parcels", "--because", "test", "--store", s.url)
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) { // until the engine has reported its definition
		r := clitest.Run(t, "saga", "migrate", "41", "--to", "2", "--dry-run", "--because", "test", "--store", s.url)
		if r.Code == 0 {
			clitest.Contains(t, r.Out, "from version 1 to 2")
			break
		}
		if time.Since(begun) > clitest.Patience {
			t.Fatalf("a plan: %s %s", r.Out, r.Err)
		}
	}
	s.ok("migrate", "41", "--to", "2")
	clitest.Contains(t, s.ok("bulk", "migrate", "--saga", "parcels", "--version", "1", "--to", "2"), "2 of 2 done")
	for _, id := range []string{"41", "42", "43"} {
		clitest.OK(t, "saga", "signal", id, "--type", "parcel.reviewed", "--data", `{"number": "P-1"}`, "--store", s.url)
		s.is(id, saga.Running, "ship")
		in, err := s.store.ShowSaga(context.Background(), id)
		clitest.Must(t, err)
		if in.Version != 2 {
			t.Errorf("instance %s has version %d, want 2", id, in.Version)
		}
	}
	r := clitest.Run(t, "saga", "done", "41", "--step", "review", "--dry-run", "--store", s.url)
	clitest.Expect(t, r, program.ExitNo, "")
	clitest.Contains(t, r.Out, "it would be refused: step review is done")
}
