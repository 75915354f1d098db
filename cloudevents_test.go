package postrider

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var (
	httpMode  = CloudEventsBinary{}
	kafkaMode = CloudEventsBinary{Prefix: "ce_", UTF8: true}
)

func TestCloudEventsRoundTrip(t *testing.T) {
	t.Parallel()
	r := random(t)
	for range 1000 {
		m := randomMessage(r)
		structured := EncodeCloudEvent(m)
		requireAttributeRules(t, structured)
		got, err := DecodeCloudEvent(structured)
		if err != nil {
			t.Fatalf("%s: %v", structured, err)
		}
		requireEqual(t, got, m)

		for _, mode := range []CloudEventsBinary{httpMode, kafkaMode, {Prefix: "cloudEvents:"}} {
			headers := make(map[string]string)
			for name, value := range mode.Headers(m) {
				if _, ok := headers[name]; ok {
					t.Fatalf("header %s is there twice", name)
				}
				if !mode.UTF8 && (!isPrintable(value) || strings.TrimSpace(value) != value) {
					t.Fatalf("header %s: %q would not survive HTTP", name, value)
				}
				headers[name] = value
			}
			got, err := mode.Decode(maps.All(headers), m.Payload)
			if err != nil {
				t.Fatalf("%q: %v", headers, err)
			}
			requireEqual(t, got, m)
		}
	}
}

// requireAttributeRules checks a structured event against the specification: names, and values of extension attributes.
func requireAttributeRules(t *testing.T, structured []byte) {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal(structured, &members); err != nil {
		t.Fatalf("%s: %v", structured, err)
	}
	own := map[string]bool{"id": true, "type": true, "subject": true, "partitionkey": true, "topic": true, "tenant": true,
		"correlationid": true, "causationid": true, "data": true, "data_base64": true}
	for name, value := range members {
		text, isText := value.(string)
		switch {
		case !isAttributeName(name) && name != "data_base64":
			t.Fatalf("attribute name %q", name)
		case isText && !own[name] && !isAttributeValue(text):
			t.Fatalf("attribute %s has the value %q", name, text)
		case !isText && name != "schemaversion" && name != "data":
			t.Fatalf("attribute %s is a %T", name, value)
		}
	}
}

func TestCloudEventsEscapeEncodingOfTheHTTPBinding(t *testing.T) {
	t.Parallel()
	// The example of the HTTP protocol binding, section 3.1.3.2.
	const text, encoded = "Euro € 😀", "Euro%20%E2%82%AC%20%F0%9F%98%80"
	if got := percentEncode(text); got != encoded {
		t.Errorf("got %s, want %s", got, encoded)
	}
	for _, in := range []string{encoded, strings.ToLower(encoded[4:10]) + encoded[10:], `"Euro \€%20😀"`, text} {
		want := text
		if in[0] == '%' {
			want = text[4:]
		}
		if got := percentDecode(unquote(in)); got != want {
			t.Errorf("%s: got %q, want %q", in, got, want)
		}
	}
	if got := percentDecode("100%, %4"); got != "100%, %4" {
		t.Errorf("lone percent signs: got %q", got)
	}
}

func TestCloudEventsFromOthers(t *testing.T) {
	t.Parallel()
	const required = `"specversion":"1.0","type":"com.example.someevent","source":"/mycontext","id":"A1"`
	base := func(change func(*Message)) *Message {
		m := &Message{ID: "A1", Type: "com.example.someevent", Topic: "com.example.someevent", Source: "/mycontext", ContentType: "application/json"}
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		members string
		want    *Message
	}{
		"least":             {``, base(func(*Message) {})},
		"data without type": {`,"data":"just a string"`, base(func(m *Message) { m.Payload = []byte(`"just a string"`) })},
		"data as it stands": {`,"data":{ "a" : 1e2 }`, base(func(m *Message) { m.Payload = []byte(`{ "a" : 1e2 }`) })},
		"data null":         {`,"data":null`, base(func(m *Message) { m.Payload = []byte(`null`) })},
		"XML":               {`,"datacontenttype":"application/xml","data":"<much wow=\"xml\"/>"`, base(func(m *Message) { m.ContentType, m.Payload = "application/xml", []byte(`<much wow="xml"/>`) })},
		"XML null":          {`,"datacontenttype":"application/xml","data":null`, base(func(m *Message) { m.ContentType = "application/xml" })},
		"base64":            {`,"datacontenttype":"image/png","data_base64":"AQI="`, base(func(m *Message) { m.ContentType, m.Payload = "image/png", []byte{1, 2} })},
		"null attribute":    {`,"subject":null,"time":null,"unsetextension":null`, base(func(*Message) {})},
		"typed extensions": {`,"comexampleothervalue":-5,"flag":true,"dataschema":"https://x.example"`, base(func(m *Message) {
			m.Headers = map[string]string{"comexampleothervalue": "-5", "flag": "true", "dataschema": "https://x.example"}
		})},
		"offset and lower case": {`,"time":"2018-04-05t19:31:00.5+02:00"`, base(func(m *Message) { m.Time = time.Date(2018, 4, 5, 17, 31, 0, 5e8, time.UTC) })},
		"integers as text":      {`,"schemaversion":"2","aggregateversion":7`, base(func(m *Message) { m.SchemaVersion, m.AggregateVersion = 2, 7 })},
		"other meanings": {`,"sequence":"abc","schemaversion":"v2","aggregateversion":"07","recordedtime":"today"`, base(func(m *Message) {
			m.Headers = map[string]string{"sequence": "abc", "schemaversion": "v2", "aggregateversion": "07", "recordedtime": "today"}
		})},
		"headers": {`,"postriderheaders":"{\"X-A\":\"1\",\"b\":\"2\"}","b":"wins"`, base(func(m *Message) { m.Headers = map[string]string{"X-A": "1", "b": "wins"} })},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := DecodeCloudEvent([]byte("{" + required + c.members + "}"))
			if err != nil {
				t.Fatal(err)
			}
			requireEqual(t, got, c.want)
		})
	}
}

