package stored

import (
	"encoding/json"
	"fmt"
)

// Topics encodes topic patterns as a JSON array; "" for none.
func Topics(patterns []string) (string, error) {
	if len(patterns) == 0 {
		return "", nil
	}
	text, err := json.Marshal(patterns)
	if err != nil {
		return "", fmt.Errorf("topics: %w", err)
	}
	return string(text), nil
}

// ParseTopics parses the output of Topics.
func ParseTopics(text string) (patterns []string, err error) {
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &patterns); err != nil {
		return nil, fmt.Errorf("topics %q: %w", text, err)
	}
	return patterns, nil
}
