package postrider

import (
	"maps"
	"testing"
)

func BenchmarkEncodeCloudEvent(b *testing.B) {
	m := benchmarkMessage()
	b.ReportAllocs()
	for b.Loop() {
		EncodeCloudEvent(m)
	}
}

func BenchmarkDecodeCloudEvent(b *testing.B) {
	text := EncodeCloudEvent(benchmarkMessage())
	b.ReportAllocs()
	for b.Loop() {
		if _, err := DecodeCloudEvent(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCloudEventsBinaryHeaders(b *testing.B) {
	m := benchmarkMessage()
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for name, value := range httpMode.Headers(m) {
			n += len(name) + len(value)
		}
	}
}

func BenchmarkCloudEventsBinaryDecode(b *testing.B) {
	m := benchmarkMessage()
	headers := maps.Collect(httpMode.Headers(m))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := httpMode.Decode(maps.All(headers), m.Payload); err != nil {
			b.Fatal(err)
		}
	}
}