func TestCloudEventsRefuseWhatBreaksTheRules(t *testing.T) {
	t.Parallel()
	const required = `"specversion":"1.0","type":"t","source":"s","id":"1"`
	for text, want := range map[string]string{
		`[]`:                   `not a JSON object`,
		`{`:                    `unexpected end of JSON input`,
		`{` + required + `} 1`: `invalid character '1' after top-level value`,
		`{}`:                   `required attributes are missing: specversion, id, source, type`,
		`{"specversion":"1.0","type":"t","source":"","id":"1"}`:     `required attributes are missing: source`,
		`{"specversion":"0.3","type":"t","source":"s","id":"1"}`:    `specversion is "0.3", only 1.0 is understood`,
		`{` + required + `,"myExtension":"a"}`:                      `attribute name "myExtension": CloudEvents allows a–z and 0–9`,
		`{` + required + `,"id":"2"}`:                               `attribute id is there twice`,
		`{` + required + `,"data":1,"data":2}`:                      `data is there twice`,
		`{` + required + `,"a":{}}`:                                 `attribute a is a JSON object or array`,
		`{` + required + `,"a":1.5}`:                                `attribute a is a number that is not an integer`,
		`{` + required + `,"time":"yesterday"}`:                     `attribute time: `,
		`{` + required + `,"time":"9999-12-31T23:59:59-23:00"}`:     `attribute time: the year in UTC is not from 0 to 9999`,
		`{` + required + `,"data":1,"data_base64":"AQI="}`:          `data and data_base64 are both there`,
		`{` + required + `,"data_base64":"%"}`:                      `data_base64 is not a string of base64`,
		`{` + required + `,"data_base64":[1]}`:                      `data_base64 is not a string of base64`,
		`{` + required + `,"datacontenttype":"text/xml","data":{}}`: `data of content type "text/xml" is not a string`,
		`{` + required + `,"postriderheaders":"x"}`:                 `attribute postriderheaders: `,
	} {
		if _, err := DecodeCloudEvent([]byte(text)); err == nil || !strings.Contains(err.Error(), "decode CloudEvent: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want …%s…", text, err, want)
		}
	}
}

func TestCloudEventsBinaryHeaders(t *testing.T) {
	t.Parallel()
	least := func(more map[string]string) map[string]string {
		h := map[string]string{"Ce-Specversion": "1.0", "CE-ID": "1", "ce-source": "s", "ce-type": "t"}
		maps.Copy(h, more)
		return h
	}
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, c := range map[string]struct {
		more    map[string]string
		payload string
		want    *Message
	}{
		"case and others": {map[string]string{"Content-Type": "text/plain", "X-Other": "passed over"}, "x", &Message{ID: "1", Source: "s", Type: "t", Topic: "t", ContentType: "text/plain", Payload: []byte("x")}},
		"trace of the protocol": {map[string]string{"Traceparent": trace}, "", &Message{ID: "1", Source: "s", Type: "t", Topic: "t",
			Headers: map[string]string{"traceparent": trace}}},
		"trace of the event first": {map[string]string{"traceparent": trace, "ce-traceparent": "own"}, "", &Message{ID: "1", Source: "s", Type: "t", Topic: "t",
			Headers: map[string]string{"traceparent": "own"}}},
		"structured": {map[string]string{"content-type": "application/CloudEvents+json; charset=utf-8"}, `{"specversion":"1.0","id":"2","type":"t","source":"s"}`,
			&Message{ID: "2", Source: "s", Type: "t", Topic: "t", ContentType: "application/json"}},
	} {
		got, err := httpMode.Decode(maps.All(least(c.more)), []byte(c.payload))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if d := difference(got, c.want); d != "" {
			t.Errorf("%s: %s differs: %+v", name, d, got)
		}
	}
	for want, more := range map[string]map[string]string{
		"attribute id is there twice":                                 {"ce-Id": "2"},
		`attribute name "my_ext"`:                                     {"ce-my_ext": "2"},
		"attribute subject is not UTF-8":                              {"ce-subject": "%C0%A0"},
		"datacontenttype is in the content-type header":               {"ce-datacontenttype": "text/plain"},
		"of the structured formats only application/cloudevents+json": {"content-type": "application/cloudevents+avro"},
	} {
		if _, err := httpMode.Decode(maps.All(least(more)), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want …%s…", err, want)
		}
	}
}

