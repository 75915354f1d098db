package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/address"
)

// Open returns a Publisher for a URL whose fragment may contain options, which take precedence over cfg:
//
//	https://partner.example/hooks/orders?tenant=7#secret_file=/etc/orders.secret&timeout=5s
//
// The part before the # is sent to the receiver, including its query. Open does not connect.
func Open(address string, cfg Config) (*Publisher, error) {
	target, cfg, err := ParseURL(address, cfg)
	if err != nil {
		return nil, err
	}
	cfg.URL = target
	return New(cfg)
}

// ParseURL reads the options in the URL for Open into cfg and returns the URL without options. The options are secret
// (comma-separated if several), secret_file, binary, authorization (the header), timeout, concurrency,
// max_message_bytes, plain_http, allow (addresses or prefixes, comma-separated), ca, cert, key and keep_attempts (0s
// disables the attempt log). The error lists every option that is unknown or invalid.
func ParseURL(address string, cfg Config) (string, Config, error) {
	target, fragment, _ := strings.Cut(address, "#")
	settings := cfg.settings()
	var faults []error
	for pair := range strings.SplitSeq(fragment, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		if !ok { // the pair may be a secret without its name
			faults = append(faults, errors.New("webhook: a URL option has no value; write #name=value&name=value"))
			continue
		}
		set, ok := settings[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(settings)), ", ")
			faults = append(faults, fmt.Errorf("webhook: unknown URL option %q; known are %s", name, known))
			continue
		}
		value, err := url.PathUnescape(value) // keeps plus signs, which base64 contains
		if err == nil {
			err = set(value)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("webhook: URL option %s: %w", name, err))
		}
	}
	return target, cfg, errors.Join(faults...)
}

// settings returns the setter of each option.
func (c *Config) settings() map[string]func(v string) error {
	return map[string]func(v string) error{
		"secret":      func(v string) error { c.Secrets = strings.Split(v, ","); return nil },
		"secret_file": address.Text(&c.SecretFile), "ca": address.Text(&c.CAFile), "cert": address.Text(&c.CertFile), "key": address.Text(&c.KeyFile),
		"binary": address.Bool(&c.Binary), "plain_http": address.Bool(&c.PlainHTTP),
		"concurrency": address.Number(&c.Concurrency), "max_message_bytes": address.Number(&c.MaxMessageBytes),
		"timeout": address.Duration(&c.Timeout),
		"keep_attempts": func(v string) error {
			err := address.Duration(&c.KeepAttempts)(v)
			if err == nil && c.KeepAttempts == 0 {
				c.Attempts = nil
			}
			return err
		},
		"authorization": func(v string) error {
			c.Header = c.Header.Clone()
			if c.Header == nil {
				c.Header = http.Header{}
			}
			c.Header.Set("Authorization", v)
			return nil
		},
		"allow": func(v string) (err error) { c.Allow, err = prefixes(v); return err },
	}
}

// prefixes parses comma-separated addresses and prefixes.
func prefixes(v string) (all []netip.Prefix, err error) {
	for one := range strings.SplitSeq(v, ",") {
		prefix, err := netip.ParsePrefix(one)
		if addr, isAddr := netip.ParseAddr(one); err != nil && isAddr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a prefix such as 10.1.2.0/24", one)
		}
		all = append(all, prefix)
	}
	return all, nil
}

// readSecrets decodes the secrets of a configuration, first Secrets, then those of SecretFile.
func (c Config) readSecrets() ([]secret, error) {
	all := slices.Clone(c.Secrets)
	if c.SecretFile != "" {
		content, err := os.ReadFile(c.SecretFile)
		if err != nil {
			return nil, fmt.Errorf("webhook: read the secrets: %w", err)
		}
		all = append(all, strings.Fields(string(content))...)
	}
	return parseSecrets(all)
}

// readTLS returns TLS with the certificates of the configuration's files.
func (c Config) readTLS() (*tls.Config, error) {
	t := c.TLS.Clone()
	if t == nil {
		t = &tls.Config{}
	}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("webhook: read the authorities: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("webhook: %s has no certificate in PEM form", c.CAFile)
		}
	}
	if c.CertFile != "" && c.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("webhook: read our certificate: %w", err)
		}
		t.Certificates = append(t.Certificates[:len(t.Certificates):len(t.Certificates)], pair)
	}
	return t, nil
}
