package machine

import "testing"

// TestChanged: the differences of two documents make the second out of the first.
func TestChanged(t *testing.T) {
	t.Parallel()
	documents := []string{
		``, `{}`, `{"a":1}`, `{"a":null,"b":[1,{"c":2}]}`, `{"a":{"b":{"c":12345678901234567890}}}`, `{"a":{"b":7},"d":""}`, `{"a":{"x":null}}`, `[1]`, `null`,
	}
	for _, before := range documents {
		for _, after := range documents[1:] {
			changed, err := Differences([]byte(before), []byte(after))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Changed([]byte(before), changed)
			if err != nil || string(got) != after {
				t.Errorf("from %s: %s (%v), want %s", before, got, err, after)
			}
		}
	}
}
