package natsbroker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// groupConsumer identifies the group's durable consumer.
type groupConsumer struct {
	incarnation string    // of the stream: its creation time
	created     time.Time // creation time of the consumer
	sets        bool      // it has to read messages with a partition
}

// same reports whether other is still the same consumer of the same stream.
func (c groupConsumer) same(other groupConsumer) bool {
	return c.incarnation == other.incarnation && c.created == other.created
}

// prepareConsumer finds or creates stream and consumer. The error lists everything about an existing consumer that does
// not match the configuration. It returns postrider.Unavailable if nobody answers.
func (s *Subscriber) prepareConsumer(ctx context.Context) (groupConsumer, error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.PublishTimeout)
	defer cancel()
	stream, err := findStream(ctx, s.js, s.cfg.Config)
	if err != nil {
		return groupConsumer{}, s.consumerError(ctx, err)
	}
	sets, err := s.cfg.queueInSets(ctx, stream)
	if err != nil {
		return groupConsumer{}, s.consumerError(ctx, err)
	}
	filters := s.cfg.filters()
	if sets {
		filters = s.cfg.bothFilters()
	}
	consumer, err := stream.Consumer(ctx, s.cfg.Durable)
	if errors.Is(err, jetstream.ErrConsumerNotFound) {
		if s.cfg.CheckOnly {
			return groupConsumer{}, fmt.Errorf("nats: stream %s has no consumer %s and it is not to be created (CheckOnly): %s",
				s.cfg.Stream, s.cfg.Durable, s.addConsumerCommand(filters))
		}
		consumer, err = s.createConsumer(ctx, stream, filters)
	}
	if err != nil {
		return groupConsumer{}, s.consumerError(ctx, err)
	}
	info := consumer.CachedInfo()
	found := groupConsumer{incarnation: incarnationOf(stream.CachedInfo()), created: info.Created, sets: sets}
	return found, s.checkConsumer(info.Config, filters)
}

// createConsumer can run in many processes at once.
func (s *Subscriber) createConsumer(ctx context.Context, stream jetstream.Stream, filters []string) (jetstream.Consumer, error) {
	cfg := jetstream.ConsumerConfig{
		Durable:       s.cfg.Durable,
		Description:   "Messages consumed with Postrider",
		DeliverPolicy: jetstream.DeliverAllPolicy,
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       s.cfg.AckWait,
		MaxDeliver:    -1,
		MaxAckPending: s.cfg.MaxAckPending,
	}
	applyFilters(&cfg, filters)
	consumer, err := stream.CreateConsumer(ctx, cfg)
	if errors.Is(err, jetstream.ErrConsumerExists) {
		return stream.Consumer(ctx, s.cfg.Durable)
	}
	return consumer, err
}

// applyFilters sets the subjects of a consumer. Servers before 2.10 know only one.
func applyFilters(cfg *jetstream.ConsumerConfig, filters []string) {
	if len(filters) == 1 {
		cfg.FilterSubject = filters[0]
	} else {
		cfg.FilterSubjects = filters
	}
}

