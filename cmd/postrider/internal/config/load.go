package config

import (
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/token"
)

// Load reads a file ("" for none), applies the environment (KEY=value pairs) and checks the result. storeChosen says that
// a flag names the store: a store from the environment is then ignored if the file has several. Warnings name likely
// mistakes that must not stop a process. Errors: *Error with every error found.
func Load(file string, environ []string, storeChosen bool) (c *Config, warnings []string, err error) {
	var text []byte
	public := false
	if file != "" {
		if text, public, err = readFile(file); err != nil {
			return nil, nil, &Error{[]Fault{{Origin: "read configuration", Text: err.Error()}}}
		}
	}
	c, warnings, err = read(file, text, environ, storeChosen)
	if err == nil && public && c.secrets {
		warnings = append(warnings, fmt.Sprintf("configuration %s has a password or another secret, and every user of this host can read it; "+
			"take the right to read from others (chmod o-r), or put the secret into the environment or a file of its own", file))
	}
	return c, warnings, err
}

// maxFile is the maximum size of a configuration, in bytes.
const maxFile = 1 << 20

// readFile reads a configuration, and reports whether users other than its owner and group can read it.
func readFile(name string) (text []byte, public bool, err error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, false, err
	}
	if text, err = io.ReadAll(io.LimitReader(file, maxFile+1)); err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s is larger than 1 MiB; is it a configuration?", name)
	}
	return text, runtime.GOOS != "windows" && info.Mode()&0o004 != 0, err
}

// Parse is Load for a text; file is its name in errors.
func Parse(file string, text []byte, environ []string) (*Config, []string, error) {
	return read(file, text, environ, false)
}

func read(file string, text []byte, environ []string, storeChosen bool) (*Config, []string, error) {
	c := &Config{file: file}
	d := &decoder{file: file, faults: &Error{}, positions: map[string]*token.Position{}, storeChosen: storeChosen}
	d.decode(text, c)
	c.secrets = c.hasSecrets()
	var warnings []string
	d.variables, warnings = overlay(c, environ, d.faults)
	d.readSecrets(c)
	d.check(c)
	if err := d.faults.orNil(); err != nil {
		return nil, warnings, err
	}
	return c, warnings, nil
}

// File is the file that the configuration came from, "" for none.
func (c *Config) File() string { return c.file }

// AllStores returns the stores from both Store and Stores.
func (c *Config) AllStores() []Store {
	if c.Store.URL != "" {
		return append([]Store{c.Store}, c.Stores...)
	}
	return c.Stores
}

// StoreOf returns the store that a relay refers to. Parse has checked that it exists if there are any stores.
func (c *Config) StoreOf(r Relay) (Store, bool) {
	for _, s := range c.AllStores() {
		if r.Store == "" || s.Name == r.Store {
			return s, true
		}
	}
	return Store{}, false
}

// check reports errors that involve more than one value: missing values, duplicates, dangling references, contradictions.
func (d *decoder) check(c *Config) {
	d.checkStores(c)
	for at, address := range map[string]string{"http.listen": c.HTTP.Listen, "telemetry.metrics": c.Telemetry.Metrics} {
		if address == "" {
			continue
		}
		if err := CheckListen(address); err != nil {
			d.at(at, "%v", err)
		}
	}
	names := map[string]bool{}
	for i, r := range c.Relays {
		at := fmt.Sprintf("relays[%d]", i)
		if r.Name == "" {
			d.at(at, "name is missing; it names the relay's cursor in the database, e.g. to-nats")
		} else if names[r.Name] {
			d.at(at+".name", "relay %q stands here twice; give each a name of its own", r.Name)
		}
		names[r.Name] = true
		d.checkRelay(at, r, c)
	}
}

// CheckListen returns an error for an invalid listen address.
func CheckListen(address string) error {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		if _, err := strconv.ParseUint(address, 10, 16); err == nil {
			return fmt.Errorf("%q is not host:port; for every address of this host write :%s", address, address)
		}
		return fmt.Errorf("%q is not host:port; write e.g. :8080 or 127.0.0.1:8080", address)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil && (port == "" || strings.Trim(port, "0123456789+-") == "") {
		return fmt.Errorf("%q has no port from 0 to 65535; write e.g. :8080 or 127.0.0.1:8080", address)
	}
	return nil
}

// onlyVariables drops the environment's store if the file has several stores and a flag has chosen one; without a flag it
// reports an error that names the variables.
func (d *decoder) onlyVariables(c *Config) {
	if _, inFile := d.positions["store"]; inFile || len(c.Stores) == 0 || !c.Store.given() {
		return
	}
	c.Store = Store{}
	if d.storeChosen {
		return
	}
	for _, path := range slices.Sorted(maps.Keys(d.variables)) {
		if strings.HasPrefix(path, "store.") {
			d.at(path, "the file has several stores (%s), and this is none of them; unset the variable, or choose a store with --store",
				storeNames(c.Stores))
		}
	}
}

