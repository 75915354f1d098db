package inbox_test

import (
	"context"
	"database/sql"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
	natsbroker "github.com/postrider/postrider/broker/nats"
	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/process"
)

// TestRestored: servers are restarted on earlier copies of their data, a Kafka topic is recreated.
func TestRestored(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t testing.TB) inboxtest.Restorable{
		"JetStream": restorableNATS(group, false), "JetStreamLog": restorableNATS("", false), "JetStreamPartitions": restorableNATS("", true), "Kafka": recreatedKafka(group),
		"KafkaLogRecreated": recreatedKafka(""), "KafkaLog": restorableKafka, "RedisLog": restorableRedis("", false),
		"RedisLogClockSetBack": restorableRedis("", true), "JetStreamLogRecreated": recreatedNATS(false),
		"JetStreamPartitionsRecreated": recreatedNATS(true), "RedisLogRecreated": recreatedRedis,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Restored(t, inboxtest.Harness[pgx.Tx]{Open: openPostgres}, open)
		})
	}
	for name, open := range map[string]func(t testing.TB) inboxtest.Restorable{
		"Redis": restorableRedis(group, false), "RedisClockSetBack": restorableRedis(group, true),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inboxtest.Restored(t, inboxtest.Harness[*sql.Tx]{Open: openSQLite}, open)
		})
	}
}

// restorable is a server whose files can be restored.
type restorable struct {
	server    *process.Server
	dir, copy string
	start     func(port int) (*process.Server, error)
}

func newRestorable(t testing.TB, start func(ctx context.Context, dir string, port int) (*process.Server, error)) *restorable {
	t.Helper()
	base, err := os.MkdirTemp("", "postrider-restored-") //nolint:usetesting // a killed server may still write there when the test ends
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	r := &restorable{dir: filepath.Join(base, "now"), copy: filepath.Join(base, "copy")}
	must(t, os.Mkdir(r.dir, 0o700))
	r.start = func(port int) (*process.Server, error) { return start(context.WithoutCancel(t.Context()), r.dir, port) }
	r.server, err = r.start(0)
	must(t, err)
	t.Cleanup(func() { _ = r.server.Kill() }) // it may have ended
	return r
}

func (r *restorable) port(t testing.TB) int {
	t.Helper()
	u, err := url.Parse(r.server.URL)
	must(t, err)
	_, text, err := net.SplitHostPort(u.Host)
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	return port
}

// restart stops the server, calls meanwhile and restarts it on the same port.
func (r *restorable) restart(t testing.TB, meanwhile func() error) {
	t.Helper()
	must(t, r.server.Stop())
	must(t, meanwhile())
	s, err := r.start(r.port(t))
	must(t, err)
	r.server = s
}

func (r *restorable) save(t testing.TB) {
	r.restart(t, func() error { return os.CopyFS(r.copy, os.DirFS(r.dir)) })
}

func (r *restorable) restore(t testing.TB) {
	r.restart(t, func() error {
		if err := os.RemoveAll(r.dir); err != nil {
			return err
		}
		return os.CopyFS(r.dir, os.DirFS(r.copy))
	})
}

// publishAgain publishes on new connections, which no restart has broken.
func publishAgain[P interface {
	postrider.Publisher
	Close() error
}](t testing.TB, open func(ctx context.Context) (P, error)) func(context.Context, []*postrider.Message) []error {
	return func(ctx context.Context, msgs []*postrider.Message) []error {
		p, err := open(ctx)
		if err != nil {
			return []error{err}
		}
		defer func() { must(t, p.Close()) }()
		return p.Publish(ctx, msgs)
	}
}

// restorableNATS reads a stream by a durable consumer in order, or as a log if it has no name.
func restorableNATS(durable string, partitioned bool) func(t testing.TB) inboxtest.Restorable {
	return func(t testing.TB) inboxtest.Restorable {
		r := newRestorable(t, func(ctx context.Context, dir string, port int) (*process.Server, error) {
			return process.StartNATS(ctx, servertest.Get(t, servertest.NATSBin), dir, port)
		})
		cfg := natsbroker.Config{Stream: unique(), Partitioned: partitioned}
		return inboxtest.Restorable{
			Shared: partitioned,
			Source: inboxtest.Source{
				Topic: topic,
				Publish: publishAgain(t, func(ctx context.Context) (*natsbroker.Publisher, error) {
					return natsbroker.Open(ctx, r.server.URL, cfg)
				}),
				Join: func(t testing.TB) postrider.Subscriber {
					read := natsbroker.SubscriberConfig{Config: cfg, Durable: durable}
					if durable != "" {
						read.Ordered, read.AckWait = true, 2*time.Second
					}
					s, err := natsbroker.OpenSubscriber(context.Background(), r.server.URL, read)
					must(t, err)
					closing(t, s)
					return s
				},
			},
			Copy: r.save, Replace: r.restore, Kept: true,
		}
	}
}

