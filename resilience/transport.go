package resilience

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider"
)

// Transport is an http.RoundTripper that sends requests under policies.
//
// Requests are repeated if their method is safe or idempotent, if they have an idempotency key, or with RetryUnsafe, and if their
// body can be read again (http.Request.GetBody). Each host is an instance of the operation. These are the classes of answers:
//
//	Failure    408, 425, 429 and 503 without Retry-After, any other 5xx, no answer
//	Throttled  429 and 503 with Retry-After
//	Declined   any other 4xx, a certificate that is not trusted
//
// The answer of the last attempt is returned whatever its status. The policy's times end when its header has arrived; reading its
// body is bounded by the request's context.
type Transport struct {
	// Base sends requests. Default: http.DefaultTransport.
	Base http.RoundTripper
	// Operation returns the operation of a request. Required.
	Operation func(*http.Request) *Operation
	// RetryUnsafe repeats requests of all methods.
	RetryUnsafe bool
	// KeyHeader is the name of the header that identifies a request. In the handler of a message, a request without it gets the
	// message's ID. Default: none is set; requests that have an Idempotency-Key are repeated.
	KeyHeader string
}

var _ http.RoundTripper = (*Transport)(nil)

// onceKey marks the context of a call that must not be repeated.
type onceKey struct{}

// idempotent are the methods whose requests may be repeated.
var idempotent = []string{
	"", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete,
}

// RoundTrip implements http.RoundTripper. Errors: those of Base, and *Error.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, r := r.Context(), r.Clone(r.Context())
	if m := postrider.MessageFromContext(ctx); m != nil && t.KeyHeader != "" && r.Header.Get(t.KeyHeader) == "" {
		r.Header.Set(t.KeyHeader, m.ID)
	}
	keyed := r.Header.Get(cmp.Or(t.KeyHeader, "Idempotency-Key")) != "" || r.Header.Get("Idempotency-Key") != ""
	hasBody := r.Body != nil && r.Body != http.NoBody
	if !keyed && !t.RetryUnsafe && !slices.Contains(idempotent, r.Method) || hasBody && r.GetBody == nil {
		ctx = context.WithValue(ctx, onceKey{}, true)
	}
	var first atomic.Pointer[io.ReadCloser] // an abandoned attempt may still read it
	if r.Body != nil {
		first.Store(&r.Body)
	}
	var last lastAnswer
	err := t.Operation(r).Instance(r.URL.Host).Run(ctx, func(ctx context.Context) error {
		attempt, err := last.begin(ctx)
		if err != nil {
			return err
		}
		var body io.ReadCloser
		if unread := first.Swap(nil); unread != nil {
			body = *unread
		} else if hasBody {
			if body, err = r.GetBody(); err != nil {
				return Decline(fmt.Errorf("read the body of the request again: %w", err))
			}
		}
		answer, err := t.send(ctx, r, body) // the caller closes the last one, lastAnswer the others
		if err != nil {
			return err
		}
		if !last.keep(attempt, answer) {
			return context.Cause(ctx)
		}
		return errorOf(answer)
	})
	if unsent := first.Swap(nil); unsent != nil { // RoundTrip closes it
		_ = (*unsent).Close()
	}
	if answer := last.end(); answer != nil {
		return answer, nil
	}
	if err == nil {
		err = errBroken
	}
	return nil, err
}

// lastAnswer is the answer of the newest attempt. Attempts before it may still run: they were abandoned, and nobody reads their answers.
type lastAnswer struct {
	mu      sync.Mutex
	attempt int
	ended   bool
	answer  *http.Response
}

// begin begins an attempt, unless ctx has ended: then it was abandoned, and another one may have begun.
func (l *lastAnswer) begin(ctx context.Context) (attempt int, err error) {
	l.mu.Lock()
	if ctx.Err() != nil {
		l.mu.Unlock()
		return 0, context.Cause(ctx)
	}
	before := l.answer
	l.answer = nil
	l.attempt++
	attempt = l.attempt
	l.mu.Unlock()
	discard(before)
	return attempt, nil
}

// keep keeps the answer of the newest attempt, and closes that of any other.
func (l *lastAnswer) keep(attempt int, answer *http.Response) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || attempt != l.attempt {
		_ = answer.Body.Close()
		return false
	}
	l.answer = answer
	return true
}

// end returns the answer, nil if there is none. None is kept any more.
func (l *lastAnswer) end() *http.Response {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	return l.answer
}

// send sends a request once. The end of ctx ends it until the header of the answer has arrived.
func (t *Transport) send(ctx context.Context, r *http.Request, body io.ReadCloser) (*http.Response, error) {
	base := t.Base
	if base == nil {
		base = http.DefaultTransport
	}
	sent, cancel := context.WithCancelCause(r.Context())
	detach := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	once := r.WithContext(sent)
	once.Body = body
	answer, err := base.RoundTrip(once)
	if !detach() && err == nil { // the body can no longer be read
		_ = answer.Body.Close()
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel(nil)
		if _, untrusted := errors.AsType[*tls.CertificateVerificationError](err); untrusted {
			err = Decline(err)
		}
		return nil, err
	}
	answer.Body = &answerBody{answer.Body, func() { cancel(nil) }}
	return answer, nil
}

// answerBody is the body of an answer, whose end releases its context.
type answerBody struct {
	io.ReadCloser
	release func()
}

// Close closes the body.
func (b *answerBody) Close() error {
	defer b.release()
	return b.ReadCloser.Close()
}

// maxDiscard is how much of the body of an answer is read so that its connection can be used again.
const maxDiscard = 64 << 10

// discard ends an answer that is not returned.
func discard(r *http.Response) {
	if r != nil {
		_, _ = io.CopyN(io.Discard, r.Body, maxDiscard)
		_ = r.Body.Close()
	}
}

// answerError is an answer that is no success.
type answerError struct {
	status int
	wait   time.Duration
}

// errorOf returns the error that an answer stands for, nil for a success.
func errorOf(r *http.Response) error {
	if r.StatusCode < 400 {
		return nil
	}
	e := &answerError{status: r.StatusCode}
	if r.StatusCode == http.StatusTooManyRequests || r.StatusCode == http.StatusServiceUnavailable {
		e.wait = retryAfter(r.Header)
	}
	return e
}

func (e *answerError) Error() string {
	return fmt.Sprintf("answered %d %s", e.status, http.StatusText(e.status))
}

// RetryAfter is the wait that the answer asks for.
func (e *answerError) RetryAfter() time.Duration { return e.wait }

// NonRetryable reports whether the dependency has answered, and another attempt gets the same answer.
func (e *answerError) NonRetryable() bool {
	switch e.status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return false
	default:
		return e.status < 500
	}
}

// retryAfter reads the header Retry-After: seconds, or a time that is compared with that of the answer.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		now = time.Now()
	}
	return max(at.Sub(now), 0)
}
