package postrider

import (
	"context"
	"time"
)

// DeliveryAttempt records one attempt, successful or not, to deliver a message to a destination whose responses are worth
// keeping, such as a webhook receiver. AttemptInfo, in contrast, is the short history that a relay keeps with a message
// that it could not deliver at once.
type DeliveryAttempt struct {
	MessageID string `json:"message_id"`
	// Relay is the name of the relay that made the attempt.
	Relay string `json:"relay"`
	// Attempt is the message's Attempt: it counts from 1, and from 1 again after a redrive. Several records may share one
	// number: an attempt that only found the destination unreachable is repeated under the same number.
	Attempt int `json:"attempt"`
	// At is when the attempt began, on the sender's clock; Took is how long it lasted, with or without a response.
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took"`
	// Outcome is the OutcomeKind in words, or "cancelled" when the sender stopped while it waited for the response.
	Outcome string `json:"outcome"`
	// Status is the status code of the response, e.g. 503; 0 when there was none.
	Status int `json:"status,omitzero"`
	// Answer is the beginning of the response body, up to 512 bytes, in any encoding.
	Answer []byte `json:"answer,omitempty"`
	// Error says what went wrong: UTF-8, up to 1,000 bytes; empty for an attempt that succeeded.
	Error string `json:"error,omitempty"`
	// RequestSHA256 is the SHA-256 sum of the request, so that sender and receiver can compare.
	RequestSHA256 []byte `json:"request_sha256,omitempty"`
}

// KeptAttempts is how many attempts an AttemptLog keeps per message and relay: the newest.
const KeptAttempts = 50

// AttemptLog keeps attempts for operators to read. Delivery does not depend on it: losing a record affects only the log.
// The stores implement it.
type AttemptLog interface {
	// RecordAttempts adds attempts and keeps each for the duration keep, on the database's clock. An attempt is
	// identified by message, relay, Attempt and At and kept once, so the call can be repeated if its response was lost.
	RecordAttempts(ctx context.Context, attempts []DeliveryAttempt, keep time.Duration) error
	// Attempts returns the recorded attempts of a message, oldest first.
	Attempts(ctx context.Context, messageID string) ([]DeliveryAttempt, error)
	// DropAttempts removes up to 10,000 expired attempts and returns how many it removed.
	DropAttempts(ctx context.Context) (int, error)
}