func (d *decoder) checkStores(c *Config) {
	d.onlyVariables(c)
	if c.Store.given() && c.Store.URL == "" {
		d.at("store", "url is missing, e.g. sqlite:///var/lib/shop/shop.db or postgres://user@host/db")
	}
	if c.Store.URL != "" && len(c.Stores) > 0 {
		d.at("stores", "give either store or stores; move the single one into the list")
	}
	names := map[string]bool{}
	for i, s := range c.Stores {
		at := fmt.Sprintf("stores[%d]", i)
		if s.Name == "" {
			d.at(at, "name is missing; relays refer to a store by its name")
		} else if names[s.Name] {
			d.at(at+".name", "store %q stands here twice", s.Name)
		}
		if s.URL == "" {
			d.at(at, "url is missing, e.g. sqlite:///var/lib/shop/shop.db or postgres://user@host/db")
		}
		names[s.Name] = true
	}
}

func (d *decoder) checkRelay(at string, r Relay, c *Config) {
	if r.Publisher.URL == "" {
		d.at(at+".publisher", "is missing, e.g. publisher: nats://127.0.0.1:4222?stream=ORDERS")
	} else {
		r.Publisher.Check(func(where, text string) { d.at(at+".publisher."+where, "%s", text) })
	}
	stores := c.AllStores()
	if len(stores) > 1 && r.Store == "" {
		d.at(at, "store is missing; allowed: %s", storeNames(stores))
	} else if _, ok := c.StoreOf(r); !ok && r.Store != "" {
		d.at(at+".store", "there is no store %q; allowed: %s", r.Store, storeNames(stores))
	}
	for i, pattern := range r.Topics {
		if pattern == "" {
			d.at(fmt.Sprintf("%s.topics[%d]", at, i), `an empty pattern takes nothing; write a topic, with * for any text`)
		}
	}
	if r.BackoffBase > 0 && r.BackoffMax > 0 && r.BackoffMax < r.BackoffBase {
		d.at(at+".backoff_max", "%s is below backoff_base (%s)", r.BackoffMax, r.BackoffBase)
	}
	if r.Burst > 0 && r.MaxRate == 0 {
		d.at(at+".burst", "is nothing without max_rate")
	}
	for i, p := range r.Policies {
		d.checkPolicy(fmt.Sprintf("%s.policies[%d]", at, i), p)
	}
	if r.PollMin > 0 && r.PollMax > 0 && r.PollMax < r.PollMin {
		d.at(at+".poll_max", "%s is below poll_min (%s)", r.PollMax, r.PollMin)
	}
}

func (d *decoder) checkPolicy(at string, p Policy) {
	if slices.Contains(p.Types, "") {
		d.at(at+".types", `an empty pattern takes nothing; write a type, with * for any text`)
	}
	if slices.Contains(p.DiscardErrors, "") {
		d.at(at+".discard_errors", "every error contains an empty text; write a part of the error")
	}
	switch {
	case p.Backoff == "fixed" && p.BackoffBase == 0:
		d.at(at+".backoff", "fixed needs backoff_base")
	case p.Backoff == "fixed" && p.BackoffMax > 0:
		d.at(at+".backoff_max", "is nothing with backoff: fixed")
	case p.BackoffBase > 0 && p.BackoffMax > 0 && p.BackoffMax < p.BackoffBase:
		d.at(at+".backoff_max", "%s is below backoff_base (%s)", p.BackoffMax, p.BackoffBase)
	}
}

func storeNames(stores []Store) string {
	if len(stores) == 0 {
		return "none are configured"
	}
	names := make([]string, len(stores))
	for i, s := range stores {
		names[i] = s.Name
	}
	return strings.Join(names, ", ")
}

// at reports an error at the position of a key, or of its nearest ancestor in the file.
func (d *decoder) at(path, format string, args ...any) {
	f := Fault{Origin: d.file, Path: path, Text: fmt.Sprintf(format, args...)}
	if f.Origin == "" {
		f.Origin = "configuration"
	}
	if variable, ok := d.variables[path]; ok {
		f.Origin = "environment " + variable
		d.faults.Faults = append(d.faults.Faults, f)
		return
	}
	for p := path; p != ""; p = parent(p) {
		if pos, ok := d.positions[p]; ok {
			f.Line, f.Column = pos.Line, pos.Column
			break
		}
	}
	d.faults.Faults = append(d.faults.Faults, f)
}

// parent removes the last key or index from a path.
func parent(p string) string {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == '.' || p[i] == '[' {
			return p[:i]
		}
	}
	return ""
}
