package rabbitmqbroker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/address"
)

// option sets the value of a URL option.
type option = func(value string) error

// options returns the setters of the URL options of a Connection.
func (c *Connection) options() map[string]option {
	return map[string]option{
		"name": address.Text(&c.Name), "user": address.Text(&c.User), "password": address.Text(&c.Password), "external": address.Bool(&c.External),
		"allow_plaintext": address.Bool(&c.AllowPlaintext),
		"ca":              address.Text(&c.CAFile), "cert": address.Text(&c.CertFile), "key": address.Text(&c.KeyFile), "heartbeat": address.Duration(&c.Heartbeat),
	}
}

// location is a URL without its options.
type location struct {
	encrypted      bool
	servers        []string // host:port
	vhost          string
	user, password string
}

// parse sets the options of a URL, and returns the part before them. Errors in that part are for Open to report.
func (c *Connection) parse(text string, options map[string]option) (string, error) {
	base, err := address.Options("rabbitmq", text, options)
	if err != nil {
		return base, err
	}
	if at, err := parseLocation(base); err == nil && !at.encrypted && !c.AllowPlaintext && c.Password+at.password != "" {
		return base, address.CheckPlaintext("rabbitmq", at.servers, "use amqps://")
	}
	return base, nil
}

// parseLocation parses amqp://user:password@host:port,other:port/vhost. Its errors do not contain the password.
func parseLocation(text string) (location, error) {
	u, err := address.Parse(text)
	if err != nil {
		return location{}, fmt.Errorf("rabbitmq: %w", err)
	}
	if u.Scheme != "amqp" && u.Scheme != "amqps" {
		return location{}, errors.New("rabbitmq: the URL does not begin with amqp:// or amqps://")
	}
	l := location{encrypted: u.Scheme == "amqps", user: u.User, password: u.Password}
	vhost := strings.TrimPrefix(u.Rest, "/")
	if l.vhost, err = url.PathUnescape(vhost); err != nil {
		return l, fmt.Errorf("rabbitmq: virtual host %q in the URL: percent-encode what is special in it", vhost)
	}
	if l.vhost == "" {
		l.vhost = "/"
	}
	for _, host := range u.Hosts {
		server, err := l.server(host)
		if err != nil {
			return l, err
		}
		l.servers = append(l.servers, server)
	}
	return l, nil
}

// server returns host:port for a host, with the scheme's default port if there is none.
func (l location) server(from string) (string, error) {
	host, port, err := net.SplitHostPort(from)
	if err != nil { // probably without a port
		host, port = strings.TrimSuffix(strings.TrimPrefix(from, "["), "]"), "5672"
		if l.encrypted {
			port = "5671"
		}
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || host == "" || strings.Contains(host, ":") && net.ParseIP(host) == nil {
		return "", fmt.Errorf("rabbitmq: %q in the URL is not a host, or host:port", from)
	}
	return net.JoinHostPort(host, port), nil
}
