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
)

// prepareStream finds or creates the stream for a publisher and returns its configuration. The error lists everything about an existing
// stream that does not match cfg.
func prepareStream(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.StreamConfig, error) {
	stream, err := findStream(ctx, js, cfg)
	if err != nil {
		return jetstream.StreamConfig{}, err
	}
	got := stream.CachedInfo().Config
	if err := checkStream(cfg, got); err != nil {
		return got, err
	}
	return got, checkDurable(ctx, stream, cfg)
}

// findStream finds or creates the stream.
func findStream(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, cfg.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if cfg.CheckOnly {
			return nil, fmt.Errorf("nats: stream %s does not exist and is not to be created (CheckOnly): %s", cfg.Stream, addCommand(cfg))
		}
		stream, err = createStream(ctx, js, cfg)
	}
	if err != nil {
		return nil, streamError(cfg, err)
	}
	return stream, nil
}

// createStream can run in many processes at once: creating the same stream twice succeeds.
func createStream(ctx context.Context, js jetstream.JetStream, cfg Config) (jetstream.Stream, error) {
	want := jetstream.StreamConfig{
		Name:        cfg.Stream,
		Description: "Messages published by Postrider",
		Subjects:    cfg.Subjects,
		Storage:     jetstream.FileStorage,
		Replicas:    cfg.Replicas,
		Duplicates:  cfg.DedupeWindow,
		MaxAge:      cfg.MaxAge,
		AllowDirect: true,

		AllowBatchPublish: cfg.Replicas == 1, // see allowsBatches
	}
	stream, err := js.CreateStream(ctx, want)
	if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok && apiErr.ErrorCode == codeInvalidJSON && want.AllowBatchPublish {
		want.AllowBatchPublish = false // servers before 2.14 may reject unknown settings
		stream, err = js.CreateStream(ctx, want)
	}
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return js.Stream(ctx, cfg.Stream)
	}
	return stream, err
}

// allowsBatches reports whether messages may be sent to the stream in fast batches: only if the acknowledgement of a
// batch is as reliable as that of a single message (docs/adr/0008-nats-fast-batches.md). It is not
//   - with replicas: in a batch, a duplicate of a message that is still being replicated counts as stored, although the
//     message may still be lost with the leader. A single duplicate is answered with an error.
//   - if the server has to remove the oldest message of a full subject first: if that fails, nobody is told, and the
//     batch continues.
func allowsBatches(stream jetstream.StreamConfig) bool {
	makesRoom := stream.MaxMsgsPerSubject > 0 && stream.Discard == jetstream.DiscardNew && !stream.DiscardNewPerSubject
	return stream.AllowBatchPublish && stream.Replicas <= 1 && !stream.NoAck && !makesRoom
}

// checkStream returns all differences between an existing stream and cfg.
func checkStream(cfg Config, got jetstream.StreamConfig) error {
	var faults []error
	fault := func(flag, format string, args ...any) {
		text := fmt.Sprintf("nats: stream %s "+format, append([]any{cfg.Stream}, args...)...)
		if flag != "" {
			text += fmt.Sprintf("; run: nats stream edit %s %s", cfg.Stream, flag)
		}
		faults = append(faults, errors.New(text))
	}
	var missing []string
	for _, want := range cfg.Subjects {
		if !slices.ContainsFunc(got.Subjects, func(filter string) bool { return covers(filter, want) }) {
			missing = append(missing, want)
		}
	}
	switch {
	case got.Mirror != nil:
		fault("", "is a mirror and takes no messages; name the stream that it mirrors")
	case got.Sealed:
		fault("", "is sealed and takes no messages; name another stream")
	case len(missing) > 0:
		fault("--subjects="+strings.Join(append(slices.Clone(got.Subjects), missing...), ","),
			"takes %s and not %s%s", strings.Join(got.Subjects, ", "), strings.Join(missing, ", "), cfg.hint(got))
	case cfg.Partitioned && !cfg.takesPartitions(got.Subjects):
		kinds := []string{cfg.Prefix + ">", cfg.partitionPrefix() + ">"}
		others := slices.DeleteFunc(slices.Clone(got.Subjects), func(s string) bool { return covers(s, kinds[0]) || covers(s, kinds[1]) })
		fault("--subjects="+strings.Join(append(others, kinds...), ",")+" (and what else it takes by the wildcard)",
			"takes %s by a wildcard only (%s), which does not tell consumers to read it", kinds[1], strings.Join(got.Subjects, ", "))
	}
	if got.NoAck {
		fault("--ack", "does not acknowledge messages, so that nobody knows what it has stored")
	}
	if got.Storage != jetstream.FileStorage {
		fault("", "is kept in memory and ends with its server; messages would be lost. Create it with file storage")
	}
	if got.Replicas < cfg.Replicas {
		fault(fmt.Sprintf("--replicas=%d", cfg.Replicas), "has %d replicas; %d are asked for", got.Replicas, cfg.Replicas)
	}
	if got.Duplicates < cfg.DedupeWindow {
		fault("--dupe-window="+cfg.DedupeWindow.String(), "drops duplicates for %s; %s are asked for",
			got.Duplicates, cfg.DedupeWindow)
	}
	if cfg.MaxAge > 0 && got.MaxAge != cfg.MaxAge {
		kept := "for ever"
		if got.MaxAge > 0 {
			kept = "for " + got.MaxAge.String()
		}
		fault("--max-age="+cfg.MaxAge.String(), "keeps messages %s; %s is asked for", kept, cfg.MaxAge)
	}
	return errors.Join(faults...)
}

