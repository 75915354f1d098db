package relay

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/config"
)

// Flags are the flags of relay, which override the configuration.
type Flags struct {
	Publisher, Name string
	Topics, Only    []string
	concurrency     int
	listen, metrics string
	admin           string
	stopTimeout     time.Duration
}

// Check refuses flags with an empty value, which would otherwise count as not set: a shell variable may be unset, and no
// topics means all topics.
func (f *Flags) Check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	for _, list := range []struct {
		name   string
		values []string
		all    string
	}{{"topics", f.Topics, "for all topics"}, {"only", f.Only, "for all relays"}} {
		if changed(list.name) && (len(list.values) == 0 || slices.ContainsFunc(list.values, blank)) {
			return program.Usagef("--%s %q: there is an empty one; leave --%[1]s away %[3]s", list.name, strings.Join(list.values, ","), list.all)
		}
	}
	for name, value := range map[string]string{"name": f.Name, "publisher": f.Publisher} {
		if changed(name) && blank(value) {
			return program.Usagef("--%s is empty; leave it away, or give one", name)
		}
	}
	if changed("concurrency") && f.concurrency < 1 {
		return program.Usagef("--concurrency must be 1 or more, is %d", f.concurrency)
	}
	if changed("stop-timeout") && f.stopTimeout <= 0 {
		return program.Usagef("--stop-timeout must be positive, is %s", f.stopTimeout)
	}
	for name, address := range map[string]string{"listen": f.listen, "metrics": f.metrics} {
		if address == "" {
			continue
		}
		if err := config.CheckListen(address); err != nil {
			return program.Usagef("--%s: %v", name, err)
		}
	}
	return nil
}

func blank(text string) bool { return strings.TrimSpace(text) == "" }

// overrideRelays applies the flags to the configuration.
func (p commands) overrideRelays(cmd *cobra.Command, c *config.Config, f Flags) error {
	c.HTTP.Listen = cmp.Or(f.listen, c.HTTP.Listen)
	c.Telemetry.Metrics = cmp.Or(f.metrics, c.Telemetry.Metrics)
	c.StopTimeout = cmp.Or(f.stopTimeout, c.StopTimeout)
	c.Admin.Listen = cmp.Or(f.admin, c.Admin.Listen)
	if p.StoreFlag != "" || len(c.Relays) == 0 || len(c.AllStores()) == 0 {
		s, err := p.SelectStore(c)
		if err != nil {
			return err
		}
		if err := UseStore(c, s); err != nil {
			return err
		}
	}
	return f.Choose(p.Program, cmd, c)
}

// Choose applies the flags that choose and describe relays. Each has a publisher then.
func (f Flags) Choose(p *program.Program, cmd *cobra.Command, c *config.Config) error {
	if err := ChooseRelays(c, f.Only); err != nil {
		return err
	}
	if err := f.describe(p, cmd, c); err != nil {
		return err
	}
	return c.CheckPublishers()
}

// describe applies the flags that describe a relay to the configured relay, or to a new one.
func (f Flags) describe(p *program.Program, cmd *cobra.Command, c *config.Config) error {
	changed := cmd.Flags().Changed
	switch len(c.Relays) {
	case 0:
		f.Publisher = cmp.Or(f.Publisher, p.Env(config.Prefix+"PUBLISHER"))
		if file := p.Env(config.Prefix + "PUBLISHER_FILE"); f.Publisher == "" && file != "" {
			var err error
			if f.Publisher, err = config.ReadSecret(file); err != nil {
				return program.Usagef("POSTRIDER_PUBLISHER_FILE: %v", err)
			}
		}
		if f.Publisher == "" {
			return program.Usagef("no relay is described; give --publisher, POSTRIDER_PUBLISHER, or relays in --config")
		}
		b, err := config.BrokerOf(f.Publisher)
		if err != nil {
			return program.Usagef("publisher: %v", err)
		}
		c.Relays = []config.Relay{{Name: "to-" + b.Name}}
	case 1:
	default:
		if changed("publisher") || changed("name") || changed("topics") || changed("concurrency") {
			return program.Usagef("--publisher, --name, --topics and --concurrency describe one relay; the configuration has %d, choose one with --only", len(c.Relays))
		}
		return nil
	}
	r := &c.Relays[0]
	r.Name = cmp.Or(f.Name, r.Name)
	if f.Publisher != "" {
		r.Publisher = config.Publisher{URL: f.Publisher}
	}
	if f.Topics != nil {
		r.Topics = f.Topics
	}
	r.Concurrency = cmp.Or(f.concurrency, r.Concurrency)
	return nil
}

// UseStore makes s, the store that --store names, the store of every relay.
func UseStore(c *config.Config, s config.Store) error {
	if s.Name != "" { // a store of the configuration: only its own relays
		c.Relays = slices.DeleteFunc(c.Relays, func(r config.Relay) bool {
			of, _ := c.StoreOf(r)
			return of.Name != s.Name
		})
	} else if len(c.Stores) > 1 {
		return program.Usagef("the configuration has several stores; --store takes one of their names: %s", program.StoreNames(c.Stores))
	}
	c.Store, c.Stores = s, nil
	for i := range c.Relays {
		c.Relays[i].Store = ""
	}
	return nil
}

// ChooseRelays keeps the relays that --only names.
func ChooseRelays(c *config.Config, only []string) error {
	for _, name := range only {
		if !slices.ContainsFunc(c.Relays, func(r config.Relay) bool { return r.Name == name }) {
			var known []string
			for _, r := range c.Relays {
				known = append(known, r.Name)
			}
			return program.Usagef("--only %s: there is no such relay in the configuration; it has %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		}
	}
	if len(only) > 0 {
		c.Relays = slices.DeleteFunc(c.Relays, func(r config.Relay) bool { return !slices.Contains(only, r.Name) })
	}
	return nil
}
