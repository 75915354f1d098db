package natsbroker

import (
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

func TestSubject(t *testing.T) {
	t.Parallel()
	tests := []struct{ topic, subject string }{
		{"orders", "p.orders"},
		{"orders.placed.v1", "p.orders.placed.v1"},
		{"größe/🚚", "p.größe/🚚"},
		{"two words", "p.two%20words"},
		{"a*b>c", "p.a%2Ab%3Ec"},
		{"100%", "p.100%25"},
		{".", "p.%2E"},
		{"..", "p.%2E%2E"},
		{".a..b.", "p.%2Ea.%2Eb%2E"},
		{"$JS.API", "p.%24JS.API"},
		{"a$", "p.a$"},
		{"\x00\t\r\n\x7f", "p.%00%09%0D%0A%7F"},
	}
	for _, tt := range tests {
		if got := Subject("p.", tt.topic); got != tt.subject {
			t.Errorf("Subject(%q) = %q, want %q", tt.topic, got, tt.subject)
		}
		if got, err := Topic("p.", tt.subject); got != tt.topic || err != nil {
			t.Errorf("Topic(%q) = %q, %v, want %q", tt.subject, got, err, tt.topic)
		}
	}
	for _, subject := range []string{"other.topic", "p.%", "p.%2", "p.%zz", "p.%2e"} {
		if got, err := Topic("p.", subject); err == nil {
			t.Errorf("Topic(%q) = %q, want an error", subject, got)
		}
	}
}

// FuzzSubject checks that every topic has a valid subject, from which Topic returns the topic.
func FuzzSubject(f *testing.F) {
	for _, topic := range []string{"orders.placed", "..", ">", "* *", "%2E", "$SYS.a.", "\x00ü"} {
		f.Add(topic)
	}
	f.Fuzz(func(t *testing.T, topic string) {
		if topic == "" {
			return // messages without a topic fail validation
		}
		for _, prefix := range []string{"", "p.q."} {
			subject := Subject(prefix, topic)
			if !server.IsValidLiteralSubject(subject) || strings.ContainsAny(subject, " \t\r\n\f\x00") {
				t.Errorf("topic %q: subject %q is not valid", topic, subject)
			}
			if got, err := Topic(prefix, subject); err != nil || got != topic {
				t.Errorf("topic %q: subject %q leads back to %q, %v", topic, subject, got, err)
			}
		}
	})
}

func TestCovers(t *testing.T) {
	t.Parallel()
	tests := []struct {
		filter, other string
		want          bool
	}{
		{"a.b", "a.b", true},
		{"a.b", "a.c", false},
		{"a.*", "a.b", true},
		{"a.*", "a.*", true},
		{"a.*", "a.b.c", false},
		{"a.*", "a.>", false},
		{"a.>", "a.b.c", true},
		{"a.>", "a.>", true},
		{"a.>", "a.*.c", true},
		{"a.>", "a", false},
		{"a.b", "a.*", false},
		{"a.b.>", "a.>", false},
		{"*.b", "a.b", true},
		{">", "a.b", true},
	}
	for _, tt := range tests {
		if got := covers(tt.filter, tt.other); got != tt.want {
			t.Errorf("covers(%q, %q) = %v, want %v", tt.filter, tt.other, got, tt.want)
		}
	}
}

func TestMessageID(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"0197a1b2-0000-7000": "0197a1b2-0000-7000", "order/1:a": "order/1:a", " a ": "%20a%20", "a%20": "a%2520", "ü": "%C3%BC",
	}
	for id, want := range tests {
		if got := messageID(id); got != want {
			t.Errorf("messageID(%q) = %q, want %q", id, got, want)
		}
	}
}
