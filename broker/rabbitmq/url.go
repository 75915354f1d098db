package rabbitmqbroker

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// option sets the value of a URL option.
type option func(value string) error

// options returns the setters of the URL options of a Connection.
func (c *Connection) options() map[string]option {
	return map[string]option{
		"name": text(&c.Name), "user": text(&c.User), "password": text(&c.Password), "external": yesNo(&c.External),
		"ca": text(&c.CAFile), "cert": text(&c.CertFile), "key": text(&c.KeyFile), "heartbeat": duration(&c.Heartbeat),
	}
}

// parseOptions sets the options after the question mark of a URL and returns the part before it.
func parseOptions(address string, options map[string]option) (string, error) {
	base, query, _ := strings.Cut(address, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", errors.New("rabbitmq: the URL's options cannot be read; percent-encode what is special in them")
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := options[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(options)), ", ")
			faults = append(faults, fmt.Errorf("rabbitmq: unknown URL option %q; known are %s", name, known))
			continue
		}
		if err := set(values.Get(name)); err != nil {
			faults = append(faults, fmt.Errorf("rabbitmq: URL option %s: %w", name, err))
		}
	}
	return base, errors.Join(faults...)
}

func text(to *string) option {
	return func(v string) error { *to = v; return nil }
}

func number(to *int) option {
	return func(v string) (err error) {
		if *to, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		return nil
	}
}

func duration(to *time.Duration) option {
	return func(v string) (err error) {
		if *to, err = time.ParseDuration(v); err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 2m", v)
		}
		return nil
	}
}

func yesNo(to *bool) option {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is not true or false", v)
		}
		return nil
	}
}

// location is a URL without its options.
type location struct {
	encrypted      bool
	servers        []string // host:port
	vhost          string
	user, password string
}

// parseLocation parses amqp://user:password@host:port,other:port/vhost. Its errors do not contain the password.
func parseLocation(address string) (location, error) {
	var l location
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok || scheme != "amqp" && scheme != "amqps" {
		return l, errors.New("rabbitmq: the URL does not begin with amqp:// or amqps://")
	}
	l.encrypted = scheme == "amqps"
	rest, vhost, _ := strings.Cut(rest, "/")
	hosts := rest
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, password, _ := strings.Cut(rest[:i], ":")
		var err, err2 error
		l.user, err = url.PathUnescape(user)
		l.password, err2 = url.PathUnescape(password)
		if err != nil || err2 != nil {
			return l, errors.New("rabbitmq: user and password in the URL cannot be read; percent-encode what is special in them")
		}
		hosts = rest[i+1:]
	}
	var err error
	if l.vhost, err = url.PathUnescape(vhost); err != nil {
		return l, fmt.Errorf("rabbitmq: virtual host %q in the URL: percent-encode what is special in it", vhost)
	}
	if l.vhost == "" {
		l.vhost = "/"
	}
	for host := range strings.SplitSeq(hosts, ",") {
		server, err := l.server(host)
		if err != nil {
			return l, err
		}
		l.servers = append(l.servers, server)
	}
	return l, nil
}

// server returns host:port for a host, with the scheme's default port if there is none.
func (l location) server(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil { // probably without a port
		host, port = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]"), "5672"
		if l.encrypted {
			port = "5671"
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("rabbitmq: %q in the URL is not a host, or host:port", address)
	}
	return net.JoinHostPort(host, port), nil
}

func list(to *[]string) option {
	return func(v string) error { *to = strings.Split(v, ","); return nil }
}
