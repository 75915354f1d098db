package postrider

import (
	"context"
	"time"
)

// DeliveryAttempt is what became of one attempt to hand a message to somebody whose answers are worth keeping, such as the
// receiver of a webhook. Successful attempts are among them. AttemptInfo, in contrast, is the short history that a relay
// keeps with a message that it could not deliver at once.
type DeliveryAttempt struct {
	MessageID string `json:"message_id"`
	// Relay is the name of the relay that made the attempt.
	Relay string `json:"relay"`
	// Attempt is the message's Attempt: from 1, and from 1 again after a redrive. One number can stand here several times:
	// an attempt that only found out that nobody can be reached is made again under the same.
	Attempt int `json:"attempt"`
	// At is when it began, on the sender's clock, and Took how long the answer took to come, or not to.
	At   time.Time     `json:"at"`
	Took time.Duration `json:"took"`
	// Outcome is the OutcomeKind in words, or "cancelled" when the sender stopped while it waited for the answer.
	Outcome string `json:"outcome"`
	// Status is the number of the answer, e.g. 503; 0 when there was none.
	Status int `json:"status,omitzero"`
	// Answer is the beginning of the answer, up to 512 bytes of anything.
	Answer []byte `json:"answer,omitempty"`
	// Error says what went wrong: UTF-8, up to 1,000 bytes; empty for an attempt that succeeded.
	Error string `json:"error,omitempty"`
	// RequestSHA256 is the SHA-256 sum of what was sent, so that sender and receiver can compare.
	RequestSHA256 []byte `json:"request_sha256,omitempty"`
}

// KeptAttempts is how many attempts of one message by one relay an AttemptLog keeps: the newest.
const KeptAttempts = 50

// AttemptLog keeps attempts for operators to read. Deliveries do not depend on it: what it loses is missing in the log and
// nowhere else. The stores implement it.
type AttemptLog interface {
	// RecordAttempts adds attempts and keeps each for a time, on the database's clock. The same attempt (message, relay,
	// Attempt and At) is kept once, so that a call whose answer was lost can be repeated.
	RecordAttempts(ctx context.Context, attempts []DeliveryAttempt, keep time.Duration) error
	// Attempts returns what is kept of a message's attempts, oldest first.
	Attempts(ctx context.Context, messageID string) ([]DeliveryAttempt, error)
	// DropAttempts drops up to 10,000 attempts whose time is over and returns how many.
	DropAttempts(ctx context.Context) (int, error)
}
