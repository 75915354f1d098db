package inbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store/sqlite"
)

// TestSilentConsumers: a consumer whose stream is empty or whose topic nobody publishes says so in its log; one that gets messages does
// not, whatever else the stream has.
func TestSilentConsumers(t *testing.T) {
	t.Parallel()
	const empty, unmatched = "the source has no messages yet", "none is of a topic that the consumer reads"
	for name, test := range map[string]struct {
		publish string
		want    string
	}{
		"EmptyStream": {"", empty}, "OtherTopic": {"order.plcaed", unmatched}, "ItsTopic": {"order.placed", "received"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique()}
			p, err := natsbroker.Open(t.Context(), address, cfg)
			must(t, err)
			closing(t, p)
			if test.publish != "" {
				for _, topic := range []string{"other", test.publish} {
					m := &postrider.Message{ID: unique(), Type: topic, Topic: topic, Source: "shop", Time: time.Now(), Payload: []byte("{}")}
					for _, err := range p.Publish(t.Context(), []*postrider.Message{m}) {
						must(t, err)
					}
				}
			}
			log := &awaited{changed: make(chan struct{}, 1)}
			consume(t, address, cfg, slog.New(slog.NewTextHandler(log, nil)))
			log.await(t, test.want)
			if text := log.String(); test.want == "received" && (strings.Contains(text, empty) || strings.Contains(text, unmatched)) {
				t.Errorf("a consumer that gets messages logs\n%s", text)
			}
		})
	}
}

// consume runs a consumer of order.placed until the test ends. It logs what it receives.
func consume(t *testing.T, address string, cfg natsbroker.Config, logger *slog.Logger) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "view.db")+"?_pragma=busy_timeout(10000)")
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	_, err = sqlite.Migrate(t.Context(), db, sqlite.Config{}, sqlite.Latest)
	must(t, err)
	st, err := sqlite.New(db, sqlite.Config{})
	must(t, err)
	in, err := inbox.New(st)
	must(t, err)
	stream, err := natsbroker.OpenSubscriber(t.Context(), address, natsbroker.SubscriberConfig{Config: cfg, Topics: []string{"order.placed"}})
	must(t, err)
	closing(t, stream)
	c, err := inbox.NewConsumer(in, stream, inbox.ConsumerConfig{Name: "view", Logger: logger})
	must(t, err)
	must(t, c.HandleFunc("order.placed", func(context.Context, *sql.Tx, *postrider.Message) error {
		logger.Info("received")
		return nil
	}))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// awaited is a log that a test waits for.
type awaited struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

// Write implements io.Writer.
func (a *awaited) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
	return a.text.Write(p)
}

func (a *awaited) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.text.String()
}

func (a *awaited) await(t *testing.T, want string) {
	t.Helper()
	limit := time.After(3 * time.Minute)
	for !strings.Contains(a.String(), want) {
		select {
		case <-a.changed:
		case <-limit:
			t.Fatalf("the log does not have %q after 3 minutes:\n%s", want, a.String())
		}
	}
}
