package config

import (
	"regexp"
	"slices"
	"strings"
)

// secretOptions are the options of brokers that are secrets.
var secretOptions = []string{"authorization", "password", "secret", "sentinel_password", "token"}

// userInfo matches a password in a URL.
var userInfo = regexp.MustCompile(`://[^/?#@]*:[^/?#]*@`)

// hasSecrets says whether a URL or an option has a password or another secret.
func (c *Config) hasSecrets() bool {
	for _, s := range c.AllStores() {
		for _, text := range []string{s.URL, s.ListenURL} {
			if userInfo.MatchString(text) || strings.Contains(text, "password=") {
				return true
			}
		}
	}
	return slices.ContainsFunc(c.Relays, func(r Relay) bool { return r.Publisher.hasSecrets() })
}

func (p Publisher) hasSecrets() bool {
	if userInfo.MatchString(p.URL) {
		return true
	}
	for name, value := range p.Options {
		if value != "" && slices.Contains(secretOptions, name) {
			return true
		}
	}
	b, err := BrokerOf(p.URL)
	if err != nil {
		return false
	}
	_, options := b.OptionsIn(p.URL)
	return slices.ContainsFunc(options, func(o Option) bool { return o.Value != "" && slices.Contains(secretOptions, o.Name) })
}
