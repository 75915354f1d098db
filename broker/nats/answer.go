package natsbroker

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider"
)

// publishAnswer is JetStream's answer to a message.
type publishAnswer struct {
	Stream   string              `json:"stream"`
	Sequence uint64              `json:"seq"`
	Error    *jetstream.APIError `json:"error"`
}

var sequenceField = []byte(`"seq":`)

// evaluate evaluates the answer to message m: nil if the stream has it. It returns false for answers that do not come
// from a stream: other programs may listen on the subject, and the stream's own answer is still to come.
func (p *Publisher) evaluate(answer *nats.Msg, m *postrider.Message) (known bool, err error) {
	if len(answer.Data) == 0 && answer.Header.Get("Status") == "503" {
		return true, p.nobodyAnswers(m)
	}
	if p.isAck(answer.Data) {
		return true, nil
	}
	var a publishAnswer
	switch err := json.Unmarshal(answer.Data, &a); {
	case err != nil:
		return false, nil
	case a.Error != nil && a.Error.ErrorCode != 0:
		return true, p.refused(a.Error, m)
	case a.Error != nil, a.Stream == "", a.Sequence == 0:
		return false, nil
	case a.Stream != p.stream.Name:
		return true, fmt.Errorf("another stream than %s takes subject %s: %s has stored the message", p.stream.Name,
			p.cfg.subject(m), a.Stream)
	}
	return true, nil
}

// isAck recognizes the acknowledgement of a message, including a duplicate, without the cost of parsing JSON.
func (p *Publisher) isAck(data []byte) bool {
	rest, ours := bytes.CutPrefix(data, p.ackBegin)
	if !ours {
		return false
	}
	_, sequence, _ := bytes.Cut(rest, sequenceField) // the domain may be in between
	return len(sequence) > 0 && '1' <= sequence[0] && sequence[0] <= '9'
}

// nobodyAnswers is the error of a message on whose subject no stream listens.
func (p *Publisher) nobodyAnswers(m *postrider.Message) error {
	subject := p.cfg.subject(m)
	if p.takes(subject) {
		return postrider.Unavailable(fmt.Errorf("publish to NATS: stream %s does not answer: it has no leader, or JetStream is off; see: nats stream info %s",
			p.stream.Name, p.stream.Name))
	}
	return fmt.Errorf("publish to NATS: no stream takes subject %s; add it: nats stream edit %s --subjects=%s",
		subject, p.stream.Name, strings.Join(append(slices.Clone(p.stream.Subjects), subject), ","))
}

// takes reports whether the stream, as configured when the publisher started, takes a subject.
func (p *Publisher) takes(subject string) bool {
	return slices.ContainsFunc(p.stream.Subjects, func(filter string) bool { return covers(filter, subject) })
}

// refused returns the error of a message that the server rejected.
func (p *Publisher) refused(err *jetstream.APIError, m *postrider.Message) error {
	wrapped := fmt.Errorf("publish to NATS stream %s: %w", p.stream.Name, err)
	switch err.ErrorCode {
	case codeMessageTooLarge, codeHeaderTooLarge:
		return tooLarge(wrapped)
	case codeStoreFailed:
		return storeFailed(wrapped, err.Description)
	case codeStreamNotMatch:
		return fmt.Errorf("another stream than %s takes subject %s: %w", p.stream.Name, p.cfg.subject(m), err)
	case codeAccountResources, codeClusterNotAvail, codeNotLeader, codeInsufficient, codeMemoryResources,
		codeNotEnabledAccount, codeStorageResources, codeNotEnabled, codeSealed, codeTooManyRequests:
		return postrider.Unavailable(wrapped)
	default:
		return wrapped
	}
}

// storeFailed distinguishes errors that share one code. Only the text says which limit was reached.
func storeFailed(err error, description string) error {
	switch {
	case strings.Contains(description, "per subject"):
		return fmt.Errorf("%w; consume messages of the subject, or raise --max-msgs-per-subject", err)
	case strings.Contains(description, "too large"):
		return tooLarge(err)
	default:
		return postrider.Unavailable(fmt.Errorf("%w; the stream is full or its disk is: consume messages, or raise --max-msgs or --max-bytes", err))
	}
}

// noAnswer returns the error of a message that was not acknowledged in time. stranger says that another program has
// answered; the server then does not report that no stream takes the message.
func (p *Publisher) noAnswer(m *postrider.Message, stranger bool) error {
	subject := p.cfg.subject(m)
	if err := p.conn.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		switch text := err.Error(); {
		case strings.Contains(text, `"`+subject+`"`):
			return fmt.Errorf("publish to NATS: the user may not publish to subject %s; grant it: %w", subject, err)
		case strings.Contains(text, p.inbox):
			return postrider.Unavailable(fmt.Errorf("publish to NATS: the user may not subscribe to acknowledgements; grant it _INBOX.>: %w", err))
		}
	}
	if stranger && !p.takes(subject) {
		return p.nobodyAnswers(m)
	}
	err := fmt.Errorf("publish to NATS: no acknowledgement within %s; the stream may have the message", p.cfg.PublishTimeout)
	if p.silent() {
		return postrider.Unavailable(err)
	}
	return err
}

func tooLarge(err error) error { return postrider.Dead("too large for the broker", err) }
