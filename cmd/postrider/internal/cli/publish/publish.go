// Package publish has the command "postrider publish", which publishes messages from flags or from a file.
package publish

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

// publishOptions are the options of publish.
type publishOptions struct {
	message     postrider.Message
	payload     string
	payloadFile string
	headers     []string
	deliverAt   string

	file            string
	fromLine        int
	batch           int
	continueOnError bool
	rejects         string

	source string
	quiet  bool
}

// Command returns the command.
func Command(p *program.Program) *cobra.Command { return commands{p}.command() }

// commands has the functions of the commands.
type commands struct{ *program.Program }

func (p commands) command() *cobra.Command {
	var o publishOptions
	cmd := &cobra.Command{
		Use:   "publish",
		Short: "Publish messages, from flags or from a file of JSON lines",
		Long: `Publish one message that the flags describe, or with --file many: one message per line in the JSON form of a message, in
transactions of --batch lines (or 8 MiB). It prints the IDs of the published messages, and goes on if nobody reads them.

A bad line ends it with the number of the line, and nothing of its batch is published; batches before it are, so fix the
line and continue with --from-line. With --continue-on-error bad lines are written to --rejects, each as it was, with its
number and fault on standard error, everything else is published and the exit code is 4.

Services publish in their own transactions, with the library or with SQL; this command is for operators and tests.`,
		Example: `  postrider publish --type order.placed --topic orders --key order/42 --payload '{"total":12}'
  postrider publish --type invoice.pdf --content-type application/pdf --payload-file invoice.pdf
  postrider publish --type reminder --key customer/7 --deliver-after 24h --payload '{}'
  printf '%s\n' '{"type":"order.placed","key":"order/42","payload":{"total":12}}' | postrider publish --file -
  postrider publish --file messages.ndjson --continue-on-error --rejects rejects.ndjson`,
		Args: program.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			if o.file != "" {
				return p.publishFile(cmd, &o)
			}
			return p.publishOne(cmd, &o)
		},
	}
	o.flags(cmd)
	return cmd
}

func (o *publishOptions) flags(cmd *cobra.Command) {
	f, m := cmd.Flags(), &o.message
	f.StringVar(&m.Type, "type", "", "message `type`, e.g. order.placed (required without --file)")
	f.StringVar(&m.Topic, "topic", "", "`topic` (default: the type)")
	f.StringVar(&m.Key, "key", "", "unit of order, e.g. order/42 (default: none, no order)")
	f.StringVar(&m.ID, "id", "", "message `ID` (default: a new UUIDv7)")
	f.StringVar(&m.Subject, "subject", "", "`what` the message is about")
	f.StringVar(&m.Tenant, "tenant", "", "`tenant`")
	f.StringVar(&m.ContentType, "content-type", "", "media `type` of the payload (default application/json)")
	f.StringVar(&m.CorrelationID, "correlation-id", "", "`ID` of the business process")
	f.StringVar(&m.CausationID, "causation-id", "", "`ID` of the message that caused this one")
	f.IntVar(&m.SchemaVersion, "schema-version", 0, "`version` of the payload's shape, from 1")
	f.Int64Var(&m.AggregateVersion, "aggregate-version", 0, "`version` of the entity that the message describes, from 1")
	f.DurationVar(&m.DeliverAfter, "deliver-after", 0, "deliver not before this `duration` has passed")
	f.StringVar(&o.deliverAt, "deliver-at", "", "deliver not before this `time` (RFC 3339)")
	f.StringVar(&o.payload, "payload", "", "payload, as `text`")
	f.StringVar(&o.payloadFile, "payload-file", "", "read the payload from a `file`, - for standard input")
	f.StringArrayVarP(&o.headers, "header", "H", nil, "a header as `name=value`; may be given several times")

	f.StringVarP(&o.file, "file", "f", "", "read messages from a `file` of JSON lines, - for standard input")
	f.IntVar(&o.fromLine, "from-line", 1, "begin with line `n` of the file")
	f.IntVar(&o.batch, "batch", 500, "lines per transaction, `n` from 1 to 10000")
	f.BoolVar(&o.continueOnError, "continue-on-error", false, "go on after a bad line; needs --rejects")
	f.StringVar(&o.rejects, "rejects", "", "write bad lines to this `file`, which must not exist")

	f.StringVar(&o.source, "source", "postrider-cli", "`service` that publishes, for messages that name none")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print the IDs")
	cmd.MarkFlagsMutuallyExclusive("payload", "payload-file")
	cmd.MarkFlagsMutuallyExclusive("deliver-at", "deliver-after")
}

// describing are the flags that describe a single message.
var describing = []string{"type", "topic", "key", "id", "subject", "tenant", "content-type", "correlation-id", "causation-id",
	"schema-version", "aggregate-version", "deliver-after", "deliver-at", "payload", "payload-file", "header"}

