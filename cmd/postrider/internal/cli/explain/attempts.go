package explain

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/cmd/postrider/internal/backend"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/output"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
	"github.com/postrider/postrider/inspect"
)

func (p commands) attemptsCommand() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "attempts ID",
		Short: "Show every attempt to deliver a message to a webhook",
		Long: `Show the outcome of each attempt to deliver a message to a webhook, the successful one too: when, how long it took, what
the receiver answered (the first 512 bytes), and what went wrong. The SHA-256 sum of the body that was sent can be compared
with what the receiver has. The newest 50 attempts of a message by each relay are kept, for as long as the publisher's
option keep_attempts says. The attempts of the last second may be missing. In JSON, took_seconds is a number of seconds,
and answers are in base64.`,
		Example: `  postrider attempts 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a
  postrider attempts 0199f3a4-7e1c-7a52-9b61-3f0c2d1e4b5a --relay to-partner --json`,
		Args: program.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.WithStore(cmd, func(b *backend.Outbox) error { return p.attempts(cmd.Context(), b, args[0], name, asJSON) })
		},
	}
	cmd.Flags().StringVar(&name, "relay", "", "only those of this relay, by its `name`")
	p.CompleteFlag(cmd, "relay", program.Relays)
	cmd.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return cmd
}

func (p commands) attempts(ctx context.Context, b *backend.Outbox, id, name string, asJSON bool) error {
	all, err := attemptsOf(ctx, b, id, name)
	if err != nil {
		return err
	}
	if asJSON {
		list := make([]attemptJSON, len(all))
		for i, a := range all {
			list[i] = attemptJSON{DeliveryAttempt: a, TookSeconds: output.Seconds(a.Took)}
		}
		return output.JSON(p.Stdout, map[string]any{"attempts": list})
	}
	if len(all) == 0 {
		return fmt.Errorf("no attempts of message %s are kept: no webhook has tried it lately; see: %s", output.Printable(id), p.Hint("explain %s", output.ShellQuote(id)))
	}
	for _, a := range all {
		fmt.Fprintf(p.Stdout, "%s  relay %s, attempt %d: %s\n", output.Moment(a.At), output.Printable(a.Relay), a.Attempt, ended(a.Outcome, a.Status, a.Took))
		f := output.NewFields(p.Stdout)
		f.Add("error", a.Error)
		f.Add("answer", answerText(a.Answer))
		f.Add("request sha256", hex.EncodeToString(a.RequestSHA256))
		f.Flush()
	}
	return nil
}

// attemptJSON is the JSON form of an attempt.
type attemptJSON struct {
	postrider.DeliveryAttempt
	Took        *struct{}      `json:"took,omitempty"` // hides the duration in nanoseconds
	TookSeconds output.Seconds `json:"took_seconds"`
}

// attemptsOf returns the attempts of a message by one relay, or by all for "".
func attemptsOf(ctx context.Context, b *backend.Outbox, id, name string) ([]postrider.DeliveryAttempt, error) {
	all, err := b.Attempts(ctx, id)
	return slices.DeleteFunc(all, func(a postrider.DeliveryAttempt) bool { return name != "" && a.Relay != name }), err
}

// ended describes the result of an attempt in a few words.
func ended(outcome string, status int, took time.Duration) string {
	if status != 0 {
		outcome += ", answer " + strconv.Itoa(status)
	}
	return output.Printable(outcome) + " after " + output.Ago(took)
}

// answerText is the receiver's response, made safe for a terminal.
func answerText(answer []byte) string {
	if len(answer) == 0 || utf8.Valid(answer) {
		return string(answer)
	}
	return strconv.QuoteToASCII(string(answer))
}

// shownAttempts is how many attempts explain shows.
const shownAttempts = 5

// writeAttempts writes a relay's newest recorded attempts below explain's text about the message.
func (p commands) writeAttempts(id string, all []inspect.Attempt) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(p.Stdout, "\nattempts, of %s the newest (all of it: %s)\n", output.Number(len(all)), p.Hint("attempts %s", output.ShellQuote(id)))
	w := tabwriter.NewWriter(p.Stdout, 0, 0, 2, ' ', 0)
	for _, a := range all[max(0, len(all)-shownAttempts):] {
		text := a.Error
		if text == "" {
			text = a.Answer + answerText(a.AnswerBytes)
		}
		fmt.Fprintf(w, "  %s\tattempt %d\t%s\t%s\n", output.Moment(a.At), a.Attempt, ended(a.Outcome, a.Status, seconds(a.TookSeconds)), output.Printable(output.Shorten(text, 80)))
	}
	_ = w.Flush()
}
