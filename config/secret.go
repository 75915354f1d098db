package config

import (
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

// maxSecretBytes limits the size of a file that holds one secret.
const maxSecretBytes = 64 << 10

// secretOptions are the publishers' options that hold a secret. Each can also be given as the name of a file, with _file appended,
// as container platforms provide secrets. Webhooks have secret_file as an option of their own.
var secretOptions = []string{"authorization", "password", "sentinel_password", "token"}

// fileOption returns the option whose value is in the file that option name names, and whether there is one.
func (b Broker) fileOption(name string) (option string, ok bool) {
	option, ok = strings.CutSuffix(name, "_file")
	return option, ok && slices.Contains(b.Options, option) && slices.Contains(secretOptions, option)
}

// ReadSecret reads a file that holds one secret; line breaks at its end are not part of it.
func ReadSecret(file string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretBytes+1))
	switch secret := strings.TrimRight(string(text), "\r\n"); {
	case err != nil:
		return "", err
	case len(text) > maxSecretBytes:
		return "", fmt.Errorf("%s is larger than %d bytes", file, maxSecretBytes)
	case secret == "":
		return "", fmt.Errorf("%s is empty", file)
	default:
		return secret, nil
	}
}

// readSecrets reads the files that hold secrets.
func (d *decoder) readSecrets(c *Config) {
	stores := []*Store{&c.Store}
	paths := []string{"store"}
	for i := range c.Stores {
		stores, paths = append(stores, &c.Stores[i]), append(paths, fmt.Sprintf("stores[%d]", i))
	}
	for i, s := range stores {
		d.readSecret(paths[i]+".url", &s.URL, &s.URLFile)
		d.readSecret(paths[i]+".password", &s.Password, &s.PasswordFile)
		d.readSecret(paths[i]+".listen_url", &s.ListenURL, &s.ListenURLFile)
	}
	for i := range c.Relays {
		p, path := &c.Relays[i].Publisher, fmt.Sprintf("relays[%d].publisher", i)
		d.readSecret(path+".url", &p.URL, &p.URLFile)
		d.readOptions(path+".options", p)
	}
}

// readSecret replaces the name of a file by its content. path is the key of the secret itself.
func (d *decoder) readSecret(path string, to, file *string) {
	if *file == "" {
		return
	}
	if *to != "" {
		d.at(path+"_file", "there is also %s; give one of them", path[strings.LastIndexByte(path, '.')+1:])
		return
	}
	secret, err := ReadSecret(*file)
	if err != nil {
		d.at(path+"_file", "%v", err)
	}
	*to, *file = secret, ""
}

// readOptions is readSecret for the options of a publisher.
func (d *decoder) readOptions(path string, p *Publisher) {
	b, err := BrokerOf(p.URL)
	if err != nil {
		return // it is reported with the URL
	}
	options := maps.Clone(p.Options)
	for _, name := range slices.Sorted(maps.Keys(p.Options)) {
		option, ok := b.fileOption(name)
		if !ok {
			continue
		}
		secret, file := options[option], options[name]
		d.readSecret(join(path, option), &secret, &file)
		delete(options, name)
		options[option] = secret
	}
	p.Options = options
}

// isSecret says whether an option of a broker is a secret. Webhooks have the option secret.
func isSecret(option string) bool {
	return option == "secret" || slices.Contains(secretOptions, option)
}

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
