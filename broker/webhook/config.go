package webhook

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// The defaults of Config.
const (
	DefaultTimeout     = 15 * time.Second
	DefaultConcurrency = 16
)

// Config configures a Publisher. URL and Secrets are required; the zero value of every other field means its default.
type Config struct {
	// URL is where messages go. It is https, unless PlainHTTP is set.
	URL string
	// Secrets sign the messages, each with a signature of its own, so that a receiver may know the old or the new one while
	// they are being exchanged. A secret is "whsec_" and the base64 of 24 to 64 random bytes.
	Secrets []string
	// Binary sends CloudEvents in binary mode.
	Binary bool
	// Header is added to every request, for an Authorization for example. It cannot replace what the package sets.
	Header http.Header
	// Timeout bounds a request, from connecting to the end of the answer. Default: 15 s.
	Timeout time.Duration
	// Concurrency is the number of requests at once, over all calls. Default: 16.
	Concurrency int
	// MaxMessageBytes is the size (postrider.Message.Size) above which a message is dead; 0 means no limit.
	MaxMessageBytes int
	// PlainHTTP allows URLs without encryption.
	PlainHTTP bool
	// Allow lists addresses beyond the public ones to which connections may go, e.g. 10.1.2.0/24 or 127.0.0.1/32.
	Allow []netip.Prefix
	// TLS configures encryption. Default: certificates are verified against the system's authorities.
	TLS *tls.Config
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	return c
}

// validate names every fault of a configuration with defaults, and returns its secrets decoded.
func (c Config) validate() ([]secret, error) {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("webhook: "+format, args...)) }
	switch u, err := url.Parse(c.URL); {
	case err != nil || u.Host == "":
		fault("URL is not one of the form https://host/path") // the error of Parse would repeat a password in it
	case u.User != nil:
		fault("URL has a user in it; put an Authorization into Header instead")
	case u.Scheme == "http" && !c.PlainHTTP:
		fault("URL %s is not encrypted; use https, or set PlainHTTP", c.URL)
	case u.Scheme != "https" && u.Scheme != "http":
		fault("URL %s: scheme %q; use https", c.URL, u.Scheme)
	}
	if c.TLS != nil && c.TLS.InsecureSkipVerify {
		fault("TLS does not verify certificates; add the authority to TLS.RootCAs instead")
	}
	if c.Timeout < 0 {
		fault("timeout is %s; give more than 0", c.Timeout)
	}
	if c.Concurrency < 1 {
		fault("concurrency is %d; give 1 or more", c.Concurrency)
	}
	if c.MaxMessageBytes < 0 {
		fault("largest message is %d bytes; give 0 for no limit, or more", c.MaxMessageBytes)
	}
	for name := range c.Header {
		if isOurs(name) {
			fault("header %s is set by the webhook itself", name)
		}
	}
	secrets, err := parseSecrets(c.Secrets)
	if err != nil {
		faults = append(faults, err)
	}
	return secrets, errors.Join(faults...)
}

// isOurs says whether a header is one that requests have anyway.
func isOurs(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "Content-Type", "Idempotency-Key", headerID, headerTimestamp, headerSignature, "User-Agent":
		return true
	default:
		return strings.HasPrefix(name, "Ce-")
	}
}
