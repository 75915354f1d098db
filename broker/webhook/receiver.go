package webhook

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/postrider/postrider"
)

// The errors of Receiver.Receive.
var (
	// ErrSignature: the message is not signed, or by none of the secrets.
	ErrSignature = errors.New("webhook signature is missing or wrong")
	// ErrAge: the attempt is too old, or from the future; an old message may be one that somebody recorded.
	ErrAge = errors.New("webhook timestamp is too far from now")
	// ErrTooLarge: the body is larger than ReceiverConfig.MaxBytes, or than an http.MaxBytesHandler before lets through.
	ErrTooLarge = errors.New("webhook body is too large")
	// ErrMalformed: the message is signed, and is no CloudEvent.
	ErrMalformed = errors.New("webhook body is not a CloudEvent")
)

// ReceiverConfig configures a Receiver. Secrets is required.
type ReceiverConfig struct {
	// Secrets are those of Config; a message signed by any of them is accepted.
	Secrets []string
	// MaxAge is how far a message's timestamp may be from now, in both directions. Default: 5 minutes.
	MaxAge time.Duration
	// MaxBytes is the largest body. Default: 2 MiB.
	MaxBytes int64
	// AcceptBinary takes binary mode too, in which the signature does not cover the attributes, such as type and key: who
	// overhears a signed message could send it again under others. Default: ErrMalformed.
	AcceptBinary bool
}

// Receiver accepts what a Publisher sends.
type Receiver struct {
	cfg     ReceiverConfig
	secrets []secret
}

// NewReceiver returns a Receiver. Its error names every fault of cfg.
func NewReceiver(cfg ReceiverConfig) (*Receiver, error) {
	cfg.MaxAge, cfg.MaxBytes = cmp.Or(cfg.MaxAge, maxAge), cmp.Or(cfg.MaxBytes, 2<<20)
	secrets, err := parseSecrets(cfg.Secrets)
	if cfg.MaxAge < 0 || cfg.MaxBytes < 0 {
		err = errors.Join(err, errors.New("webhook: MaxAge and MaxBytes must not be negative"))
	}
	if err != nil {
		return nil, err
	}
	return &Receiver{cfg: cfg, secrets: secrets}, nil
}

// Receive reads a message from a request and checks its signature and age. Errors: ErrSignature, ErrAge, ErrTooLarge,
// ErrMalformed, and those of reading the body.
func (r *Receiver) Receive(req *http.Request) (*postrider.Message, error) {
	body, err := io.ReadAll(io.LimitReader(req.Body, r.cfg.MaxBytes+1))
	if _, limited := errors.AsType[*http.MaxBytesError](err); limited {
		return nil, fmt.Errorf("%w: %w", ErrTooLarge, err)
	}
	if err != nil {
		return nil, fmt.Errorf("read webhook: %w", err)
	}
	if int64(len(body)) > r.cfg.MaxBytes {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, r.cfg.MaxBytes)
	}
	id, timestamp := req.Header.Get(headerID), req.Header.Get(headerTimestamp)
	if !verified(r.secrets, id, timestamp, body, req.Header.Get(headerSignature)) {
		return nil, ErrSignature
	}
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %q is no number of seconds", ErrAge, timestamp)
	}
	if age := time.Since(time.Unix(seconds, 0)); age.Abs() > r.cfg.MaxAge {
		return nil, fmt.Errorf("%w: %s", ErrAge, age.Round(time.Second))
	}
	if t := req.Header.Get("Content-Type"); !r.cfg.AcceptBinary && !isStructured(t) {
		return nil, fmt.Errorf("%w: content type %q; only %s is accepted here, whose attributes are signed", ErrMalformed, t, postrider.CloudEventsJSON)
	}
	m, err := postrider.CloudEventsBinary{}.Decode(headersOf(req.Header), body)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if signedID(m.ID) != id {
		return nil, fmt.Errorf("%w: its id %q is not that of the signature, %q", ErrMalformed, m.ID, id)
	}
	return m, nil
}

// Handler receives messages and hands them to h. The answer says what h returned: 204 for nil, 422 for postrider.Dead, and
// 503 for any other error, with Retry-After when the error asks for a time. What cannot be received is answered with 400,
// 401 or 413, and with 408, upon which it is sent again, if the body did not arrive whole. The text of errors stays here.
func (r *Receiver) Handler(h postrider.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			http.Error(w, "post webhooks", http.StatusMethodNotAllowed)
			return
		}
		m, err := r.Receive(req)
		switch {
		case errors.Is(err, ErrSignature), errors.Is(err, ErrAge):
			http.Error(w, "signature or timestamp is wrong", http.StatusUnauthorized)
			return
		case errors.Is(err, ErrTooLarge):
			http.Error(w, "too large", http.StatusRequestEntityTooLarge)
			return
		case errors.Is(err, ErrMalformed):
			http.Error(w, "not a CloudEvent", http.StatusBadRequest)
			return
		case err != nil: // of reading the body: nothing is known against the message, which may be sent again
			http.Error(w, "the body did not arrive", http.StatusRequestTimeout)
			return
		}
		answer(w, postrider.OutcomeOf(h(req.Context(), m)))
	})
}

// answer tells the sender a handler's outcome.
func answer(w http.ResponseWriter, o postrider.Outcome) {
	switch o.Kind {
	case postrider.Delivered:
		w.WriteHeader(http.StatusNoContent)
	case postrider.DeadLettered:
		http.Error(w, "cannot be processed", http.StatusUnprocessableEntity)
	default:
		if o.After > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(o.After.Seconds()))))
		}
		http.Error(w, "try again", http.StatusServiceUnavailable)
	}
}

func isStructured(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && mediaType == postrider.CloudEventsJSON
}

func headersOf(h http.Header) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for name, values := range h {
			for _, value := range values {
				if !yield(name, value) {
					return
				}
			}
		}
	}
}
