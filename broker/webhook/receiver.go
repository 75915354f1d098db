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

// Errors of Receiver.Receive.
var (
	// ErrSignature: the message has no signature, or none by a known secret.
	ErrSignature = errors.New("webhook signature is missing or wrong")
	// ErrAge: the timestamp is too old or in the future; an old message may be a replay attack.
	ErrAge = errors.New("webhook timestamp is too far from now")
	// ErrTooLarge: the body exceeds ReceiverConfig.MaxBytes or the limit of an http.MaxBytesHandler.
	ErrTooLarge = errors.New("webhook body is too large")
	// ErrMalformed: the message is signed but is not a CloudEvent.
	ErrMalformed = errors.New("webhook body is not a CloudEvent")
)

// ReceiverConfig configures a Receiver. Secrets is required.
type ReceiverConfig struct {
	// Secrets are the secrets of Config; a message signed with any of them is accepted.
	Secrets []string
	// MaxAge is the maximum difference between a message's timestamp and now, in both directions. Default: 5 minutes.
	MaxAge time.Duration
	// MaxBytes is the maximum size of a body. Default: 2 MiB.
	MaxBytes int64
	// AcceptBinary also accepts binary mode. There the signature does not cover attributes such as type and key: anyone
	// who intercepts a signed message could send it again with other attributes. Default: ErrMalformed.
	AcceptBinary bool
}

// Receiver accepts the requests of a Publisher.
type Receiver struct {
	cfg     ReceiverConfig
	secrets []secret
}

// NewReceiver returns a Receiver. The error lists everything that is wrong in cfg.
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

// Receive reads a message from a request and checks its signature and age. It returns ErrSignature, ErrAge, ErrTooLarge,
// ErrMalformed, or an error of reading the body.
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

// Handler receives messages and passes them to h. The response status is
//
//	204             h returned nil
//	422             h returned postrider.Dead
//	503             h returned another error; with Retry-After if the error has a delay
//	400, 401, 413   the message is malformed; its signature or timestamp is wrong; it is too large
//	408             the body did not arrive completely; the sender sends it again
//	405             the method is not POST
//
// Error texts are not sent to the sender.
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
		case err != nil: // reading the body failed: the message may be fine, and may be sent again
			http.Error(w, "the body did not arrive", http.StatusRequestTimeout)
			return
		}
		answer(w, postrider.OutcomeOf(h(req.Context(), m)))
	})
}

// answer sends a handler's outcome as a response.
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
