package relay

import (
	"fmt"

	"github.com/postrider/postrider"
)

// CheckCapabilities lists what the relay needs and a publisher with these capabilities does not provide, each with a remedy.
// New refuses a Config for which there is any.
func (c *Config) CheckCapabilities(caps postrider.Capabilities) (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if !caps.Ordered && !c.AcceptUnordered {
		fault("relay: the publisher does not keep the order of a key; use a broker, or a setting of it, that does, or set AcceptUnordered")
	}
	switch {
	case c.RequireDedupe <= caps.DedupeWindow:
	case caps.DedupeWindow == 0:
		fault("relay: RequireDedupe is %s, and the broker drops no duplicates; use one that does (NATS JetStream), "+
			"or let consumers use the inbox and require none", c.RequireDedupe)
	default:
		fault("relay: RequireDedupe is %s, and the broker drops duplicates for %s only; lengthen that (dedupe_window of NATS), "+
			"or let consumers use the inbox and require less", c.RequireDedupe, caps.DedupeWindow)
	}
	if caps.MaxMessageBytes > 0 && c.RequireMessageBytes > caps.MaxMessageBytes {
		fault("relay: RequireMessageBytes is %d, and the broker takes messages of %d bytes at most; raise its limit, use a broker "+
			"that takes larger ones, or lower outbox.Config.MaxPayload and require less", c.RequireMessageBytes, caps.MaxMessageBytes)
	}
	return faults
}
