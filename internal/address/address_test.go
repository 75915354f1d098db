package address_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/address"
)

func TestShow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"postgres://u:secret@h/d":                      {"postgres://u@h/d", "postgres://h"},
		"postgres://u:se%2Fcret@h:5432/d?a=1":          {"postgres://u@h:5432/d?a=1", "postgres://h:5432"},
		"postgres://u:se:cr,et@h,i/d":                  {"postgres://u@h,i/d", "postgres://h,i"},
		"postgres://u:secret@[::1]:5432/d":             {"postgres://u@[::1]:5432/d", "postgres://[::1]:5432"},
		"postgres:///d?host=/run":                      {"postgres:///d?host=/run", "postgres://"},
		"postgres://h/d?password=secret&a=1":           {"postgres://h/d", "postgres://h"},
		"postgres://h/d?SSLPassword=sec&ret":           {"postgres://h/d", "postgres://h"},
		"postgres://h/d?p%61ssword=secret":             {"postgres://h/d", "postgres://h"},
		"postgres://u:se/cret@h/d":                     {"postgres://…", "postgres://…"},
		"postgres://u:1?cret@h/d":                      {"postgres://…", "postgres://…"},
		"postgres://u:1#cret@h/d":                      {"postgres://…", "postgres://…"},
		"mysql://u:se@cret@h/d":                        {"mysql://u@h/d", "mysql://h"},
		"host=h password=secret":                       {"…", "…"},
		"host=h password=se://cret":                    {"…", "…"},
		"u:secret@tcp(h:3306)/d":                       {"…", "…"},
		"sqlite:a@b.db?partitions=3":                   {"sqlite:a@b.db?partitions=3", "…"},
		"nats://u:p@a:1,u:p@b:2":                       {"nats://u@a:1,b:2", "nats://a:1,b:2"},
		"nats://u:p@a:1,nats://u:p@b:2":                {"nats://u@a:1,b:2", "nats://a:1,b:2"},
		"nats://a:1,nats://b:2":                        {"nats://a:1,b:2", "nats://a:1,b:2"},
		"nats://u:p@secret,y@h":                        {"nats://…", "nats://…"},
		"nats://u:12345,nats://secret@h":               {"nats://…", "nats://…"},
		"amqp://u:secret@h/vhost#secret":               {"amqp://u@h/vhost", "amqp://h"},
		"https://hooks.example/T00/secret?token=x":     {"https://hooks.example/T00/secret", "https://hooks.example"},
		"redis://:secret@h:6379/0":                     {"redis://h:6379/0", "redis://h:6379"},
		"nats://u:secret@h:port":                       {"nats://…", "nats://…"},
		"kafka://user:sec ret@broker-1:9092,broker_2:": {"kafka://…", "kafka://…"},
	} {
		if shown, servers := address.Show(text), address.Servers(text); shown != want[0] || servers != want[1] {
			t.Errorf("%s is shown as %s and %s, want %s and %s", text, shown, servers, want[0], want[1])
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	u, err := address.Parse("amqps://us%40er:p%2Fa:s,s w@ord@h:1,[::1]:2/vhost?a=b")
	if err != nil || u.Scheme != "amqps" || u.User != "us@er" || u.Password != "p/a:s,s w@ord" || !u.Named ||
		strings.Join(u.Hosts, " ") != "h:1 [::1]:2" || u.Rest != "/vhost?a=b" {
		t.Errorf("%+v, %v", u, err)
	}
	for _, text := range []string{"nats://u:p/x@h", "nats://u:1?x@h", "nats://h?user=a@b", "nats://u:1/x,nats://y@h"} {
		if _, err := address.Parse(text); !errors.Is(err, address.ErrAmbiguous) {
			t.Errorf("%s: %v, want ErrAmbiguous", text, err)
		}
	}
	for text, words := range map[string]string{
		"h:1": "does not begin with a scheme", "nats://a,tls://b": "different schemes", "nats://u:p@a,v:p@b": "different users",
		"nats://u:%zz@a": "write % as %25", "nats://u:secret": "neither host nor host:port",
	} {
		if _, err := address.Parse(text); err == nil || !strings.Contains(err.Error(), words) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

func TestLocal(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"127.0.0.1": true, "127.8.8.8:5432": true, "[::1]:5432": true, "::1": true, "localhost": true, "LOCALHOST:1": true, "/run/postgresql": true,
		"": true, "10.0.0.1": false, "db": false, "db:5432": false, "[2001:db8::1]:1": false, "localhost.example.org": false,
		"127.0.0.1.example.org": false,
	} {
		if address.Local(host) != want {
			t.Errorf("%q is local: %t", host, !want)
		}
	}
}

// FuzzShow: no piece of a password gets into what is shown of a URL, or into an error, whatever characters the password has and
// wherever it stands.
func FuzzShow(f *testing.F) {
	for _, password := range []string{"hunter2", "a#b", "a,b", "a@b", "a/b", "a?b", "a b", "12/34@", ",nats://x", "1,nats://2@x", "a&b=c", "%zz", "a;b", "://", "`: "} {
		f.Add(password)
	}
	f.Fuzz(func(t *testing.T, password string) {
		// The marks make every piece of the password recognizable.
		const mark = "qzx"
		secret := mark + strings.Join(strings.SplitAfter(password, ""), mark) + mark
		for _, form := range []string{"postgres://user:%@host:5432/db", "mysql://user:%@host/db?tls=true", "nats://user:%@a:4222,b", "nats://user:%@a,nats://user:%@b",
			"kafkas://user:%@host", "amqp://user:%@host/vhost?exchange=x", "redis://:%@host:6379/0", "https://host/x#secret=%",
			"postgres://host/db?password=%", "postgres://host/db?a=1&sslpassword=%", "host=h password=%", "host=h password='%'",
			"user:%@tcp(host)/db", "nats://host?token=%"} {
			text := strings.ReplaceAll(form, "%", secret)
			_, err := address.Parse(text)
			out := address.Show(text) + address.Servers(text)
			if err != nil {
				out += err.Error()
			}
			if strings.Contains(out, mark) {
				t.Errorf("%q is shown as %q", text, out)
			}
			if !address.HasSecret(text) {
				t.Errorf("%q counts as without a secret", text)
			}
		}
	})
}
