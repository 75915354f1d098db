package kafkabroker

import (
	"fmt"
	"maps"
	"strings"

	"github.com/postrider/postrider/internal/address"
)

// settings are the setters of URL options, by name.
type settings map[string]func(v string) error

// parse sets the options and credentials of a URL and returns the URL without them.
func (s settings) parse(from string, c *Connection) (string, error) {
	maps.Copy(s, settings{
		"client_id": address.Text(&c.ClientID), "user": address.Text(&c.User), "password": address.Text(&c.Password), "sasl": address.Text(&c.SASL),
		"tls": address.Bool(&c.Encrypt), "ca": address.Text(&c.CAFile), "cert": address.Text(&c.CertFile), "key": address.Text(&c.KeyFile),
		"allow_plaintext": address.Bool(&c.AllowPlaintext),
	})
	if !strings.Contains(from, "://") {
		from = "kafka://" + from
	}
	u, err := address.Parse(from)
	if err != nil {
		return "", fmt.Errorf("kafka: %w", err)
	}
	servers := address.Servers(from)
	switch u.Scheme {
	case "kafka":
	case "kafkas":
		c.Encrypt = true
	default:
		return "", fmt.Errorf("kafka: URL %s: scheme %q; use kafka:// or kafkas://", servers, u.Scheme)
	}
	if u.Named {
		c.User, c.Password = u.User, u.Password
	}
	if _, err = address.Options("kafka", from, s); err != nil {
		return servers, err
	}
	if d := c.withDefaults(); d.SASL == SASLPlain && !d.Encrypt && !d.AllowPlaintext {
		err = address.CheckPlaintext("kafka", u.Hosts, "use kafkas://, or SASL with SCRAM")
	}
	return servers, err
}

// brokersOf returns the host:port of each broker in a URL returned by parse.
func brokersOf(servers string) ([]string, error) {
	_, hosts, _ := strings.Cut(servers, "://")
	var brokers []string
	for host := range strings.SplitSeq(hosts, ",") {
		if host = strings.TrimSpace(host); host == "" {
			return nil, fmt.Errorf("kafka: URL %s: a broker has no name; write kafka://host:9092,other:9092", servers)
		}
		brokers = append(brokers, withPort(host))
	}
	return brokers, nil
}
