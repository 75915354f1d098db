package config

import (
	"regexp"
	"slices"
	"strings"
)

// isSecret says whether an option of a broker is a secret. Webhooks have the option secret.
func isSecret(option string) bool { return option == "secret" || slices.Contains(secretOptions, option) }

// userInfo matches a password in a URL.
var userInfo = regexp.MustCompile(`://[^/?#@]*:[^/?#]*@`)

// hasSecrets says whether a URL or an option has a password or another secret.
func (c *Config) hasSecrets() bool {
	for _, s := range c.AllStores() {
		for _, text := range []string{s.URL, s.ListenURL} {
			if s.Password != "" || userInfo.MatchString(text) || strings.Contains(text, "password=") {
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
		if value != "" && isSecret(name) {
			return true
		}
	}
	b, err := BrokerOf(p.URL)
	if err != nil {
		return false
	}
	_, options := b.OptionsIn(p.URL)
	return slices.ContainsFunc(options, func(o Option) bool { return o.Value != "" && isSecret(o.Name) })
}
