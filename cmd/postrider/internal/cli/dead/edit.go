package dead

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/admin"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/selection"
	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/held"
	"github.com/postrider/postrider/store"
)

// editOptions are the options of dead edit.
type editOptions struct {
	payload, payloadFile string
	set, remove          []string
	by, because          string
	yes, dryRun, asJSON  bool
}

func (p commands) deadEditCommand() *cobra.Command {
	var o editOptions
	cmd := &cobra.Command{
		Use:   "edit NUMBER",
		Short: "Change payload or headers of a dead letter before it is sent back",
		Long: `Change payload or headers of an open dead letter, which is what will be sent back then. It shows what differs and asks;
without a terminal, --yes must be given. What was there before stays on record, with who changed it and why: postrider
dead show tells all of it. If somebody else edited it meanwhile, nothing is changed.`,
		Example: `  postrider dead edit 17 --header tenant=acme --because 'the tenant was missing'
  postrider dead show 17 --payload > 17.json && vi 17.json
  postrider dead edit 17 --payload-file 17.json --because 'total was negative' --yes`,
		Args: program.ExactArgs("the NUMBER of a dead letter"),
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := selection.Numbers(args)
			if err != nil {
				return err
			}
			payload, err := p.editPayload(cmd, &o)
			if err != nil {
				return err
			}
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.editDead(cmd.Context(), b, n[0], payload, &o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.payload, "payload", "", "new payload, as `text`")
	f.StringVar(&o.payloadFile, "payload-file", "", "read the new payload from a `file`, - for standard input (then with --yes)")
	f.StringArrayVarP(&o.set, "header", "H", nil, "set a header as `name=value`; may be given several times")
	f.StringArrayVar(&o.remove, "remove-header", nil, "remove the header with this `name`; may be given several times")
	f.BoolVarP(&o.yes, "yes", "y", false, "do not ask")
	f.BoolVar(&o.dryRun, "dry-run", false, "only show what would differ")
	f.BoolVar(&o.asJSON, "json", false, "write the edited dead letter as JSON")
	p.CompleteArgs(cmd, 1, program.DeadLetters(store.DeadOpen))
	program.ByFlag(cmd, &o.by, p.Operator())
	program.BecauseFlag(cmd, &o.because)
	cmd.MarkFlagsMutuallyExclusive("payload", "payload-file")
	return cmd
}

// editPayload returns the new payload, nil for none.
func (p commands) editPayload(cmd *cobra.Command, o *editOptions) ([]byte, error) {
	var payload []byte
	var err error
	switch changed := cmd.Flags().Changed; {
	case changed("payload"):
		payload = []byte(o.payload)
	case o.payloadFile == "-":
		payload, err = io.ReadAll(p.Stdin)
	case o.payloadFile != "":
		payload, err = os.ReadFile(o.payloadFile)
	case len(o.set)+len(o.remove) == 0:
		return nil, program.Usagef("nothing is to be changed; give --payload, --payload-file, --header or --remove-header")
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the payload: %w", err)
	}
	if payload == nil {
		payload = []byte{}
	}
	return payload, nil
}

// headers returns the edited headers of a message, nil if they do not change.
func (o *editOptions) headers(m *postrider.Message) (map[string]string, error) {
	if len(o.set)+len(o.remove) == 0 {
		return nil, nil
	}
	out := maps.Clone(m.Headers)
	if out == nil {
		out = make(map[string]string)
	}
	for _, name := range o.remove {
		if _, has := out[name]; !has {
			return nil, program.Usagef("--remove-header %s: the message has no such header", name)
		}
		delete(out, name)
	}
	for _, pair := range o.set {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, program.Usagef("--header %s: write name=value", pair)
		}
		out[name] = value
	}
	return out, nil
}

func (p commands) editDead(ctx context.Context, b *backend.Outbox, number int64, payload []byte, o *editOptions) error {
	l, err := deadletter.New(b).ShowDead(ctx, number)
	if err != nil {
		return err
	}
	e := store.Edit{Payload: payload, Seen: l.Edits, By: o.by, Why: o.because}
	if e.Headers, err = o.headers(l.Message); err != nil {
		return err
	}
	edited, err := e.Apply(l.Message)
	if err != nil {
		return program.Usagef("dead letter %d: %v", number, err)
	}
	if payload != nil && isJSON(l.Message) && !json.Valid(payload) {
		return program.Usagef("the new payload is not JSON, and the message's content type says that it is (%s)", l.Message.ContentType)
	}
	diff := diffOf(l.Message.Payload, l.Message.Headers, edited.Payload, edited.Headers)
	if o.asJSON && (len(diff) == 0 || o.dryRun) {
		l.Message = edited
		return output.JSON(p.Stdout, l)
	}
	if len(diff) == 0 {
		fmt.Fprintln(p.Stdout, "nothing differs; nothing was done")
		return nil
	}
	if !o.asJSON {
		p.writeDiff(diff)
	}
	if o.dryRun {
		return nil
	}
	if err := p.Confirm(o.yes, fmt.Sprintf("Edit dead letter %d?", number)); err != nil {
		return err
	}
	c := admin.Change{Action: "EditDead", On: fmt.Sprintf("dead letter %d", number), Path: fmt.Sprintf("/dead/%d", number), Reason: o.because}
	err = p.Act(ctx, b, o.by, c, func(db held.Database) (err error) {
		l, err = deadletter.New(db).EditDead(ctx, number, e)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w; nothing was done", err)
	}
	if o.asJSON {
		return output.JSON(p.Stdout, l)
	}
	fmt.Fprintf(p.Stdout, "edited dead letter %d; send it back with: %s\n", number, p.Hint("dead redrive %d", number))
	return nil
}

// isJSON says whether a message's payload must be JSON. An empty payload need not be.
func isJSON(m *postrider.Message) bool {
	kind, _, err := mime.ParseMediaType(m.ContentType)
	return err == nil && len(bytes.TrimSpace(m.Payload)) > 0 && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}
