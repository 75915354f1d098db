package postgres

import (
	"encoding/json"
	"maps"
	"testing"
)

// TestPlainHeaders: headers that are read without a decoder are what a decoder reads.
func TestPlainHeaders(t *testing.T) {
	t.Parallel()
	for text, plain := range map[string]bool{
		`{"a": "b"}`: true, `{"a": "", "": "b", "c": "x, y"}`: true, `{"é": "ü", "traceparent": "00-{}-[]"}`: true,
		`{"a": "b\"c"}`: false, `{"a\\": "b"}`: false, `{"a": "\u0001"}`: false, `{"a":"b"}`: false, `{"a": "\": \"", "b": "c"}`: false,
	} {
		var want map[string]string
		if err := json.Unmarshal([]byte(text), &want); err != nil {
			t.Fatal(err)
		}
		got, err := readHeaders([]byte(text))
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %q, %v", text, got, err)
		}
		if is := plainHeaders(text) != nil; is != plain {
			t.Errorf("%s: read without a decoder: %t", text, is)
		}
	}
	for _, text := range []string{
		``, `[]`, `"a"`, `{`, `{"a"`, `{"a": "b"`, `{"a": "b"} `, `{"a": "b", }`, `{"a": null}`, `{"a": 1, "b": "c"}`, `{"a": {"b": "c"}}`, `{"a": ["b"]}`,
		`{"a": "b" "c": "d"}`, `{a": "b"}`,
	} {
		if headers := plainHeaders(text); headers != nil {
			t.Errorf("%s: %q", text, headers)
		}
	}
	if headers, err := readHeaders([]byte(`{"a": null}`)); err == nil {
		t.Errorf("a header that is null: %q", headers)
	}
}
