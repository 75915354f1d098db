package kafkabroker

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settings are the setters of URL options, by name.
type settings map[string]func(v string) error

// parse sets the options and credentials of a URL and returns the URL without them.
func (s settings) parse(address string, c *Connection) (string, error) {
	maps.Copy(s, settings{
		"client_id": text(&c.ClientID), "user": text(&c.User), "password": text(&c.Password), "sasl": text(&c.SASL),
		"tls": boolean(&c.Encrypt), "ca": text(&c.CAFile), "cert": text(&c.CertFile), "key": text(&c.KeyFile),
	})
	servers, query, _ := strings.Cut(address, "?")
	scheme, hosts, ok := strings.Cut(servers, "://")
	if !ok {
		scheme, hosts = "kafka", servers
	}
	userinfo := ""
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		userinfo, hosts = hosts[:at], hosts[at+1:]
	}
	servers = scheme + "://" + strings.TrimSuffix(hosts, "/") // without credentials
	fault := func(err error) error { return fmt.Errorf("kafka: URL %s: %w", servers, err) }
	switch scheme {
	case "kafka":
	case "kafkas":
		c.Encrypt = true
	default:
		return "", fault(fmt.Errorf("scheme %q; use kafka:// or kafkas://", scheme))
	}
	if userinfo != "" {
		user, password, _ := strings.Cut(userinfo, ":")
		var err1, err2 error
		c.User, err1 = url.PathUnescape(user)
		c.Password, err2 = url.PathUnescape(password)
		if err1 != nil || err2 != nil {
			return "", fault(errors.New("user and password: % is followed by two hexadecimal digits; write it as %25"))
		}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", fault(errors.New("options: % is followed by two hexadecimal digits, and options are separated by &"))
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		set, ok := s[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(s)), ", ")
			faults = append(faults, fmt.Errorf("kafka: unknown URL option %q; known are %s", name, known))
			continue
		}
		if err := set(values.Get(name)); err != nil {
			faults = append(faults, fmt.Errorf("kafka: URL option %s: %w", name, err))
		}
	}
	return servers, errors.Join(faults...)
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

func text(to *string) func(string) error {
	return func(v string) error { *to = v; return nil }
}

func boolean(to *bool) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

func number(to *int) func(string) error {
	return func(v string) (err error) {
		if *to, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		return nil
	}
}

func duration(to *time.Duration) func(string) error {
	return func(v string) (err error) {
		if *to, err = time.ParseDuration(v); err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 2m", v)
		}
		return nil
	}
}

func list(to *[]string) func(string) error {
	return func(v string) error { *to = strings.Split(v, ","); return nil }
}
