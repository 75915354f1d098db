package stored

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider"
)

// The times that RFC 3339, and so JSON and CloudEvents, can express.
var (
	firstTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	lastTime  = time.Date(9999, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
)

// NearestTime returns the time in the years 1 to 9999 that is nearest to t.
func NearestTime(t time.Time) time.Time {
	switch year := t.UTC().Year(); {
	case year < 1:
		return firstTime
	case year > 9999:
		return lastTime
	}
	return t
}

// FixTimes puts the times of a message that was read from a row into the years 1 to 9999, without which it has no JSON form. The
// error names what was outside of them. A delivery time is no error there: it has passed, or never comes.
func FixTimes(m *postrider.Message) error {
	if !m.DeliverAt.IsZero() {
		m.DeliverAt = NearestTime(m.DeliverAt) // the first time is the zero time: at once
	}
	var errs []error
	for _, f := range [...]struct {
		name string
		time *time.Time
	}{{"time", &m.Time}, {"created_at", &m.CreatedAt}} {
		if nearest := NearestTime(*f.time); !nearest.Equal(*f.time) {
			errs = append(errs, fmt.Errorf("%s is in the year %d, it must be from 1 to 9999", f.name, f.time.UTC().Year()))
			*f.time = nearest
		}
	}
	return errors.Join(errs...)
}

// Check says why a message that was read from a row exceeds the limits of messages, or has a text that is none. Publish and the
// SQL functions refuse such messages, but a program can write the row itself. Attributes may be missing: a consumer takes messages
// of other senders.
func Check(m *postrider.Message) error {
	fits := true
	for _, f := range [...]struct {
		text  string
		limit int
	}{
		{m.ID, postrider.MaxIDBytes}, {m.Type, postrider.MaxTypeBytes}, {m.Source, postrider.MaxSourceBytes},
		{m.Topic, postrider.MaxTopicBytes}, {m.Key, postrider.MaxKeyBytes}, {m.Subject, postrider.MaxSubjectBytes},
		{m.Tenant, postrider.MaxTenantBytes}, {m.ContentType, postrider.MaxContentTypeBytes},
		{m.CorrelationID, postrider.MaxCorrelationIDBytes}, {m.CausationID, postrider.MaxCausationIDBytes},
	} {
		fits = fits && len(f.text) <= f.limit && utf8.ValidString(f.text) && strings.IndexByte(f.text, 0) < 0
	}
	if fits {
		return nil
	}
	return m.Validate(postrider.Limits{MaxPayload: math.MaxInt})
}
