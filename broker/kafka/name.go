package kafkabroker

import "fmt"

// maxTopicName is the maximum length of a Kafka topic name.
const maxTopicName = 249

// TopicName returns the Kafka topic name for a message topic: prefix and topic, with every byte that Kafka does not
// allow escaped as "_x" and two hexadecimal digits. Also escaped are an underscore that would start such an escape, and
// the first dot if the name is "." or "..". Different topics have different names. Topic is the inverse.
func TopicName(prefix, topic string) string {
	onlyDots := prefix+topic == "." || prefix+topic == ".."
	clean := !onlyDots
	for i := 0; clean && i < len(topic); i++ {
		clean = !escaped(topic, i)
	}
	if clean {
		return prefix + topic
	}
	name := make([]byte, 0, len(prefix)+len(topic)+32)
	name = append(name, prefix...)
	for i := range len(topic) {
		if escaped(topic, i) || onlyDots && i == 0 {
			name = fmt.Appendf(name, "_x%02X", topic[i])
		} else {
			name = append(name, topic[i])
		}
	}
	return string(name)
}

// escaped reports whether TopicName escapes the byte at index i of topic.
func escaped(topic string, i int) bool {
	switch c := topic[i]; {
	case c == '_':
		return isEscape(topic[i:])
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-':
		return false
	default:
		return true
	}
}

// isEscape reports whether text starts with an escaped byte.
func isEscape(text string) bool {
	return len(text) >= 4 && text[0] == '_' && text[1] == 'x' && unhex(text[2]) >= 0 && unhex(text[3]) >= 0
}

// Topic returns the message topic of a Kafka topic name. A name without the prefix is unescaped as a whole.
func Topic(prefix, name string) string {
	if len(name) > len(prefix) && name[:len(prefix)] == prefix {
		name = name[len(prefix):]
	}
	topic := make([]byte, 0, len(name))
	for i := 0; i < len(name); i++ {
		if isEscape(name[i:]) {
			topic = append(topic, byte(unhex(name[i+2])<<4|unhex(name[i+3])))
			i += 3
			continue
		}
		topic = append(topic, name[i])
	}
	return string(topic)
}

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
