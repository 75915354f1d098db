package postridertest

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/outbox"
)

// RequirePublished returns the data of the one message of a definition that the transaction tx has published and that all matchers
// match. It ends the test if there is none, if there are several, or if the message cannot be decoded. It sees what
// outbox.Outbox.Published sees: also messages that are not sent to the database yet, and none that a savepoint has undone.
func RequirePublished[T, Tx any](t testing.TB, ctx context.Context, box *outbox.Outbox[Tx], tx Tx, d postrider.Definition[T],
	matchers ...Matcher,
) T {
	t.Helper()
	s := search(t, ctx, box, tx, d, matchers)
	if len(s.found) != 1 {
		t.Fatalf("the transaction has published %s\n%s", s.wanted("1"), s.rest)
	}
	return s.found[0]
}

// RequireNotPublished ends the test if the transaction tx has published a message of a definition that all matchers match.
func RequireNotPublished[T, Tx any](t testing.TB, ctx context.Context, box *outbox.Outbox[Tx], tx Tx, d postrider.Definition[T],
	matchers ...Matcher,
) {
	t.Helper()
	if s := search(t, ctx, box, tx, d, matchers); len(s.found) > 0 {
		t.Fatalf("the transaction has published %s\n%s", s.wanted("none"), s.rest)
	}
}

// Published returns the messages that the transaction tx has published, in order, and ends the test if they cannot be read.
func Published[Tx any](t testing.TB, ctx context.Context, box *outbox.Outbox[Tx], tx Tx) []*postrider.Message {
	t.Helper()
	msgs, err := box.Published(ctx, tx)
	if err != nil {
		t.Fatal(err)
	}
	return msgs
}

// searched is what was found among the messages of a transaction.
type searched[T any] struct {
	name  string
	found []T
	rest  string // a line for each message
}

func (s searched[T]) wanted(n string) string {
	return fmt.Sprintf("%d messages %s that match, want %s:", len(s.found), s.name, n)
}

func search[T, Tx any](t testing.TB, ctx context.Context, box *outbox.Outbox[Tx], tx Tx, d postrider.Definition[T],
	matchers []Matcher,
) searched[T] {
	t.Helper()
	if err := d.Validate(); err != nil {
		t.Fatal(err)
	}
	s := searched[T]{name: fmt.Sprintf("%s version %d", d.Type(), d.SchemaVersion())}
	var lines strings.Builder
	for _, m := range Published(t, ctx, box, tx) {
		data, why := match(t, m, d, matchers)
		if why == "" {
			s.found = append(s.found, data)
		}
		fmt.Fprintf(&lines, "  %s version %d, key %q, payload %.200s: %s\n", m.Type, cmp.Or(m.SchemaVersion, 1), m.Key, m.Payload,
			cmp.Or(why, "matches"))
	}
	s.rest = cmp.Or(lines.String(), "  (nothing was published)\n")
	return s
}

// match returns the data of a message, and why it does not match, "" if it does.
func match[T any](t testing.TB, m *postrider.Message, d postrider.Definition[T], matchers []Matcher) (data T, why string) {
	t.Helper()
	if m.Type != d.Type() || cmp.Or(m.SchemaVersion, 1) != d.SchemaVersion() {
		return data, "another type or version"
	}
	typed, err := d.Decode(m)
	if err != nil {
		t.Fatalf("the transaction has published a message that its handlers cannot decode: %v", err)
	}
	for _, matcher := range matchers {
		if why := matcher.differs(m, typed.Data); why != "" {
			return data, why
		}
	}
	return typed.Data, ""
}
