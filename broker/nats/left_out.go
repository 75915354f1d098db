package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// checkDurable returns an error if durable consumers of the stream read subjects without a partition only, while the stream takes both kinds.
// Such a consumer passes messages with a partition when it gets a later one without, and never gets them, whatever its filters are then. So a
// publisher with Partitioned does not begin before they have been changed.
func checkDurable(ctx context.Context, stream jetstream.Stream, cfg Config) error {
	if !cfg.Partitioned || !cfg.takesPlain(stream.CachedInfo().Config) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.PublishTimeout)
	defer cancel()
	var faults []error
	consumers := stream.ListConsumers(ctx)
	for info := range consumers.Info() {
		if filters := cfg.missingFilters(info.Config); len(filters) > 0 {
			faults = append(faults, fmt.Errorf("nats: consumer %s of stream %s reads %s and would lose messages with a partition; "+
				"run: nats consumer edit %[2]s %[1]s --filter=%[4]s (or remove it)",
				info.Name, cfg.Stream, strings.Join(filtersOf(info.Config), ", "), strings.Join(filters, " --filter=")))
		}
	}
	if err := consumers.Err(); err != nil {
		return postrider.Unavailable(fmt.Errorf("nats: look for consumers of stream %s that do not read subjects with a partition: check that the "+
			"user may publish to $JS.API.CONSUMER.LIST.%[1]s: %[2]w", cfg.Stream, err))
	}
	return errors.Join(faults...)
}

// missingFilters returns the filters with which a durable consumer would read both kinds of the subjects that it reads, nil if it does.
func (c Config) missingFilters(consumer jetstream.ConsumerConfig) []string {
	if consumer.Durable == "" || consumer.AckPolicy == jetstream.AckNonePolicy { // of a log, which is read from a position
		return nil
	}
	has := filtersOf(consumer)
	var missing []string
	for _, plain := range has {
		rest, ok := c.afterPrefix(plain)
		if !ok {
			continue
		}
		divided := c.partitionPrefix() + "*.*." + rest
		if slices.ContainsFunc(has, func(filter string) bool { return covers(filter, divided) }) {
			continue
		}
		if rest == ">" {
			divided = c.partitionPrefix() + "*.>"
		}
		missing = append(missing, divided)
	}
	if len(missing) == 0 {
		return nil
	}
	return append(missing, has...)
}
