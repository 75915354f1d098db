package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Broker is a kind of broker that a publisher's URL can name.
type Broker struct {
	// Name identifies the kind, e.g. in the default names of relays: to-nats.
	Name string
	// Schemes are the schemes of its URLs, Example is an example URL.
	Schemes []string
	Example string
	// Options are the options that the URL may have after Mark and that publisher.options may contain: those of the
	// broker's package.
	Options []string
	// Mark separates the options from the URL: a question mark, unless the query belongs to the destination itself.
	Mark string
}

// Brokers are all supported kinds.
var Brokers = []Broker{
	{
		Name: "nats", Schemes: []string{"nats", "tls"}, Example: "nats://host:4222?stream=NAME", Mark: "?",
		Options: []string{
			"stream", "prefix", "partitioned", "subjects", "check_only", "replicas", "dedupe_window", "max_age", "max_in_flight",
			"publish_timeout", "name", "creds", "nkey", "user", "password", "token", "allow_plaintext", "ca", "cert", "key",
		},
	},
	{
		Name: "kafka", Schemes: []string{"kafka", "kafkas"}, Example: "kafka://host:9092", Mark: "?",
		Options: []string{
			"topic", "prefix", "create", "partitions", "replicas", "publish_timeout", "buffer", "compress", "client_id",
			"user", "password", "sasl", "allow_plaintext", "tls", "ca", "cert", "key",
		},
	},
	{
		Name: "rabbitmq", Schemes: []string{"amqp", "amqps"}, Example: "amqp://host:5672/?exchange=NAME", Mark: "?",
		Options: []string{
			"exchange", "exchange_type", "exchange_per_topic", "queue", "check_only", "allow_unroutable", "max_in_flight", "publish_timeout",
			"max_message_bytes", "name", "heartbeat", "user", "password", "allow_plaintext", "external", "ca", "cert", "key",
		},
	},
	{
		Name: "redis", Schemes: []string{"redis", "rediss"}, Example: "redis://host:6379", Mark: "?",
		Options: []string{
			"prefix", "partitions", "maxlen", "max_message_bytes", "publish_timeout", "replicas", "fsync", "name", "user", "password", "db",
			"cluster", "master", "sentinel_user", "sentinel_password", "allow_plaintext", "ca", "cert", "key",
		},
	},
	{
		Name: "webhook", Schemes: []string{"https", "http"}, Example: "https://host/path#secret_file=FILE", Mark: "#",
		Options: []string{
			"secret", "secret_file", "binary", "authorization", "timeout", "concurrency", "max_message_bytes", "plain_http", "allow",
			"ca", "cert", "key", "keep_attempts",
		},
	},
}

// schemeName is what the scheme of a URL looks like.
var schemeName = regexp.MustCompile(`^[a-z][a-z0-9+]{0,15}$`)

// BrokerOf returns the kind of broker for a URL.
func BrokerOf(address string) (Broker, error) {
	scheme, _, _ := strings.Cut(address, "://")
	var schemes, examples []string
	for _, b := range Brokers {
		if slices.Contains(b.Schemes, scheme) {
			return b, nil
		}
		schemes, examples = append(schemes, b.Schemes...), append(examples, b.Example)
	}
	if word := Nearest(scheme, schemes); word != "" {
		return Broker{}, fmt.Errorf("%q is no kind of broker (did you mean %s://?); write %s", scheme, word, strings.Join(examples, ", "))
	}
	if !schemeName.MatchString(scheme) || !strings.Contains(address, "://") { // it may be, or have, a password
		return Broker{}, fmt.Errorf("this is not the URL of a broker; write %s", strings.Join(examples, ", "))
	}
	return Broker{}, fmt.Errorf("%q is no kind of broker; write %s", scheme, strings.Join(examples, ", "))
}

// OptionsIn returns the options in a broker's URL, undecoded and in order, and the rest of the URL.
func (b Broker) OptionsIn(address string) (rest string, options []Option) {
	rest, text, _ := strings.Cut(address, b.Mark)
	for pair := range strings.SplitSeq(text, "&") {
		if pair != "" {
			name, value, _ := strings.Cut(pair, "=")
			options = append(options, Option{name, value})
		}
	}
	return rest, options
}

// Option is one option in a URL.
type Option struct{ Name, Value string }

// unknown returns an error text if the name of an option is unknown, otherwise "".
func (b Broker) unknown(name string) string {
	if slices.Contains(b.Options, name) {
		return ""
	}
	shown := name + didYouMean(name, b.Options)
	if strings.ContainsFunc(name, func(r rune) bool { return (r < 'a' || r > 'z') && r != '_' }) {
		shown = "(not shown)" // it may be a misplaced password
	}
	return fmt.Sprintf("unknown option %s of %s; allowed: %s", shown, b.Name, strings.Join(b.Options, ", "))
}

// Check reports every error in the kind of the broker and the names of its options; where is the key in the publisher.
// The broker's package validates the values.
func (p Publisher) Check(report func(where, text string)) {
	b, err := BrokerOf(p.URL)
	if err != nil {
		report("url", err.Error())
		return
	}
	_, options := b.OptionsIn(p.URL)
	for _, o := range options {
		if text := b.unknown(o.Name); text != "" {
			report("url", "in the URL: "+text)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(p.Options)) {
		if _, ok := b.fileOption(name); ok {
			continue
		}
		if text := b.unknown(name); text != "" {
			report("options."+name, text)
		}
	}
}

// everyOption lists the options of all brokers.
func everyOption() []string {
	set := map[string]bool{}
	for _, b := range Brokers {
		for _, name := range b.Options {
			set[name] = true
			if _, ok := b.fileOption(name + "_file"); ok {
				set[name+"_file"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Address is the URL with the options, as the brokers' packages open it, e.g. Open of broker/nats.
func (p Publisher) Address() string {
	b, err := BrokerOf(p.URL)
	if err != nil {
		return p.URL
	}
	address, options := b.OptionsIn(p.URL)
	options = slices.DeleteFunc(options, func(o Option) bool {
		_, replaced := p.Options[o.Name]
		return replaced
	})
	for name, value := range p.Options {
		// %20 is a space after every mark, + is not.
		options = append(options, Option{name, strings.ReplaceAll(url.QueryEscape(value), "+", "%20")})
	}
	slices.SortStableFunc(options, func(a, b Option) int { return cmp.Compare(a.Name, b.Name) })
	joint := b.Mark
	for _, o := range options {
		address += joint + o.Name + "=" + o.Value
		joint = "&"
	}
	return address
}
