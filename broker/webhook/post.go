package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/postrider/postrider"
)

const (
	// excerpt is how much of a response is included in an error, in bytes. maxAnswer is how much of it is read so that
	// the connection can be reused.
	excerpt, maxAnswer = 512, 64 << 10
	// maxRetryAfter is the maximum delay that a receiver can request.
	maxRetryAfter = time.Hour
)

// exchange is a request and its response.
type exchange struct {
	request []byte // the body
	status  int    // 0 if there was no response
	text    []byte // the beginning of the response body
}

// post makes one attempt to send a message and returns its outcome.
func (p *Publisher) post(ctx context.Context, m *postrider.Message) error {
	began := time.Now()
	x, err := p.send(ctx, m, began)
	p.recorder.attempted(m, began, x, err)
	return err
}

func (p *Publisher) send(ctx context.Context, m *postrider.Message, now time.Time) (x exchange, err error) {
	x.request = m.Payload
	if !p.cfg.Binary {
		x.request = postrider.EncodeCloudEvent(m)
	}
	req, err := p.request(ctx, m, x.request, now)
	if err != nil {
		return x, postrider.Dead("request cannot be made", withoutURL(err))
	}
	sent := time.Since(p.began)
	resp, err := p.client.Do(req)
	if err != nil {
		return x, p.failed(ctx, sent, err)
	}
	defer resp.Body.Close()
	p.answered.Store(int64(time.Since(p.began)))
	// The status counts, even if reading the body fails.
	x.status = resp.StatusCode
	x.text, _ = io.ReadAll(io.LimitReader(resp.Body, excerpt))
	_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	if resp.StatusCode/100 != 2 {
		err = refused(resp, x.text)
	}
	return x, p.throttle.judge(m, resp.StatusCode, err)
}

func (p *Publisher) request(ctx context.Context, m *postrider.Message, body []byte, now time.Time) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.cfg.URL, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range p.cfg.Header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	if p.cfg.Binary {
		for name, value := range (postrider.CloudEventsBinary{}).Headers(m) {
			req.Header.Set(name, value)
		}
	} else {
		req.Header.Set("Content-Type", postrider.CloudEventsJSON+"; charset=utf-8")
	}
	id, timestamp := signedID(m.ID), strconv.FormatInt(now.Unix(), 10)
	req.Header.Set("User-Agent", "postrider")
	req.Header.Set("Idempotency-Key", headerValue(m.ID, ""))
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, timestamp)
	req.Header.Set(headerSignature, signatures(p.secrets, id, timestamp, body))
	return req, nil
}

// failed returns the error of a request without a response; sent is when it was sent, since p.began.
func (p *Publisher) failed(ctx context.Context, sent time.Duration, err error) error {
	wrapped := fmt.Errorf("post to webhook: %w", withoutURL(err))
	if ctx.Err() != nil {
		return fmt.Errorf("post to webhook: %w", ctx.Err())
	}
	if isUnconnected(err) || time.Duration(p.answered.Load()) <= sent { // no other request was answered meanwhile
		return postrider.Unavailable(wrapped)
	}
	return wrapped
}

// withoutURL removes the request URL from an error, because it may contain a password.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// isUnconnected reports whether no connection could be made.
func isUnconnected(err error) bool {
	operation, ok := errors.AsType[*net.OpError](err)
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	return certificate || ok && operation.Op == "dial"
}

// refused returns the error for a status other than 2xx.
func refused(resp *http.Response, text []byte) error {
	err := fmt.Errorf("webhook answered %d %s: %.*q", resp.StatusCode, http.StatusText(resp.StatusCode), excerpt, text)
	switch status := resp.StatusCode; {
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusTooManyRequests, status >= 500:
		return postrider.Retry(retryAfter(resp.Header.Get("Retry-After"), time.Now()), err)
	case status >= 400:
		return postrider.Dead("refused by the receiver", err)
	case status >= 300:
		return fmt.Errorf("%w; redirects are not followed, set the URL to where it leads: %.200q", err, resp.Header.Get("Location"))
	default:
		return err
	}
}

// retryAfter parses a number of seconds or a date; 0 if value is neither.
func retryAfter(value string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if seconds, err := strconv.ParseInt(value, 10, 32); err == nil {
		wait = time.Duration(seconds) * time.Second
	} else if at, err := http.ParseTime(value); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}