// checkConsumer returns all differences between an existing consumer and the configuration.
func (s *Subscriber) checkConsumer(got jetstream.ConsumerConfig, filters []string) error {
	var faults []error
	fault := func(advice, format string, args ...any) {
		text := fmt.Sprintf("nats: consumer %s of stream %s "+format, append([]any{s.cfg.Durable, s.cfg.Stream}, args...)...)
		faults = append(faults, errors.New(text+"; "+advice))
	}
	edit := func(flag string) string {
		return fmt.Sprintf("run: nats consumer edit %s %s %s", s.cfg.Stream, s.cfg.Durable, flag)
	}
	const another = "name another durable consumer, or delete it (what it has consumed is redelivered)"
	if got.DeliverSubject != "" {
		fault(another, "is a push consumer (deliver subject %s)", got.DeliverSubject)
	}
	if got.AckPolicy != jetstream.AckExplicitPolicy {
		fault(another, "has ack policy %s, which does not settle messages one by one", got.AckPolicy)
	}
	if got.HeadersOnly {
		fault(edit("--no-headers-only"), "delivers headers without payloads")
	}
	if got.PriorityPolicy != jetstream.PriorityPolicyNone {
		fault(another, "has priority groups")
	}
	if got.MaxDeliver > 0 {
		fault(edit("--max-deliver=-1"), "gives messages up after %d deliveries (max deliver), which would lose them", got.MaxDeliver)
	}
	if len(got.BackOff) > 0 {
		fault(edit("--no-backoff"), "has a backoff, which takes the place of the ack wait")
	}
	if got.MaxRequestBatch > 0 || got.MaxRequestExpires > 0 {
		fault(another, "limits pull requests (max batch %d, max expires %s)", got.MaxRequestBatch, got.MaxRequestExpires)
	}
	if got.AckWait != s.cfg.AckWait {
		fault(edit("--wait="+s.cfg.AckWait.String())+", or set AckWait to it", "waits %s for a settlement (ack wait); %s are asked for",
			got.AckWait, s.cfg.AckWait)
	}
	if got.MaxAckPending != s.cfg.MaxAckPending {
		fault(edit(fmt.Sprintf("--max-pending=%d", s.cfg.MaxAckPending))+", or set MaxAckPending to it",
			"lets %d messages be unsettled (max ack pending); %d are asked for", got.MaxAckPending, s.cfg.MaxAckPending)
	}
	has, want, both := filtersOf(got), slices.Sorted(slices.Values(filters)), slices.Sorted(slices.Values(s.cfg.bothFilters()))
	if !slices.Equal(has, want) && (s.cfg.Prefix == "" || !slices.Equal(has, both)) { // to read both kinds of subjects is always right
		fault(edit("--filter="+strings.Join(want, " --filter="))+", or name another durable consumer", "reads %s (filter subjects); %s is asked for",
			orEverything(has), orEverything(want))
	}
	return errors.Join(faults...)
}

func filtersOf(c jetstream.ConsumerConfig) []string {
	filters := slices.Sorted(slices.Values(c.FilterSubjects))
	if c.FilterSubject != "" {
		filters = append(filters, c.FilterSubject)
	}
	return filters
}

func orEverything(filters []string) string {
	if len(filters) == 0 {
		return "everything"
	}
	return strings.Join(filters, ", ")
}

// consumerError wraps an error of reading or creating stream or consumer and says what to do about it.
func (s *Subscriber) consumerError(ctx context.Context, err error) error {
	doing := fmt.Sprintf("nats: prepare consumer %s of stream %s", s.cfg.Durable, s.cfg.Stream)
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("%s: %w", doing, err)
	case isUnsendable(err), errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrNoResponders), errors.Is(err, nats.ErrTimeout),
		errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
		return postrider.Unavailable(fmt.Errorf("%s: nobody answers; check that the server runs with JetStream and has a leader, and that "+
			"the user may publish to $JS.API.STREAM.INFO.%s and $JS.API.CONSUMER.> and subscribe to _INBOX.>: %w", doing, s.cfg.Stream, err))
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch api.ErrorCode {
		case codeClusterNotAvail, codeNotLeader, codeInsufficient, codeMemoryResources, codeStorageResources, codeTooManyRequests,
			codeNotEnabled:
			return postrider.Unavailable(fmt.Errorf("%s: %w", doing, err))
		}
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// addConsumerCommand returns the command that creates the configured consumer.
func (s *Subscriber) addConsumerCommand(filters []string) string {
	flags := make([]string, len(filters))
	for i, filter := range filters {
		flags[i] = "--filter=" + filter
	}
	return fmt.Sprintf("run: nats consumer add %s %s --pull --deliver=all --ack=explicit --wait=%s --max-pending=%d --max-deliver=-1 %s --defaults",
		s.cfg.Stream, s.cfg.Durable, s.cfg.AckWait, s.cfg.MaxAckPending, strings.Join(flags, " "))
}
