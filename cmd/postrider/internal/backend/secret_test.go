package backend

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/config"
)

// TestPlaintextPasswordsAreRefused: a password goes to another host over a connection that is not verified only if the URL says so;
// the error names the option.
func TestPlaintextPasswordsAreRefused(t *testing.T) {
	t.Parallel()
	for url, refused := range map[string]string{
		"postgres://u:secret@db.example/d":                            "sslmode=verify-full",
		"postgres://u:secret@127.0.0.1,db.example/d":                  "sslmode=verify-full",
		"postgres://u@db.example/d?password=secret":                   "sslmode=verify-full",
		"mysql://u:secret@db.example/d":                               "tls=true",
		"nats://u:secret@mq.example?stream=S":                         "use tls://",
		"nats://secret@mq.example?stream=S":                           "use tls://",
		"nats://mq.example?stream=S&token=secret":                     "allow_plaintext=true",
		"kafka://u:secret@mq.example?sasl=plain":                      "use kafkas://, or SASL with SCRAM",
		"amqp://u:secret@mq.example/?exchange=e":                      "use amqps://",
		"redis://:secret@mq.example":                                  "use rediss://",
		"redis://mq.example?master=m&sentinel_password=secret":        "use rediss://",
		"postgres://u:secret@127.0.0.1/d":                             "",
		"postgres://u:secret@localhost,[::1]/d":                       "",
		"postgres://u:secret@/d?host=/run/postgresql":                 "",
		"postgres://u@db.example/d":                                   "",
		"postgres://u:secret@db.example/d?sslmode=verify-full":        "",
		"postgres://u:secret@db.example/d?sslmode=prefer":             "",
		"mysql://u:secret@127.0.0.1/d":                                "",
		"mysql://u@db.example/d":                                      "",
		"mysql://u:secret@db.example/d?tls=skip-verify":               "",
		"nats://u:secret@localhost?stream=S":                          "",
		"tls://u:secret@mq.example?stream=S":                          "",
		"nats://u:secret@mq.example?stream=S&allow_plaintext=true":    "",
		"kafka://u:secret@mq.example":                                 "",
		"amqp://u:secret@mq.example/?exchange=e&allow_plaintext=true": "",
		"amqps://u:secret@mq.example/?exchange=e":                     "",
		"rediss://:secret@mq.example":                                 "",
	} {
		err := offline(t, url)
		switch {
		case refused == "" && err != nil && strings.Contains(err.Error(), "the password would"):
			t.Errorf("%s: %v, want that it is allowed", url, err)
		case refused != "" && (err == nil || !strings.Contains(err.Error(), "the password would") || !strings.Contains(err.Error(), refused)):
			t.Errorf("%s: %v, want that it is refused and the error names %s", url, err, refused)
		case err != nil && strings.Contains(err.Error(), "secret"):
			t.Errorf("the error has the password: %v", err)
		}
	}
}

func TestPasswordOutsideTheURL(t *testing.T) {
	t.Parallel()
	const password = "a/b@c:d#e?f,g h%"
	for _, url := range []string{"postgres://u@h/d?sslmode=disable", "mysql://u@h/d?tls=false"} {
		l, err := locate(config.Store{URL: url, Password: password})
		if err != nil || strings.Contains(l.shown, "a/b") {
			t.Fatalf("%s: %+v, %v", url, l, err)
		}
		var got string
		if l.kind == kindMySQL {
			c, err := mysqlConfig(l)
			if err != nil {
				t.Fatal(err)
			}
			got = c.Passwd
		} else {
			c, err := poolConfig(l)
			if err != nil {
				t.Fatal(err)
			}
			got = c.ConnConfig.Password
		}
		if got != password {
			t.Errorf("%s: the password is read as %q", url, got)
		}
	}
	if _, err := locate(config.Store{URL: "postgres://h/d", Password: "x"}); err == nil || !strings.Contains(err.Error(), "no user in the URL") {
		t.Errorf("a password without a user: %v", err)
	}
}

// offline opens a store or publisher as far as possible without a connection.
func offline(t testing.TB, url string) error {
	t.Helper()
	if _, err := config.BrokerOf(url); err == nil {
		return CheckPublisher(config.Publisher{URL: url})
	}
	l, err := locate(config.Store{URL: url})
	switch {
	case err != nil:
		return err
	case l.kind == kindMySQL:
		_, err = mysqlConfig(l)
	case l.kind == kindPostgres:
		_, err = poolConfig(l)
	}
	return err
}

// FuzzErrorsHaveNoPassword: no piece of a password is in an error about a URL, or in what is shown of it, whatever characters it has.
func FuzzErrorsHaveNoPassword(f *testing.F) {
	for _, password := range []string{"hunter2", "a#b", "a,b", "a@b", "a/b", "a?b", "a b", "12/34@", ",nats://x", "a&b=c", "%zz", "a;b", "://", "`: ", "'", "\x00"} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		const mark = "QZX" // makes every piece of the password recognizable
		secret := mark + strings.Join(strings.SplitAfter(password, ""), mark) + mark
		for _, form := range []string{
			"postgres://user:%@host/db", "postgres://user:%@host/db?sslmode=wrong", "postgres://user:%@host:port/db", "postgres://host/db?password=%&sslmode=wrong",
			"postgres://user:%@host/db?sslmode=disable&pool_max_conns=many", "mysql://user:%@host/db", "mysql://user:%@host/db?tls=wrong",
			"mysql://user:%@host", "mysql://user:%@host/db?timeout=soon", "nats://user:%@host?stream=S", "nats://%@host?stream=S&max_in_flight=x",
			"nats://user:%@a,b?stream=S", "nats://host?stream=S&token=%", "kafka://user:%@host?sasl=plain", "kafka://user:%@host?sasl=wrong",
			"amqp://user:%@host/vhost", "amqp://user:%@host/vhost?exchange=e&heartbeat=x", "redis://user:%@host/0", "redis://:%@host/db",
			"rediss://host?password=%&db=x", "host=h password=% user=u", "user:%@tcp(host)/db", "sqlite://user:%@host/db", "https://host/x#secret=%",
			"https://host/x#authorization=%&timeout=x", "%",
		} {
			url := strings.ReplaceAll(form, "%", secret)
			out := fmt.Sprint(offline(t, url), ShownPublisher(url))
			if l, err := locate(config.Store{URL: url}); err == nil {
				out += l.shown
			}
			if strings.Contains(out, mark) {
				t.Errorf("%q: %s", url, out)
			}
		}
	})
}
