package rabbitmqbroker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

const (
	// DefaultHeartbeat is the default of Connection.Heartbeat.
	DefaultHeartbeat = 10 * time.Second
	// dialTimeout bounds one connection attempt, including the handshakes.
	dialTimeout = 10 * time.Second
	// writeTimeout bounds one network write. A server that is short of memory or disk space stops reading.
	writeTimeout = 5 * time.Second
	// The reconnect delay doubles from reconnectFirst to reconnectLast, with full jitter.
	reconnectFirst, reconnectLast = 100 * time.Millisecond, 5 * time.Second
	// frameSize is the requested frame size; the server may choose a smaller one.
	frameSize = 128 << 10
)

// Connection configures the connection. The zero value of each field means its default.
type Connection struct {
	// Name is the connection name shown by the server. Default: "postrider".
	Name string
	// User and Password take precedence over those in the URL. Default: guest and guest, which a server accepts only
	// locally.
	User, Password string
	// AllowPlaintext permits to send the password to another host without encryption.
	AllowPlaintext bool
	// External makes the server take the user from the client certificate (SASL EXTERNAL).
	External bool
	// TLS configures encryption, which the scheme amqps enables. CAFile, CertFile and KeyFile are PEM files: the CA
	// certificates (default: the system's), and the client certificate and key.
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string
	// Heartbeat is the heartbeat interval of both sides, in whole seconds. A side that is silent for about twice as long
	// is considered lost. Default: 10 s.
	Heartbeat time.Duration
	// Logger logs lost connections and reconnects. Default: slog.Default().
	Logger *slog.Logger
}

func (c Connection) withDefaults() Connection {
	c.Name = cmp.Or(c.Name, "postrider")
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// faults returns all errors of a configuration that has its defaults set.
func (c Connection) faults() []error {
	var faults []error
	if c.Heartbeat < time.Second {
		faults = append(faults, fmt.Errorf("rabbitmq: heartbeat is %s; give 1s or more", c.Heartbeat))
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		faults = append(faults, errors.New("rabbitmq: client certificate and key come together; give both files or none"))
	}
	if c.External && c.Password != "" {
		faults = append(faults, errors.New("rabbitmq: External takes the user from the certificate; give no password"))
	}
	return faults
}

// dialer connects to one of several servers.
type dialer struct {
	cfg   Connection
	at    location
	tls   *tls.Config // nil without encryption
	first int         // index of the server to try first
}

func newDialer(cfg Connection, at location) (*dialer, error) {
	d := &dialer{cfg: cfg, at: at, first: rand.N(len(at.servers))}
	if !at.encrypted {
		if cfg.TLS != nil || cfg.CAFile != "" || cfg.CertFile != "" || cfg.External {
			return nil, errors.New("rabbitmq: there is encryption to configure, or External, but the URL's scheme is amqp; use amqps://")
		}
		return d, nil
	}
	d.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		d.tls = cfg.TLS.Clone()
	}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, fmt.Errorf("rabbitmq: read CA certificates: %w", err)
		}
		d.tls.RootCAs = x509.NewCertPool()
		if !d.tls.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("rabbitmq: %s holds no certificate in PEM form", cfg.CAFile)
		}
	}
	if cfg.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("rabbitmq: read client certificate: %w", err)
		}
		d.tls.Certificates = []tls.Certificate{cert}
	}
	return d, nil
}

// dial tries each server once.
func (d *dialer) dial(ctx context.Context) (*connection, error) {
	var failures []error
	for i := range d.at.servers {
		n := (d.first + i) % len(d.at.servers)
		c, err := d.dialServer(ctx, d.at.servers[n])
		if err == nil {
			d.first = n
			return c, nil
		}
		failures = append(failures, fmt.Errorf("connect to RabbitMQ at %s: %w", d.at.servers[n], err))
	}
	d.first++
	return nil, errors.Join(failures...)
}

func (d *dialer) dialServer(ctx context.Context, server string) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var network net.Dialer
	raw, err := network.DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	ended := context.AfterFunc(ctx, func() { _ = raw.Close() })
	conn, err := d.handshake(ctx, raw, server)
	if !ended() { // the connection is closed, or will be
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		_ = raw.Close() // the error is already known
		return nil, err
	}
	return &connection{Connection: conn, raw: raw}, nil
}

