package demo_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/demo"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
)

// setup returns the configuration of a short demo on SQLite and an in-process JetStream server.
func setup(t *testing.T) (demo.Config, *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	place, err := backend.OpenTemporary(t.Context(), config.Store{URL: "sqlite:" + filepath.Join(dir, "shop.db")}, "demo",
		slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := place.Remove(); err != nil {
			t.Error(err)
		}
	})
	var out bytes.Buffer
	return demo.Config{
		For: demo.MinFor, Store: place.Store, Transactions: place.Transactions, DB: place.DB, TablePrefix: place.TablePrefix,
		Shown: "SQLite", ShownPublisher: "JetStream", Dir: filepath.Join(dir, "jetstream"), Name: "DEMO", Out: &out,
		Wait: time.Minute,
	}, &out
}

func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			t.Errorf("%q is missing in:\n%s", w, text)
		}
	}
}

func TestDemoOnAServerOfOthersInANarrowTerminal(t *testing.T) {
	t.Parallel()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		Username: "u", Password: "p",
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(s.Shutdown)
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not answer")
	}
	cfg, out := setup(t)
	cfg.Publisher = s.ClientURL() + "?stream=THEIRS&user=u&password=p"
	cfg.Width = func() int { return 60 }
	findings, err := demo.Run(t.Context(), cfg)
	if err != nil || !findings.Held() || findings.Committed == 0 {
		t.Fatalf("findings %+v, error %v\n%s", findings, err, out)
	}
	text := out.String()
	contains(t, strings.Join(strings.Fields(text), " "), "the relay's connection is cut", "Every promise was kept.", "\x1b[J")
	if strings.Contains(text, "\x1b[3") {
		t.Error("there are colors although none are allowed")
	}
	for line := range strings.Lines(regexp.MustCompile(`\x1b\[[0-9]*[A-Z]`).ReplaceAllString(text, "")) {
		if utf8.RuneCountInString(strings.TrimRight(line, "\n")) > 60 {
			t.Errorf("a line is too long: %q", line)
		}
	}
	if names, err := s.JszAccount(&server.JSzOptions{Account: "$G", Streams: true}); err == nil && len(names.Streams) > 0 {
		t.Errorf("a stream was left behind: %+v", names.Streams)
	}
}

func TestDemoEndsEarlyAndJudgesWhatThereIs(t *testing.T) {
	t.Parallel()
	cfg, out := setup(t)
	cfg.For = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	once := sync.OnceFunc(cancel)
	cfg.Interceptors = []relay.PublishInterceptor{func(next relay.PublishFunc) relay.PublishFunc {
		return func(ctx context.Context, msgs []*postrider.Message) []error {
			once()
			return next(ctx, msgs)
		}
	}}
	findings, err := demo.Run(ctx, cfg)
	if err != nil || !findings.Held() || findings.Committed == 0 {
		t.Fatalf("findings %+v, error %v\n%s", findings, err, out)
	}
	contains(t, out.String(), "interrupted: closing early", "Every promise was kept.")
}

// TestDemoFindsBrokenPromises puts faulty interceptors between relay and broker: the check must detect them.
func TestDemoFindsBrokenPromises(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		lie   func(m *postrider.Message) []*postrider.Message
		broke func(f demo.Findings) int64
		words string
	}{
		"lost": {func(*postrider.Message) []*postrider.Message { return nil },
			func(f demo.Findings) int64 { return f.Lost }, "lost: customer/"},
		"invented": {func(m *postrider.Message) []*postrider.Message {
			other := *m
			other.ID = "invented"
			return []*postrider.Message{m, &other}
		}, func(f demo.Findings) int64 { return f.Invented }, "invented: customer/"},
		"altered": {func(m *postrider.Message) []*postrider.Message {
			other := *m
			other.Payload = []byte(`{"customer":"customer/99","number":1}`)
			return []*postrider.Message{&other}
		}, func(f demo.Findings) int64 { return f.Altered }, "altered: customer/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg, out := setup(t)
			if name == "lost" {
				cfg.Wait = 3 * time.Second // it never arrives
			}
			cfg.Interceptors = []relay.PublishInterceptor{liar(test.lie)}
			findings, err := demo.Run(t.Context(), cfg)
			if err != nil || findings.Held() || test.broke(findings) < 1 {
				t.Errorf("findings %+v, error %v", findings, err)
			}
			contains(t, out.String(), "A promise broke.", test.words)
		})
	}
}

func TestDemoFindsDisorder(t *testing.T) {
	t.Parallel()
	cfg, out := setup(t)
	cfg.Interceptors = []relay.PublishInterceptor{overtake()}
	findings, err := demo.Run(t.Context(), cfg)
	if err != nil || findings.Held() || findings.Disorder < 1 {
		t.Errorf("findings %+v, error %v", findings, err)
	}
	contains(t, out.String(), "A promise broke.", "out of order: customer/")
}

// liar alters one message, each time that it is published: it sends what lie returns for it and, if the broker accepts
// that, reports success.
func liar(lie func(*postrider.Message) []*postrider.Message) relay.PublishInterceptor {
	var mu sync.Mutex
	about := ""
	return func(next relay.PublishFunc) relay.PublishFunc {
		return func(ctx context.Context, msgs []*postrider.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			about = cmp.Or(about, msgs[0].ID)
			i := slices.IndexFunc(msgs, func(m *postrider.Message) bool { return m.ID == about })
			if i < 0 {
				return next(ctx, msgs)
			}
			if err := errors.Join(next(ctx, slices.Concat(msgs[:i], lie(msgs[i]), msgs[i+1:]))...); err != nil {
				return slices.Repeat([]error{err}, len(msgs))
			}
			return nil
		}
	}
}

// overtake delays one message until the next one of its key has been sent.
func overtake() relay.PublishInterceptor {
	var mu sync.Mutex
	var kept *postrider.Message
	done := false
	return func(next relay.PublishFunc) relay.PublishFunc {
		return func(ctx context.Context, msgs []*postrider.Message) []error {
			mu.Lock()
			defer mu.Unlock()
			errs := make([]error, len(msgs))
			for i, m := range msgs {
				if kept == nil || m.ID == kept.ID { // it is redelivered when a relay has crashed before it settled
					kept = m
					continue
				}
				errs[i] = first(next(ctx, msgs[i:i+1]))
				if !done && m.Key == kept.Key && errs[i] == nil {
					done = first(next(ctx, []*postrider.Message{kept})) == nil
				}
			}
			return errs
		}
	}
}

func first(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

func TestDemoNeedsTime(t *testing.T) {
	t.Parallel()
	if _, err := demo.Run(t.Context(), demo.Config{For: time.Second}); err == nil || !strings.Contains(err.Error(), "at least 3s") {
		t.Errorf("error is %v", err)
	}
}