func TestCloudEventsHeadersCanBeLeftEarly(t *testing.T) {
	t.Parallel()
	m := goldenMessages()["all"]
	total := len(maps.Collect(httpMode.Headers(m)))
	for stop := 1; stop <= total; stop++ {
		seen := 0
		for range httpMode.Headers(m) {
			if seen++; seen == stop {
				break
			}
		}
		if seen != stop {
			t.Errorf("left after %d headers, wanted to after %d", seen, stop)
		}
	}
}

// TestCloudEventsInCloudEvents: a message whose payload is someone else's CloudEvent keeps its own attributes.
func TestCloudEventsInCloudEvents(t *testing.T) {
	t.Parallel()
	for contentType, header := range map[string]string{
		CloudEventsJSON: "application/json", CloudEventsJSON + "; charset=utf-8": "application/json",
		"application/cloudevents-batch+json": "application/json", "application/cloudevents+avro": "application/octet-stream",
		"text/plain; name=\"ü 100%\"": "application/octet-stream", " text/plain ": "application/octet-stream",
	} {
		m := &Message{
			ID: "outer", Type: "relayed", Topic: "relayed", Source: "gate", Key: "k", ContentType: contentType,
			Headers: map[string]string{otherContentType: "a/b"}, Payload: []byte(`{"specversion":"1.0","id":"inner","type":"t","source":"s"}`),
		}
		for _, mode := range []CloudEventsBinary{httpMode, kafkaMode} {
			headers := maps.Collect(mode.Headers(m))
			if got := headers[contentTypeHeader]; got != header {
				t.Errorf("content type %q goes as %q, want %q", contentType, got, header)
			}
			got, err := mode.Decode(maps.All(headers), m.Payload)
			if err != nil {
				t.Fatalf("%q: %v", headers, err)
			}
			requireEqual(t, got, m)
		}
		got, err := DecodeCloudEvent(EncodeCloudEvent(m))
		if err != nil {
			t.Fatal(err)
		}
		requireEqual(t, got, m)
	}
}

func TestCloudEventsOfUnusualMessages(t *testing.T) {
	t.Parallel()
	// Rows not written by Publish: no source, a content type that would break a header.
	m := &Message{ID: "1", Type: "t", Topic: "t", ContentType: "a/b\r\nx: y"}
	for name, value := range httpMode.Headers(m) {
		if !isPrintable(value) {
			t.Errorf("%s: %q", name, value)
		}
	}
	got, err := DecodeCloudEvent(EncodeCloudEvent(&Message{ID: "1", Type: "t", Topic: "t"}))
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, got, &Message{ID: "1", Type: "t", Topic: "t", Source: "unknown", ContentType: "application/json"})
}

func FuzzDecodeCloudEvent(f *testing.F) {
	for _, m := range goldenMessages() {
		f.Add(EncodeCloudEvent(m))
	}
	f.Add([]byte(`{"specversion":"1.0","type":"t","source":"s","id":"1","data": "x","datacontenttype":"text/xml","n":-1,"b":true,"u":null}`))
	f.Add([]byte(`{"specversion":"1.0","type":"t","source":"s","id":"1","sequence":"1","postriderheaders":"{\"id\":\"\"}"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := DecodeCloudEvent(data)
		if err != nil {
			if m.ContentType != CloudEventsJSON || !bytes.Equal(m.Payload, data) {
				t.Fatalf("what cannot be read is returned as %+v", m)
			}
			return
		}
		again, err := DecodeCloudEvent(EncodeCloudEvent(m))
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, EncodeCloudEvent(m))
		}
		requireEqual(t, again, m)
	})
}

func FuzzCloudEventsBinaryDecode(f *testing.F) {
	for _, m := range goldenMessages() {
		f.Add(string(binaryForm(httpMode, m)), m.Payload, false)
		f.Add(string(binaryForm(kafkaMode, m)), m.Payload, true)
	}
	f.Fuzz(func(t *testing.T, head string, payload []byte, utf bool) {
		mode := httpMode
		if utf {
			mode = kafkaMode
		}
		m, err := mode.Decode(func(yield func(string, string) bool) {
			for line := range strings.Lines(head) {
				if name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ": "); ok && !yield(name, value) {
					return
				}
			}
		}, payload)
		if err != nil {
			requireKept(t, mode, m, head, payload)
			return
		}
		if !utf8.ValidString(m.ID + m.Key + m.Subject) {
			t.Fatal("text that is not UTF-8")
		}
		again, err := mode.Decode(mode.Headers(m), m.Payload)
		if err != nil {
			t.Fatalf("what was read cannot be read again: %v\n%s", err, binaryForm(mode, m))
		}
		requireEqual(t, again, m)
	})
}
