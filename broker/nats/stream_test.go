package natsbroker_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	natsbroker "github.com/postrider/postrider/broker/nats"
)

func TestStreamCreated(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	url := "nats://" + s.address() + "?stream=ORDERS"
	url += "&max_age=120h"
	for range 2 { // the second one finds the stream
		p, err := natsbroker.Open(t.Context(), url, natsbroker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		c := p.Capabilities()
		if !c.Ordered || c.DedupeWindow != natsbroker.DefaultDedupeWindow || c.MaxMessageBytes != 1<<20-4<<10 || c.MaxBatch != 0 {
			t.Errorf("capabilities are %+v", c)
		}
	}
	_, js := connect(t, s.address())
	stream, err := js.Stream(t.Context(), "ORDERS")
	if err != nil {
		t.Fatal(err)
	}
	got := stream.CachedInfo().Config
	if got.MaxAge != 120*time.Hour {
		t.Errorf("the stream keeps messages for %s, want 120h", got.MaxAge)
	}
	if got.Storage != jetstream.FileStorage || got.Replicas != 1 || got.Duplicates != 2*time.Minute || len(got.Subjects) != 1 ||
		got.Subjects[0] != "ORDERS.>" {
		t.Errorf("stream is %+v", got)
	}
}

// TestStreamDoesNotFit checks that all differences are reported at once, with the commands to fix them.
func TestStreamDoesNotFit(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, nil)
	_, js := connect(t, s.address())
	create := func(cfg jetstream.StreamConfig) {
		t.Helper()
		if _, err := js.CreateStream(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
	}
	open := func(cfg natsbroker.Config) error {
		t.Helper()
		p, err := natsbroker.Open(t.Context(), "nats://"+s.address(), cfg)
		if err == nil {
			_ = p.Close()
		}
		return err
	}
	create(jetstream.StreamConfig{Name: "ALL", Subjects: []string{"orders.*"}, Storage: jetstream.MemoryStorage, Duplicates: time.Second, NoAck: true})
	wantError(t, open(natsbroker.Config{Stream: "ALL", Prefix: "orders.", Replicas: 3}),
		"takes orders.* and not orders.>; run: nats stream edit ALL --subjects=orders.*,orders.>",
		"does not acknowledge messages", "kept in memory", "has 1 replicas; 3 are asked for; run: nats stream edit ALL --replicas=3",
		"duplicates for 1s; 2m0s are asked for; run: nats stream edit ALL --dupe-window=2m0s")
	create(jetstream.StreamConfig{Name: "MIRROR", Mirror: &jetstream.StreamSource{Name: "ALL"}})
	wantError(t, open(natsbroker.Config{Stream: "MIRROR"}), "is a mirror and takes no messages")
	wantError(t, open(natsbroker.Config{Stream: "ABSENT", CheckOnly: true}), "does not exist",
		"nats stream add ABSENT --subjects=ABSENT.> --storage=file --replicas=1 --dupe-window=2m0s")
	wantError(t, open(natsbroker.Config{Stream: "OTHER", Prefix: "orders."}), "another stream takes orders.>", "set Subjects and Prefix")
	wantError(t, open(natsbroker.Config{Stream: "REPLICATED", Replicas: 3}), "3 replicas need as many servers")

	wantError(t, open(natsbroker.Config{Stream: "AGED", CheckOnly: true, MaxAge: time.Hour}), "--dupe-window=2m0s --max-age=1h0m0s --defaults")
	create(jetstream.StreamConfig{Name: "AGED", Subjects: []string{"AGED.>"}})
	wantError(t, open(natsbroker.Config{Stream: "AGED", MaxAge: time.Hour}), "keeps messages for ever; 1h0m0s is asked for; run: nats stream edit AGED --max-age=1h0m0s")
	create(jetstream.StreamConfig{Name: "OLDER", Subjects: []string{"OLDER.>"}, MaxAge: 2 * time.Hour})
	wantError(t, open(natsbroker.Config{Stream: "OLDER", MaxAge: time.Hour}), "keeps messages for 2h0m0s; 1h0m0s is asked for")
	wantError(t, open(natsbroker.Config{Stream: "SHORT", MaxAge: time.Minute}), "max age is 1m0s; give the dedupe window, 2m0s, or more")
	if err := open(natsbroker.Config{Stream: "OLDER"}); err != nil {
		t.Errorf("a stream with a max age is refused although none is asked for: %v", err)
	}
	create(jetstream.StreamConfig{Name: "FITS", Subjects: []string{"fits.>", "more"}, Duplicates: time.Hour})
	if err := open(natsbroker.Config{Stream: "FITS", Prefix: "fits.this.", CheckOnly: true}); err != nil {
		t.Errorf("a stream that promises more than needed is refused: %v", err)
	}
}

func TestWithoutJetStream(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) { o.JetStream = false })
	_, err := natsbroker.Open(t.Context(), "nats://"+s.address(), natsbroker.Config{Stream: "ORDERS"})
	wantError(t, err, "prepare stream ORDERS", "start the server with -js")
}
