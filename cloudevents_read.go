package postrider

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// attributeReader collects attributes, in any order, into a message. It goes on after an attribute that it cannot read.
type attributeReader struct {
	m      *Message
	seen   nameSet
	others map[string]string // from otherHeaders
	// contentType is the value of otherContentType.
	contentType string
	// unread are the attributes that cannot be read, errs says why.
	unread map[string]bool
	errs   []error
}

func newAttributeReader() *attributeReader {
	return &attributeReader{m: &Message{}}
}

// nameSet is a set of names, few of them as a rule: then it allocates nothing.
type nameSet struct {
	few  [16]string
	n    int
	more map[string]bool // beyond len(few)
}

func (s *nameSet) has(name string) bool { return slices.Contains(s.few[:s.n], name) || s.more[name] }

// add adds a name that the set does not have.
func (s *nameSet) add(name string) {
	if s.n < len(s.few) {
		s.few[s.n] = name
		s.n++
		return
	}
	if s.more == nil {
		s.more = make(map[string]bool)
	}
	s.more[name] = true
}

// fail records that an attribute cannot be read.
func (r *attributeReader) fail(name string, err error) {
	if r.unread == nil {
		r.unread = make(map[string]bool)
	}
	r.unread[name] = true
	r.errs = append(r.errs, err)
}

// set takes one attribute in its canonical string form.
func (r *attributeReader) set(name, value string) {
	if err := r.read(name, value); err != nil {
		r.fail(name, err)
	}
}

func (r *attributeReader) read(name, value string) error {
	if !isAttributeName(name) || name == "data" {
		return fmt.Errorf("attribute name %q: CloudEvents allows a–z and 0–9, except \"data\"", name)
	}
	if r.seen.has(name) {
		return fmt.Errorf("attribute %s is there twice", name)
	}
	r.seen.add(name)
	if !utf8.ValidString(value) {
		return fmt.Errorf("attribute %s is not UTF-8", name)
	}
	if field := textField(r.m, name); field != nil {
		*field = value
		return nil
	}
	switch name {
	case "specversion":
		if value != specVersion {
			return fmt.Errorf("specversion is %q, only %s is understood", value, specVersion)
		}
	case "time":
		t, err := parseTime(value)
		if err != nil {
			return fmt.Errorf("attribute time: %w", err)
		}
		r.m.Time = t
	case otherContentType:
		r.contentType = value
	case otherHeaders:
		if err := json.Unmarshal([]byte(value), &r.others); err != nil {
			return fmt.Errorf("attribute %s: %w", otherHeaders, err)
		}
	default:
		if !r.setNumber(name, value) {
			r.header(name, value)
		}
	}
	return nil
}

// textField returns the field for an attribute that accepts any text, or nil.
func textField(m *Message, name string) *string {
	switch name {
	case "id":
		return &m.ID
	case "source":
		return &m.Source
	case "type":
		return &m.Type
	case "subject":
		return &m.Subject
	case "datacontenttype":
		return &m.ContentType
	case "partitionkey":
		return &m.Key
	case "correlationid":
		return &m.CorrelationID
	case "causationid":
		return &m.CausationID
	case "topic":
		return &m.Topic
	case "tenant":
		return &m.Tenant
	}
	return nil
}

// setNumber sets the extension attributes that are not text. It returns false for other attributes and for values that
// attributes would not have written.
func (r *attributeReader) setNumber(name, value string) bool {
	m := r.m
	switch name {
	case "recordedtime":
		t, err := parseTime(value)
		m.CreatedAt = t
		return err == nil && !t.IsZero()
	case "schemaversion", "aggregateversion", "sequence":
	default:
		return false
	}
	n, err := strconv.ParseInt(value, 10, 64)
	switch {
	case err != nil || n < 1:
		return false
	case name == "sequence" && string(appendSequence(nil, n)) == value:
		m.Sequence = n
	case name == "aggregateversion" && strconv.FormatInt(n, 10) == value:
		m.AggregateVersion = n
	case name == "schemaversion" && strconv.FormatInt(n, 10) == value && n <= math.MaxInt32:
		m.SchemaVersion = int(n)
	default:
		return false
	}
	return true
}

// parseTime reads RFC 3339. The year must still have four digits in UTC, so that the time can be formatted again.
func parseTime(value string) (time.Time, error) {
	var t time.Time
	if err := t.UnmarshalText([]byte(strings.ToUpper(value))); err != nil {
		return time.Time{}, err
	}
	t = t.UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		return time.Time{}, errors.New("the year in UTC is not from 0 to 9999")
	}
	return t, nil
}

func (r *attributeReader) header(name, value string) {
	if r.m.Headers == nil {
		r.m.Headers = make(map[string]string)
	}
	r.m.Headers[name] = value
}

// message returns the message after all attributes are set. With an error, it holds those that could be read.
func (r *attributeReader) message() (*Message, error) {
	for name, value := range r.others {
		if _, ok := r.m.Headers[name]; !ok {
			r.header(name, value)
		}
	}
	var missing []string
	for _, a := range []struct {
		name  string
		there bool
	}{
		{"specversion", r.seen.has("specversion")}, {"id", r.m.ID != ""}, {"source", r.m.Source != ""}, {"type", r.m.Type != ""},
	} {
		if !a.there {
			missing = append(missing, a.name)
		}
	}
	if missing != nil {
		r.errs = append(r.errs, fmt.Errorf("required attributes are missing: %s", strings.Join(missing, ", ")))
	}
	r.m.Topic = cmp.Or(r.m.Topic, r.m.Type)
	r.m.ContentType = cmp.Or(r.contentType, r.m.ContentType)
	return r.m, errors.Join(r.errs...)
}