// Error codes of the server that call for an operator's action and have no name in package jetstream.
const (
	codeAccountResources   = 10002
	codeNoPeers            = 10005
	codeClusterNotAvail    = 10008
	codeNotLeader          = 10009
	codeInsufficient       = 10023
	codeMemoryResources    = 10028
	codeNotEnabledAccount  = 10039
	codeStorageResources   = 10047
	codeMessageTooLarge    = 10054
	codeStreamNotMatch     = 10060
	codeSubjectOverlap     = 10065
	codeReplicasNotCluster = 10074
	codeNotEnabled         = 10076
	codeStoreFailed        = 10077
	codeHeaderTooLarge     = 10097
	codeSealed             = 10109
	codeTooManyRequests    = 10167
	codeBatchDisabled      = 10205
	codeBatchPattern       = 10206
	codeBatchID            = 10207
	codeBatchUnknown       = 10208
	codeBatchTooMany       = 10211
	codeInvalidJSON        = 10025
)

// streamError wraps an error of reading or creating the stream and says what to do about it.
func streamError(cfg Config, err error) error {
	doing := fmt.Sprintf("nats: prepare stream %s", cfg.Stream)
	if apiErr, ok := errors.AsType[*jetstream.APIError](err); ok {
		switch apiErr.ErrorCode {
		case codeSubjectOverlap:
			return fmt.Errorf("%s: another stream takes %s; set Subjects and Prefix so that they do not overlap: %w",
				doing, strings.Join(cfg.Subjects, " or "), err)
		case codeNoPeers, codeReplicasNotCluster:
			return fmt.Errorf("%s: %d replicas need as many servers in the cluster; set Replicas to less, or add servers: %w",
				doing, cfg.Replicas, err)
		case codeNotEnabled, codeNotEnabledAccount:
			return fmt.Errorf("%s: JetStream is not enabled for this account; enable it in the server's configuration: %w", doing, err)
		}
	}
	switch {
	case errors.Is(err, nats.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("%s: nobody answers for JetStream; start the server with -js, or check that its cluster has a leader: %w", doing, err)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, nats.ErrTimeout):
		return fmt.Errorf("%s: no answer; check that the user may publish to $JS.API.STREAM.INFO.%s and $JS.API.STREAM.CREATE.%s, and subscribe to _INBOX.>: %w",
			doing, cfg.Stream, cfg.Stream, err)
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

// addCommand returns the command that creates the stream described by cfg.
func addCommand(cfg Config) string {
	age := ""
	if cfg.MaxAge > 0 {
		age = " --max-age=" + cfg.MaxAge.String()
	}
	return fmt.Sprintf("run: nats stream add %s --subjects=%s --storage=file --replicas=%d --dupe-window=%s%s --defaults",
		cfg.Stream, strings.Join(cfg.Subjects, ","), cfg.Replicas, cfg.DedupeWindow.Round(time.Millisecond), age)
}