// restorableRedis trims the stream before it is copied. With ahead, the IDs of the lost messages are from a clock ahead
// of the server's: after the loss, other messages get lower IDs.
func restorableRedis(group string, ahead bool) func(t testing.TB) inboxtest.Restorable {
	return func(t testing.TB) inboxtest.Restorable {
		r := newRestorable(t, func(ctx context.Context, dir string, port int) (*process.Server, error) {
			return process.StartRedis(ctx, servertest.Get(t, servertest.RedisBin), dir, port)
		})
		cfg := redisbroker.Config{Prefix: unique() + ":", Partitions: 1}
		stream := cfg.Prefix + "{" + topic + "/0}"
		return inboxtest.Restorable{
			Source: inboxtest.Source{
				Topic: topic,
				Publish: publishAgain(t, func(ctx context.Context) (*redisbroker.Publisher, error) {
					return redisbroker.Open(ctx, r.server.URL, cfg)
				}),
				Join: func(t testing.TB) postrider.Subscriber {
					read := redisbroker.SubscriberConfig{Config: cfg, Group: group, Topics: []string{topic}}
					if group != "" {
						read.ClaimAfter = time.Second
					}
					s, err := redisbroker.OpenSubscriber(context.Background(), r.server.URL, read)
					must(t, err)
					closing(t, s)
					return s
				},
			},
			Copy: func(t testing.TB) {
				redisDo(t, r.server.URL, "XTRIM", stream, "MAXLEN", 5)
				r.save(t)
				if ahead {
					redisDo(t, r.server.URL, "XSETID", stream, strconv.FormatInt(time.Now().Add(time.Hour).UnixMilli(), 10)+"-0")
				}
			},
			Replace: r.restore, Kept: true,
		}
	}
}

func restorableKafka(t testing.TB) inboxtest.Restorable {
	r := newRestorable(t, func(ctx context.Context, dir string, port int) (*process.Server, error) {
		return process.StartKafka(ctx, servertest.Get(t, servertest.KafkaHome), dir, port)
	})
	prefix := unique() + "."
	return inboxtest.Restorable{
		Source: inboxtest.Source{
			Topic: topic, Join: joinKafka(r.server.URL, prefix, "", 1),
			Publish: publishAgain(t, func(ctx context.Context) (*kafkabroker.Publisher, error) {
				return kafkabroker.Open(ctx, r.server.URL, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 1})
			}),
		},
		Copy: r.save, Replace: r.restore, Kept: true,
	}
}

func recreatedKafka(group string) func(t testing.TB) inboxtest.Restorable {
	return func(t testing.TB) inboxtest.Restorable {
		address, prefix := servertest.Get(t, servertest.Kafka), unique()+"."
		name := kafkabroker.TopicName(prefix, topic)
		return inboxtest.Restorable{
			Source: inboxtest.Source{
				Topic: topic, Join: joinKafka(address, prefix, group, 1),
				Publish: publishAgain(t, func(ctx context.Context) (*kafkabroker.Publisher, error) {
					return kafkabroker.Open(ctx, address, kafkabroker.Config{Prefix: prefix, Create: true, Partitions: 1})
				}),
			},
			Copy: func(testing.TB) {},
			Replace: func(t testing.TB) {
				admin := kafkaAdmin(t, address)
				_, err := admin.DeleteTopic(t.Context(), name)
				must(t, err)
				createTopic(t, admin, name, nil)
			},
		}
	}
}

// recreatedNATS deletes the stream and creates it again, for readers of the log.
func recreatedNATS(partitioned bool) func(t testing.TB) inboxtest.Restorable {
	return func(t testing.TB) inboxtest.Restorable {
		address, cfg := servertest.Get(t, servertest.NATS), natsbroker.Config{Stream: unique(), Partitioned: partitioned}
		open := func(ctx context.Context) (*natsbroker.Publisher, error) { return natsbroker.Open(ctx, address, cfg) }
		return inboxtest.Restorable{
			Shared: partitioned,
			Source: inboxtest.Source{Topic: topic, Join: joinNATS(address, cfg, "", false), Publish: publishAgain(t, open)},
			Copy:   func(testing.TB) {},
			Replace: func(t testing.TB) {
				deleteStream(t, jetStream(t, address), cfg.Stream)
				p, err := open(t.Context())
				must(t, err)
				must(t, p.Close())
			},
		}
	}
}

// recreatedRedis deletes the stream, for readers of the log; a publisher or reader creates it again.
func recreatedRedis(t testing.TB) inboxtest.Restorable {
	address, cfg := servertest.Get(t, servertest.Redis), redisbroker.Config{Prefix: unique() + ":", Partitions: 1}
	return inboxtest.Restorable{
		Source: inboxtest.Source{
			Topic: topic, Join: joinRedis(address, cfg, ""),
			Publish: publishAgain(t, func(ctx context.Context) (*redisbroker.Publisher, error) { return redisbroker.Open(ctx, address, cfg) }),
		},
		Copy:    func(testing.TB) {},
		Replace: func(t testing.TB) { redisDo(t, address, "DEL", cfg.Prefix+"{"+topic+"/0}") },
	}
}

func redisDo(t testing.TB, address string, args ...any) {
	t.Helper()
	opts, err := redis.ParseURL(address)
	must(t, err)
	client := redis.NewClient(opts)
	defer func() { must(t, client.Close()) }()
	must(t, client.Do(t.Context(), args...).Err())
}