// check returns an error for incompatible flags.
func (o *publishOptions) check(cmd *cobra.Command) error {
	changed := cmd.Flags().Changed
	if o.file == "" {
		for _, name := range []string{"from-line", "batch", "continue-on-error", "rejects"} {
			if changed(name) {
				return program.Usagef("--%s goes with --file", name)
			}
		}
		switch {
		case o.message.Type == "":
			return program.Usagef("--type is missing; give a message by flags, or many with --file")
		case changed("schema-version") && o.message.SchemaVersion < 1:
			return program.Usagef("--schema-version counts from 1, is %d", o.message.SchemaVersion)
		case changed("aggregate-version") && o.message.AggregateVersion < 1:
			return program.Usagef("--aggregate-version counts from 1, is %d", o.message.AggregateVersion)
		case o.message.DeliverAfter < 0:
			return program.Usagef("--deliver-after must not be negative, is %s", o.message.DeliverAfter)
		}
		return nil
	}
	for _, name := range describing {
		if changed(name) {
			return program.Usagef("--%s describes a single message and does not go with --file", name)
		}
	}
	switch {
	case o.batch < 1 || o.batch > 10_000:
		return program.Usagef("--batch must be 1 to 10000, is %d", o.batch)
	case o.fromLine < 1:
		return program.Usagef("--from-line counts from 1, is %d", o.fromLine)
	case o.continueOnError != (o.rejects != ""):
		return program.Usagef("--continue-on-error and --rejects go together: bad lines must not be lost")
	}
	return nil
}

// publishOne publishes the message that the flags describe.
func (p commands) publishOne(cmd *cobra.Command, o *publishOptions) error {
	m, err := p.describe(o)
	if err != nil {
		return err
	}
	if len(m.Payload) > 0 || cmd.Flags().Changed("payload") || o.payloadFile != "" {
		if err := checkJSON(m); err != nil {
			return program.Usagef("%v", err)
		}
	} else if declaresJSON(m.ContentType) {
		fmt.Fprintln(p.Stderr, "postrider: no payload is given: a handler that reads JSON cannot decode this message; --payload '{}' would do")
	}
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		ids, err := b.Publish(cmd.Context(), o.source, []*postrider.Message{m})
		if err != nil {
			err = fmt.Errorf("nothing was published: %w", err)
			if _, invalid := errors.AsType[*postrider.ValidationError](err); invalid {
				return program.Exit(program.ExitUsage, err)
			}
			return err
		}
		if o.quiet {
			return nil
		}
		_, err = fmt.Fprintln(p.Stdout, strings.Join(ids, "\n"))
		return err
	})
}

// describe returns the message that the flags describe.
func (p commands) describe(o *publishOptions) (*postrider.Message, error) {
	m := o.message
	m.Payload = []byte(o.payload)
	var err error
	switch o.payloadFile {
	case "":
	case "-":
		m.Payload, err = io.ReadAll(p.Stdin)
	default:
		m.Payload, err = os.ReadFile(o.payloadFile)
	}
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	for _, h := range o.headers {
		name, value, ok := strings.Cut(h, "=")
		if !ok {
			return nil, program.Usagef("--header %s is not name=value", h)
		}
		if m.Headers == nil {
			m.Headers = map[string]string{}
		}
		m.Headers[name] = value
	}
	if o.deliverAt != "" {
		if m.DeliverAt, err = time.Parse(time.RFC3339, o.deliverAt); err != nil {
			return nil, program.Usagef("--deliver-at %s is not a time; write 2026-01-31T15:04:05Z", o.deliverAt)
		}
	}
	return &m, nil
}

// checkJSON refuses a payload that is not JSON although its content type says so: its consumers would dead-letter it.
func checkJSON(m *postrider.Message) error {
	if !declaresJSON(m.ContentType) || json.Valid(m.Payload) {
		return nil
	}
	return fmt.Errorf("the payload is not JSON, and the content type %s says that it is; fix it, or give another content type "+
		"(--content-type, in a line \"content_type\"), e.g. text/plain", cmp.Or(m.ContentType, postrider.DefaultContentType))
}

// declaresJSON says whether a content type is JSON; an empty one is.
func declaresJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(cmp.Or(contentType, postrider.DefaultContentType))
	return err == nil && (strings.HasSuffix(kind, "/json") || strings.HasSuffix(kind, "+json"))
}

// publishFile publishes the lines of a file.
func (p commands) publishFile(cmd *cobra.Command, o *publishOptions) error {
	signal.Ignore(syscall.SIGPIPE) // that nobody reads the IDs must not end it between two batches
	in, size, err := p.openInput(o.file)
	if err != nil {
		return err
	}
	defer in.Close()
	var rejects *os.File
	if o.continueOnError {
		rejects, err = os.OpenFile(o.rejects, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return fmt.Errorf("rejects: %w", err)
		}
		defer rejects.Close()
	}
	return p.WithStore(cmd, func(b *backend.Outbox) error {
		l := &lineLoader{
			program: p.Program, options: o, began: time.Now(),
			publish: func(ctx context.Context, msgs []*postrider.Message) ([]string, error) {
				return b.Publish(ctx, o.source, msgs)
			},
			bar: p.ProgressBytes(size),
		}
		if rejects != nil {
			l.rejects = rejects
		}
		err := l.run(cmd.Context(), in)
		l.bar.End()
		if rejects != nil {
			err = cmp.Or(err, rejects.Close())
		}
		return l.conclude(err)
	})
}

// openInput opens a file of lines; its size is -1 if unknown.
func (p commands) openInput(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(p.Stdin), -1, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, fmt.Errorf("open messages: %w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return f, -1, nil
	}
	return f, info.Size(), nil
}
