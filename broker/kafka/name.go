package kafkabroker

import "fmt"

// maxTopicName is the length of the longest topic name that Kafka takes.
const maxTopicName = 249

// TopicName returns the name of Kafka's topic for a topic of messages: prefix and topic, in which every byte that Kafka
// forbids in names stands as "_x" and two hexadecimal digits. So does an underscore that would read as the beginning of
// that, and the first dot of a name of nothing but one or two dots. Different topics have different names; Topic leads back.
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

// escaped says whether the byte at i of topic is escaped in a name.
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

// isEscape says whether text begins with an escaped byte.
func isEscape(text string) bool {
	return len(text) >= 4 && text[0] == '_' && text[1] == 'x' && unhex(text[2]) >= 0 && unhex(text[3]) >= 0
}

// Topic returns the topic of messages whose name in Kafka is given. A name that does not have the prefix leads back to
// itself.
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
