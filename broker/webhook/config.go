package webhook

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider"
)

// Defaults of Config.
const (
	DefaultTimeout      = 15 * time.Second
	DefaultConcurrency  = 16
	DefaultKeepAttempts = 7 * 24 * time.Hour
)

// Config configures a Publisher. URL and Secrets, or SecretFile, are required; the zero value of every other field means
// its default.
type Config struct {
	// URL is the receiver's URL. It must be https, unless PlainHTTP is set.
	URL string
	// Secrets sign the messages, each with its own signature, so that a receiver accepts the old or the new secret
	// during a rotation. A secret is "whsec_" and the base64 of 24 to 64 random bytes. SecretFile names a file with more
	// secrets, one per line; New reads it.
	Secrets    []string
	SecretFile string
	// Binary sends CloudEvents in binary mode.
	Binary bool
	// Header is added to every request, e.g. for Authorization. It cannot contain headers that the package sets.
	Header http.Header
	// Timeout is the time limit of a request, from connecting to the end of the response. Default: 15 s.
	Timeout time.Duration
	// Concurrency is the maximum number of concurrent requests, over all calls. Default: 16.
	Concurrency int
	// MaxMessageBytes is the largest size (postrider.Message.Size) that is sent. Publish returns postrider.Dead for
	// larger messages. 0 means no limit.
	MaxMessageBytes int
	// PlainHTTP allows http URLs, without encryption.
	PlainHTTP bool
	// Allow lists non-public addresses to which connections are allowed, e.g. 10.1.2.0/24 or 127.0.0.1/32.
	Allow []netip.Prefix
	// TLS configures encryption. Default: certificates are verified against the system's CAs. CAFile, CertFile and
	// KeyFile are PEM files: the CAs to use instead, and the client certificate and key. New reads them.
	TLS                       *tls.Config
	CAFile, CertFile, KeyFile string

	// Attempts, if not nil, records every attempt for KeepAttempts, under the name Relay, which is then required.
	// Attempts are written in batches in the background; deliveries do not wait for it. The log lacks the last attempts
	// before a crash, and attempts that could not be written. Default of KeepAttempts: 7 days.
	Attempts     postrider.AttemptLog
	Relay        string
	KeepAttempts time.Duration
	// Logger logs a warning when attempts could not be recorded. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Concurrency = cmp.Or(c.Concurrency, DefaultConcurrency)
	c.KeepAttempts = cmp.Or(c.KeepAttempts, DefaultKeepAttempts)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// validate returns all errors of a configuration that has its defaults set, except those of secrets and files.
func (c Config) validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf("webhook: "+format, args...)) }
	switch u, err := url.Parse(c.URL); {
	case err != nil || u.Host == "":
		fault("URL is not one of the form https://host/path") // the error of Parse could contain a password
	case u.User != nil:
		fault("URL has a user in it; put an Authorization into Header instead (authorization in the options)")
	case u.Scheme == "http" && !c.PlainHTTP:
		fault("URL http://%s… is not encrypted; use https, or set PlainHTTP (plain_http=true in the URL)", u.Host)
	case u.Scheme != "https" && u.Scheme != "http":
		fault("URL has scheme %q; use https", u.Scheme)
	}
	if c.TLS != nil && c.TLS.InsecureSkipVerify {
		fault("TLS does not verify certificates; add the authority to TLS.RootCAs instead")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		fault("our certificate and its key come together; give both files or none")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"timeout", c.Timeout}, {"time to keep attempts", c.KeepAttempts}} {
		if d.value < 0 {
			fault("%s is %s; give more than 0", d.name, d.value)
		}
	}
	if c.Concurrency < 1 {
		fault("concurrency is %d; give 1 or more", c.Concurrency)
	}
	if c.MaxMessageBytes < 0 {
		fault("largest message is %d bytes; give 0 for no limit, or more", c.MaxMessageBytes)
	}
	if c.Attempts != nil && c.Relay == "" {
		fault("attempts are kept under the name of a relay; set Relay")
	}
	for _, prefix := range c.Allow {
		if !prefix.IsValid() {
			fault("Allow has a prefix that is none; make them with netip.ParsePrefix")
		}
	}
	return errors.Join(append(faults, c.headerFaults()...)...)
}

func (c Config) headerFaults() (faults []error) {
	for name, values := range c.Header {
		switch {
		case isOurs(name):
			faults = append(faults, fmt.Errorf("webhook: header %s is set by the webhook itself", name))
		case !isToken(name) || strings.ContainsFunc(strings.Join(values, ""), isControl): // a value may be a password
			faults = append(faults, fmt.Errorf("webhook: header %q has characters that a header cannot have", name))
		}
	}
	return faults
}

// isOurs reports whether this package or net/http sets the header.
func isOurs(name string) bool {
	switch name = http.CanonicalHeaderKey(name); name {
	case "Content-Type", "Idempotency-Key", headerID, headerTimestamp, headerSignature, "User-Agent",
		"Host", "Content-Length", "Transfer-Encoding", "Trailer", "Connection":
		return true
	default:
		return strings.HasPrefix(name, "Ce-")
	}
}

// isToken reports whether name is a valid header name.
func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`()<>@,;:\"/[]?={}`, r)
	})
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