func (d *dialer) handshake(ctx context.Context, raw net.Conn, server string) (*amqp.Connection, error) {
	var carrier net.Conn = impatient{raw}
	if d.tls != nil {
		cfg := d.tls.Clone()
		if cfg.ServerName == "" {
			cfg.ServerName, _, _ = net.SplitHostPort(server)
		}
		encrypted := tls.Client(carrier, cfg)
		if err := encrypted.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		carrier = encrypted
	}
	var auth amqp.Authentication = &amqp.PlainAuth{
		Username: cmp.Or(d.cfg.User, d.at.user, "guest"), Password: cmp.Or(d.cfg.Password, d.at.password, "guest"),
	}
	if d.cfg.External {
		auth = &amqp.ExternalAuth{}
	}
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(d.cfg.Name)
	return amqp.Open(carrier, amqp.Config{
		SASL: []amqp.Authentication{auth}, Vhost: d.at.vhost, Locale: "en_US",
		Heartbeat: d.cfg.Heartbeat, FrameSize: frameSize, Properties: properties,
	})
}

// attempt tries each server. It reports a rejection only if it happens twice, because a server that breaks off the
// handshake looks like one that rejects the credentials. Its errors are Unavailable, a rejection with advice, or the
// error of ctx.
func (d *dialer) attempt(ctx context.Context) (*connection, error) {
	c, err := d.dial(ctx)
	if err != nil && refusal(err) != "" {
		c, err = d.dial(ctx)
	}
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w: %w; check that the server runs and the address is right", ctx.Err(), err)
	case refusal(err) != "":
		return nil, fmt.Errorf("%w; %s", err, refusal(err))
	default:
		return nil, postrider.Unavailable(fmt.Errorf("%w; check that the server runs and the address is right", err))
	}
}

// refusal says how to fix an error that retrying cannot fix; "" for other errors.
func refusal(err error) string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return "name those who signed the server's certificate with CAFile"
	}
	e, ok := errors.AsType[*amqp.Error](err)
	switch {
	case !ok:
		return ""
	case e == amqp.ErrSASL:
		return "the server offers another way to authenticate; enable the plugin rabbitmq_auth_mechanism_ssl for External"
	case e == amqp.ErrVhost, e.Code == amqp.NotAllowed:
		return "check the virtual host after the slash in the URL, the user's permissions (rabbitmqctl list_permissions) and limits"
	case e.Code == amqp.AccessRefused:
		return "check user and password; guest may only connect from the server's own machine"
	}
	return ""
}

// reconnectDelay returns the delay after the given number of failed rounds over all servers.
func reconnectDelay(attempts int) time.Duration {
	delay := reconnectFirst << min(max(attempts-1, 0), 6)
	return rand.N(min(delay, reconnectLast)) + 1
}

// connection is a connection that can be closed without waiting for the server.
type connection struct {
	*amqp.Connection
	raw net.Conn
	// alarm is why the server accepts no messages; nil or "" if it does.
	alarm atomic.Pointer[string]
}

// watchAlarm keeps alarm up to date until the connection ends.
func (c *connection) watchAlarm(blocks <-chan amqp.Blocking, log *slog.Logger) {
	for b := range blocks {
		reason := ""
		if b.Active {
			reason = cmp.Or(b.Reason, "no reason is given")
			log.Warn("RabbitMQ accepts no messages", "reason", reason)
		} else {
			log.Info("RabbitMQ accepts messages again")
		}
		c.alarm.Store(&reason)
	}
}

// blocked returns why the server accepts no messages; "" if it does.
func (c *connection) blocked() string {
	if reason := c.alarm.Load(); reason != nil {
		return *reason
	}
	return ""
}

// abandon closes the connection without the closing handshake.
func (c *connection) abandon() { _ = c.raw.Close() }

// close closes the connection with the closing handshake, and waits up to limit for a server that may no longer read.
func (c *connection) close(limit time.Duration) {
	stop := time.AfterFunc(limit, c.abandon)
	defer stop.Stop()
	_ = c.Close() // errors do not matter: the connection is closed in any case
}

// answering runs do, which needs answers from the server, and closes the connection if they take too long.
func (c *connection) answering(do func() error) error {
	stop := time.AfterFunc(dialTimeout, c.abandon)
	defer stop.Stop()
	return do()
}

// impatient is a connection with a timeout for writes.
type impatient struct{ net.Conn }

func (c impatient) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
