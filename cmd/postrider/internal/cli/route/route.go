// Package route has the command "postrider route", which shows where messages go.
package route

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	runner "github.com/postrider/postrider/cmd/postrider/internal/cli/relay"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store"
)

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var f runner.Flags
	route := program.Group("route", "Show where messages go and what is promised there",
		`A route is a relay of the configuration: its topics, its publisher and its policy. A topic that several relays take goes to
each of them; one that no relay takes goes nowhere, and its messages leave the log when their time is over.`,
		p.routeListCommand(&f), p.routeExplainCommand(&f))
	s := route.PersistentFlags()
	s.StringVar(&f.Publisher, "publisher", "", "`URL` of a broker, for a route that no configuration has; also POSTRIDER_PUBLISHER")
	s.StringVar(&f.Name, "name", "", "`name` of its relay (default by the publisher: to-nats, …)")
	s.StringSliceVar(&f.Topics, "topics", nil, "its topics, as `patterns` in which * stands for any text (default all)")
	s.StringSliceVar(&f.Only, "only", nil, "only these relays of the configuration, by `names`")
	return route
}

func (p commands) routeListCommand(f *runner.Flags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the routes of the configuration",
		Long:  `List the relays of the configuration with their topics, where they send them, and what becomes of what fails.`,
		Example: `  postrider route list --config postrider.yaml
  postrider route list --json`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			relays, err := p.routes(cmd, *f)
			if err != nil {
				return err
			}
			routes := make([]routeInfo, 0, len(relays))
			for _, r := range relays {
				promises, err := backend.PromisesOf(r.Publisher)
				if err != nil {
					return fmt.Errorf("relay %s: %w", r.Name, err)
				}
				routes = append(routes, newRouteInfo(r, promises))
			}
			if asJSON {
				return output.JSON(p.Stdout, map[string]any{"routes": routes})
			}
			t := output.NewTable(p.Stdout, "RELAY", "STORE", "PUBLISHER", "ATTEMPTS", "ON DEAD", "TOPICS")
			for _, r := range routes {
				t.Row(r.Relay, cmp.Or(r.Store, "-"), r.Publisher, r.MaxAttempts, r.OnDead, strings.Join(r.Topics, " "))
			}
			return t.Flush()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

// connectWithin limits the wait for each broker of route explain --connect.
const connectWithin = 10 * time.Second

func (p commands) routeExplainCommand(f *runner.Flags) *cobra.Command {
	var asJSON, connect bool
	cmd := &cobra.Command{
		Use:   "explain TOPIC",
		Short: "Explain where a message of a topic would go",
		Long: `Explain for each relay whether it takes messages of a topic and by which pattern, and what is promised there: order, how
long duplicates are dropped, the largest message, what happens when the broker is down, and what becomes of a message
that fails.

Nothing is connected to: what depends on the broker's own settings is said in words. With --connect each broker that would
get the message is asked, and one that does not answer within 10 s is an error. In JSON, fields that end in _seconds are
durations in seconds.

Exit code 3 says that no relay takes the topic, or that one that does would be refused at its start.`,
		Example: `  postrider route explain order.placed --config postrider.yaml
  postrider route explain order.placed --connect
  postrider route explain order.placed --publisher 'nats://127.0.0.1:4222?stream=ORDERS' --topics 'order.*' --json`,
		Args: program.ExactArgs("TOPIC"),
		RunE: func(cmd *cobra.Command, args []string) error {
			relays, err := p.routes(cmd, *f)
			if err != nil {
				return err
			}
			return p.explainRoutes(cmd.Context(), relays, args[0], connect, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	cmd.Flags().BoolVar(&connect, "connect", false, "ask the brokers what they promise")
	return cmd
}

// routes returns the relays that configuration and flags describe. It needs no store.
func (p commands) routes(cmd *cobra.Command, f runner.Flags) ([]config.Relay, error) {
	if err := f.Check(cmd); err != nil {
		return nil, err
	}
	c, _, err := p.Load()
	if err != nil {
		return nil, err
	}
	if p.StoreFlag != "" {
		s, err := p.SelectStore(c)
		if err != nil {
			return nil, err
		}
		if err := runner.UseStore(c, s); err != nil {
			return nil, err
		}
	}
	if err := f.Choose(p.Program, cmd, c); err != nil {
		return nil, err
	}
	for i := range c.Relays {
		s, _ := c.StoreOf(c.Relays[i])
		c.Relays[i].Store = s.Name
	}
	return c.Relays, nil
}

// routeInfo is the output for a route.
type routeInfo struct {
	Relay     string   `json:"relay"`
	Store     string   `json:"store,omitempty"`
	Topics    []string `json:"topics"`
	Publisher string   `json:"publisher"`

	Ordered         bool           `json:"ordered"`
	DedupeWindow    output.Seconds `json:"dedupe_window_seconds"`
	MaxMessageBytes int            `json:"max_message_bytes,omitzero"`
	// Size says what limits a message when MaxMessageBytes is unknown.
	Size  string   `json:"size,omitempty"`
	Notes []string `json:"notes"`

	MaxAttempts int            `json:"max_attempts"`
	BackoffBase output.Seconds `json:"backoff_base_seconds"`
	BackoffMax  output.Seconds `json:"backoff_max_seconds"`
	OnDead      config.OnDead  `json:"on_dead"`
	// MaxRate is in messages per second; 0 means no limit. Policies counts the policies for some message types.
	MaxRate  float64 `json:"max_rate_per_second,omitzero"`
	Policies int     `json:"policies,omitzero"`
	// Unmet lists why the relay would not start.
	Unmet []string `json:"unmet,omitempty"`
}

func newRouteInfo(r config.Relay, promises backend.Promises) routeInfo {
	info := routeInfo{
		Relay: r.Name, Store: r.Store, Topics: r.Topics, Publisher: backend.ShownPublisher(r.Publisher.URL),
		Size: promises.Size, Notes: promises.Notes,
		MaxAttempts: cmp.Or(r.MaxAttempts, relay.DefaultMaxAttempts),
		BackoffBase: output.Seconds(cmp.Or(r.BackoffBase, relay.DefaultBackoffBase)),
		BackoffMax:  output.Seconds(cmp.Or(r.BackoffMax, relay.DefaultBackoffMax)),
		OnDead:      cmp.Or(r.OnDead, "continue"),
		MaxRate:     r.MaxRate.PerSecond(), Policies: len(r.Policies),
	}
	if len(r.Topics) == 0 {
		info.Topics = []string{"*"}
	}
	info.promise(r, promises.Capabilities)
	return info
}

// promise fills in a publisher's guarantees.
func (i *routeInfo) promise(r config.Relay, c postrider.Capabilities) {
	i.Ordered, i.DedupeWindow, i.MaxMessageBytes, i.Unmet = c.Ordered, output.Seconds(c.DedupeWindow), c.MaxMessageBytes, nil
	needs := r.Settings(config.Store{}, 0)
	for _, err := range needs.CheckCapabilities(c) {
		i.Unmet = append(i.Unmet, err.Error())
	}
}

// routedInfo says what a relay does with a topic.
type routedInfo struct {
	routeInfo
	Takes bool `json:"takes"`
	// Pattern is the first matching pattern.
	Pattern string `json:"pattern,omitempty"`
}

// explainRoutes says what each relay does with a topic.
func (p commands) explainRoutes(ctx context.Context, relays []config.Relay, topic string, connect, asJSON bool) error {
	var routes []routedInfo
	var taken, refused int
	for _, r := range relays {
		info, err := routed(ctx, r, topic, connect)
		if err != nil {
			return fmt.Errorf("relay %s: %w", r.Name, err)
		}
		if info.Takes {
			taken++
			if len(info.Unmet) > 0 {
				refused++
			}
		}
		routes = append(routes, info)
	}
	if asJSON {
		if err := output.JSON(p.Stdout, map[string]any{"topic": topic, "routes": routes}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(p.Stdout, "topic %s goes to %d of %s\n", output.Printable(topic), taken, output.Plural(len(routes), "relay"))
		for _, info := range routes {
			writeRouted(p.Stdout, info)
		}
	}
	switch {
	case taken == 0:
		return program.Exit(program.ExitNo, fmt.Errorf("no relay takes the topic %s: its messages go nowhere; add a pattern for it to the topics of a relay", topic))
	case refused > 0:
		hint := ""
		if !connect {
			hint = ", as far as its URL tells; --connect asks the broker"
		}
		return program.Exit(program.ExitNo, fmt.Errorf("%s that would take the topic %s would be refused%s", output.Plural(refused, "relay"), topic, hint))
	}
	return nil
}

// routed says what a relay does with a topic; with connect and if the relay takes it, it also asks the broker.
func routed(ctx context.Context, r config.Relay, topic string, connect bool) (routedInfo, error) {
	promises, err := backend.PromisesOf(r.Publisher)
	if err != nil {
		return routedInfo{}, err
	}
	info := routedInfo{routeInfo: newRouteInfo(r, promises)}
	for _, pattern := range info.Topics {
		if store.MatchTopic(pattern, topic) {
			info.Takes, info.Pattern = true, pattern
			break
		}
	}
	if !info.Takes || !connect {
		return info, nil
	}
	if err := backend.CheckPublisher(r.Publisher); err != nil {
		return info, err
	}
	ctx, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	publisher, closePublisher, err := backend.OpenPublisher(ctx, r.Publisher, backend.Uses{Relay: r.Name})
	if err != nil {
		return info, err
	}
	defer closePublisher()
	info.promise(r, publisher.Capabilities())
	return info, nil
}

func writeRouted(out io.Writer, r routedInfo) {
	if !r.Takes {
		fmt.Fprintf(out, "\nrelay %s: skips it; of its topics, %s, none matches\n", output.Printable(r.Relay), output.Printable(strings.Join(r.Topics, " ")))
		return
	}
	fmt.Fprintf(out, "\nrelay %s: takes it, by the pattern %s\n", output.Printable(r.Relay), output.Printable(r.Pattern))
	order, copies, largest, after := "kept per key", "come through; consumers need the inbox, or must not mind", r.Size, "dead letter; its key goes on"
	if !r.Ordered {
		order = "not kept"
	}
	if r.DedupeWindow > 0 {
		copies = "dropped for " + time.Duration(r.DedupeWindow).String() + ", by message ID"
	}
	if r.MaxMessageBytes > 0 {
		largest = output.Plural(r.MaxMessageBytes, "byte") + "; a larger one is dead at once"
	}
	if r.OnDead == "hold" {
		after = "dead letter; its key stays held until somebody decides"
	}
	f := output.NewFields(out)
	f.Add("publisher", r.Publisher)
	f.Add("store", r.Store)
	f.Add("order", order)
	f.Add("duplicates", copies)
	f.Add("largest message", largest)
	f.Add("broker down", "the relay stops sending and probes until it is back; nothing is counted as an attempt, other relays go on")
	f.Add("a failure", fmt.Sprintf("holds its key; %d attempts, the wait before the next drawn from 0 to %s, doubling, at most %s",
		r.MaxAttempts, time.Duration(r.BackoffBase), time.Duration(r.BackoffMax)))
	f.Add("after the last", after)
	if r.Policies > 0 {
		f.Add("policies", fmt.Sprintf("%d, for some message types", r.Policies))
	}
	if r.MaxRate > 0 {
		f.Add("rate", fmt.Sprintf("at most %.4g messages a second", r.MaxRate))
	}
	for _, note := range r.Notes {
		f.Add("note", note)
	}
	for _, text := range r.Unmet {
		f.Add("refused", text)
	}
	f.Flush()
}
