package demo

import (
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/postrider/postrider/cmd/postrider/internal/shopdemo"
	"github.com/postrider/postrider/saga"
)

// TestServiceArgs: the process of a service gets every setting.
func TestServiceArgs(t *testing.T) {
	t.Parallel()
	want := shopdemo.Settings{
		Service: "payments", Store: "sqlite:/tmp/payments.db", Publisher: "nats://127.0.0.1:4222", Stream: "SHOP", Listen: "127.0.0.1:8083", Seed: 7, Faults: true,
		Compensate: saga.Observe,
		Limits: shopdemo.Limits{
			StepTimeout: time.Second, Deadline: 2 * time.Second, UndoTimeout: 3 * time.Second, UndoAttempts: 4, LeaseTTL: 15 * time.Second, Keep: time.Hour,
			Replenish: 6 * time.Second, Version: 2, ReviewAbove: 8,
		},
	}
	var f shopFlags
	flags := pflag.NewFlagSet("shop", pflag.ContinueOnError)
	f.register(flags)
	store := flags.String("store", "", "")
	args := serviceArgs(want)
	if err := flags.Parse(args[2:]); err != nil {
		t.Fatal(err)
	}
	got := shopdemo.Settings{
		Service: f.service, Store: *store, Publisher: f.Publisher, Stream: f.stream, Listen: f.listen, Seed: f.Seed, Faults: f.Faults,
		Compensate: saga.Compensation(f.compensate), Limits: f.Limits,
	}
	if got != want {
		t.Errorf("%q:\ngot  %+v\nwant %+v", args, got, want)
	}
}
