package backend

import (
	"context"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
	"github.com/postrider/postrider/cmd/postrider/internal/config"
)

// OpenPublisher connects to a broker. A broker that cannot be reached is tried until ctx ends; one that refuses us is an
// error at once. The function closes the publisher.
func OpenPublisher(ctx context.Context, p config.Publisher, logger *slog.Logger) (postrider.Publisher, func(), error) {
	scheme, _, _ := strings.Cut(p.URL, "://")
	switch scheme {
	case "nats", "tls":
		n, err := natsbroker.Open(ctx, withOptions(p), natsbroker.Config{Logger: logger})
		if err != nil {
			return nil, nil, err
		}
		return n, func() { _ = n.Close() }, nil
	default:
		return nil, nil, badURL("%q is not the URL of a broker; write nats://host:4222?stream=NAME", ShownPublisher(p.URL))
	}
}

// withOptions adds the options to the URL, behind those that stand there, over which they win.
func withOptions(p config.Publisher) string {
	text, joint := p.URL, "?"
	if strings.Contains(text, "?") {
		joint = "&"
	}
	for _, name := range slices.Sorted(maps.Keys(p.Options)) {
		text += joint + url.QueryEscape(name) + "=" + url.QueryEscape(p.Options[name])
		joint = "&"
	}
	return text
}

// ShownPublisher is a broker's URL without what must stay secret: user information and options.
func ShownPublisher(text string) string {
	servers, _, _ := strings.Cut(text, "?")
	scheme, rest, ok := strings.Cut(servers, "://")
	if !ok {
		return servers
	}
	list := strings.Split(rest, ",")
	for i, server := range list {
		if _, after, ok := strings.Cut(server, "://"); ok { // each server of a list may have its own scheme
			server = after
		}
		list[i] = server[strings.LastIndexByte(server, '@')+1:]
	}
	return scheme + "://" + strings.Join(list, ",")
}
