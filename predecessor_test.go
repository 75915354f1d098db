package postrider_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider"
)

func TestPredecessorFailed(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	head := &postrider.Message{ID: "head"}
	tests := []struct {
		name string
		err  error
		kind postrider.OutcomeKind
		is   []error
	}{
		{"plain", cause, postrider.Retried, nil},
		{"dead", postrider.Dead("too large", cause), postrider.Retried, nil},
		{"retry with a wait", postrider.Retry(time.Hour, cause), postrider.Retried, nil},
		{"unavailable", fmt.Errorf("wrapped: %w", postrider.Unavailable(cause)), postrider.BrokerUnavailable, []error{cause}},
		{"cancelled", fmt.Errorf("wrapped: %w", context.Canceled), postrider.Retried, []error{context.Canceled}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			err := postrider.PredecessorFailed(head, tt.err)
			o := postrider.OutcomeOf(err)
			if o.Kind != tt.kind || o.After != 0 {
				t.Errorf("outcome = %v after %v, want %v after 0", o.Kind, o.After, tt.kind)
			}
			for _, want := range append(tt.is, postrider.ErrPredecessorFailed) {
				if !errors.Is(err, want) {
					t.Errorf("error %q does not match %q", err, want)
				}
			}
		})
	}
}
