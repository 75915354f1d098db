package postrider

import (
	"context"
	"testing"
)

func TestMessageFromContext(t *testing.T) {
	t.Parallel()
	if m := MessageFromContext(t.Context()); m != nil {
		t.Errorf("got %+v", m)
	}
	m := &Message{ID: "1"}
	ctx, cancel := context.WithCancel(ContextWithMessage(t.Context(), m))
	defer cancel()
	if got := MessageFromContext(ctx); got != m {
		t.Errorf("got %+v", got)
	}
}
