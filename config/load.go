package config

import (
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/token"
)

// Load reads the configuration of a program from a file ("" for none) and the environment. Likely mistakes that must not stop a program are
// logged with slog.Default. Errors: *Error with every error found.
func Load(file string) (*Config, error) {
	c, warnings, err := Read(file, os.Environ(), false)
	for _, w := range warnings {
		slog.Warn("postrider: " + w)
	}
	return c, err
}

// Read is Load with an environment of KEY=value pairs. storeChosen says that a flag names the store: a store from the environment is then
// ignored if the file has several. Likely mistakes are returned as warnings.
func Read(file string, environ []string, storeChosen bool) (c *Config, warnings []string, err error) {
	var text []byte
	public := false
	if file != "" {
		if text, public, err = readFile(file); err != nil {
			return nil, nil, &Error{[]Fault{{Origin: "read configuration", Text: err.Error()}}}
		}
	}
	d := decoder{storeChosen: storeChosen}
	c, warnings, err = d.read(file, text, environ)
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

// Parse is Read for a text; file is its name in errors.
func Parse(file string, text []byte, environ []string) (*Config, []string, error) {
	d := decoder{}
	return d.read(file, text, environ)
}

// read reads a text and the environment, and checks the result.
func (d *decoder) read(file string, text []byte, environ []string) (*Config, []string, error) {
	c := &Config{file: file, handled: map[string]Fault{}}
	d.file, d.faults, d.positions = file, &Error{}, map[string]*token.Position{}
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

// CheckPublishers returns an error if a relay has no publisher, which the binary needs. Errors: *Error.
func (c *Config) CheckPublishers() error {
	e := &Error{}
	for i, r := range c.Relays {
		if r.Publisher.URL == "" {
			e.Faults = append(e.Faults, cmp.Or(c.handled[r.Name], Fault{Origin: "configuration", Path: fmt.Sprintf("relays[%d].publisher", i), Text: "is missing"}))
		}
	}
	return e.orNil()
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
		d.checkName(names, at, r.Name, "it names the relay's cursor in the database, e.g. to-nats")
		d.checkRelay(at, r, c)
	}
	for i, r := range c.Consumers {
		at := fmt.Sprintf("consumers[%d]", i)
		d.checkName(names, at, r.Name, "it names the consumer's progress in the database, e.g. order-view")
		d.checkRetries(at, r.BackoffBase, r.BackoffMax, r.Policies)
	}
}

// checkName reports a name that is missing, and one that is among names already. use says what it is for.
func (d *decoder) checkName(names map[string]bool, at, name, use string) {
	switch {
	case name == "":
		d.at(at, "name is missing; %s", use)
	case names[name]:
		d.at(at+".name", "%q stands here twice; give each a name of its own", name)
	}
	names[name] = true
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
		d.checkName(names, at, s.Name, "relays refer to a store by its name")
		if s.URL == "" {
			d.at(at, "url is missing, e.g. sqlite:///var/lib/shop/shop.db or postgres://user@host/db")
		}
	}
}

func (d *decoder) checkRelay(at string, r Relay, c *Config) {
	if r.Publisher.URL == "" {
		c.handled[r.Name] = d.locate(at+".publisher", "is missing, e.g. publisher: nats://127.0.0.1:4222?stream=ORDERS; "+
			"relays with handlers run in programs")
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
	d.checkRetries(at, r.BackoffBase, r.BackoffMax, r.Policies)
	if r.Burst > 0 && r.MaxRate == 0 {
		d.at(at+".burst", "is nothing without max_rate")
	}
	if r.PollMin > 0 && r.PollMax > 0 && r.PollMax < r.PollMin {
		d.at(at+".poll_max", "%s is below poll_min (%s)", r.PollMax, r.PollMin)
	}
}

// checkRetries checks what relays and consumers say about retries.
func (d *decoder) checkRetries(at string, base, limit time.Duration, policies []Policy) {
	if base > 0 && limit > 0 && limit < base {
		d.at(at+".backoff_max", "%s is below backoff_base (%s)", limit, base)
	}
	for i, p := range policies {
		d.checkPolicy(fmt.Sprintf("%s.policies[%d]", at, i), p)
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
	d.faults.Faults = append(d.faults.Faults, d.locate(path, fmt.Sprintf(format, args...)))
}

// locate returns an error with its position.
func (d *decoder) locate(path, text string) Fault {
	f := Fault{Origin: d.file, Path: path, Text: text}
	if f.Origin == "" {
		f.Origin = "configuration"
	}
	if variable, ok := d.variables[path]; ok {
		f.Origin = "environment " + variable
		return f
	}
	for p := path; p != ""; p = parent(p) {
		if pos, ok := d.positions[p]; ok {
			f.Line, f.Column = pos.Line, pos.Column
			break
		}
	}
	return f
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
