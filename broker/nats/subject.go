package natsbroker

import (
	"errors"
	"fmt"
	"strings"
)

// Subject returns the subject for a topic: prefix and topic, with special characters escaped as % and two hexadecimal
// digits. Escaped are space and control characters, '*', '>', '%', a leading '$', and a '.' that is leading, trailing or
// directly after another '.'. Different topics have different subjects. Topic is the inverse.
func Subject(prefix, topic string) string {
	clean := true
	for i := range len(topic) {
		if escaped(topic, i) {
			clean = false
			break
		}
	}
	if clean {
		return prefix + topic
	}
	const hex = "0123456789ABCDEF"
	subject := make([]byte, 0, len(prefix)+len(topic)+16)
	subject = append(subject, prefix...)
	for i := range len(topic) {
		if c := topic[i]; escaped(topic, i) {
			subject = append(subject, '%', hex[c>>4], hex[c&15])
		} else {
			subject = append(subject, c)
		}
	}
	return string(subject)
}

// escaped reports whether Subject escapes the byte at index i of topic.
func escaped(topic string, i int) bool {
	switch c := topic[i]; c {
	case '*', '>', '%':
		return true
	case '$':
		return i == 0
	case '.':
		return i == 0 || i == len(topic)-1 || topic[i-1] == '.'
	default:
		return c <= ' ' || c == 0x7f
	}
}

// Topic returns the topic of a subject. It returns an error if Subject cannot have made the subject.
func Topic(prefix, subject string) (string, error) {
	text, ok := strings.CutPrefix(subject, prefix)
	if !ok {
		return "", fmt.Errorf("subject %q does not begin with %q", subject, prefix)
	}
	if !strings.Contains(text, "%") {
		return text, nil
	}
	topic := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			topic = append(topic, text[i])
			continue
		}
		if i+2 >= len(text) {
			return "", fmt.Errorf("subject %q: %w", subject, errEscape)
		}
		high, low := unhex(text[i+1]), unhex(text[i+2])
		if high < 0 || low < 0 {
			return "", fmt.Errorf("subject %q: %w", subject, errEscape)
		}
		topic = append(topic, byte(high<<4|low))
		i += 2
	}
	return string(topic), nil
}

var errEscape = errors.New("% is not followed by two hexadecimal digits")

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	default:
		return -1
	}
}

// covers reports whether filter, a subject of a stream, matches everything that other matches; other may have wildcards
// too.
func covers(filter, other string) bool {
	f, o := strings.Split(filter, "."), strings.Split(other, ".")
	for i, token := range f {
		switch {
		case token == ">":
			return len(o) > i
		case len(o) <= i || o[i] == ">":
			return false
		case token != "*" && token != o[i]:
			return false
		}
	}
	return len(f) == len(o)
}
