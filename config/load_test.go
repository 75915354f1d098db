package config

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

const full = `
store:
  url: sqlite:///tmp/shop.db
  partitions: 4
  keep_delivered: 0s
relays:
  - name: to-nats
    publisher: nats://127.0.0.1:4222?stream=ORDERS
    topics: [order.*, payment.*]
    concurrency: 32
    backoff_max: 30s
    on_dead: hold
    max_in_flight_bytes: 32MiB
  - name: to-audit
    publisher:
      url: nats://audit:4222
      options: {stream: AUDIT}
http: {listen: ":8080"}
log: {level: debug, format: json}
`

func parse(t *testing.T, text string, environ ...string) (*Config, []string) {
	t.Helper()
	c, warnings, err := Parse("postrider.yaml", []byte(text), environ)
	if err != nil {
		t.Fatal(err)
	}
	return c, warnings
}

func TestParseReadsEveryKindOfValue(t *testing.T) {
	t.Parallel()
	c, _ := parse(t, full)
	r := c.Relays[0]
	if c.Store.Partitions != 4 || r.Concurrency != 32 || r.Publisher.URL != "nats://127.0.0.1:4222?stream=ORDERS" ||
		r.BackoffMax != 30*time.Second || r.OnDead != "hold" || r.MaxInFlightBytes != 32<<20 || *c.Store.KeepDelivered != 0 {
		t.Errorf("read %+v", c)
	}
	if !reflect.DeepEqual(r.Topics, []string{"order.*", "payment.*"}) || c.Relays[1].Publisher.Options["stream"] != "AUDIT" {
		t.Errorf("read %+v", c.Relays)
	}
	if other, _ := parse(t, "store: {url: \"sqlite:x\"}"); other.Store.KeepDelivered != nil {
		t.Error("a time that is not given must differ from 0")
	}
}

func TestParseReportsEveryFaultWithItsPlace(t *testing.T) {
	t.Parallel()
	_, _, err := Parse("postrider.yaml", []byte(`store:
  url: sqlite:x.db
  partitions: 0
  colour: blue
relays:
  - name: a
    publisher: nats://h
    concurency: 3
    lease_ttl: soon
    on_dead: panic
    max_batch: [1]
    topics: [""]
  - name: a
    backoff_base: 2s
    backoff_max: 1s
    store: other
log:
  level: loud
http: 8080
`), []string{"POSTRIDER_LOG_FORMAT=xml"})
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error is %v", err)
	}
	want := []string{
		`postrider.yaml:3:15: store.partitions: 0 is out of bounds; allowed: 1 to 1024`,
		`postrider.yaml:4:3: store.colour: unknown key; allowed: data_path, deliver_after_flush, keep_delivered, keep_redrives, keep_topics, listen_url, listen_url_file, max_log_bytes, name, notify, partitions, password, password_file, prefix, schema, url, url_file`,
		`postrider.yaml:8:5: relays[0].concurency: unknown key (did you mean concurrency?); allowed: accept_unordered, `,
		`postrider.yaml:9:16: relays[0].lease_ttl: "soon" is not a duration; write a number with a unit`,
		`postrider.yaml:10:14: relays[0].on_dead: "panic" is not allowed; allowed: continue, hold`,
		`postrider.yaml:11:16: relays[0].max_batch: here belongs a single value`,
		`postrider.yaml:12:14: relays[0].topics[0]: an empty pattern`,
		`postrider.yaml:13:5: relays[1].name: "a" stands here twice`,
		`postrider.yaml:15:5: relays[1].backoff_max: 1s is below backoff_base (2s)`,
		`postrider.yaml:16:5: relays[1].store: there is no store "other"`,
		`postrider.yaml:18:10: log.level: "loud" is not allowed; allowed: debug, info, warn, error`,
		`postrider.yaml:19:7: http: here belongs a mapping with the keys listen`,
		`environment POSTRIDER_LOG_FORMAT: log.format: "xml" is not allowed; allowed: text, json`,
	}
	got := strings.Split(bad.Error(), "\n")
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("fault %d:\n got %s\nwant %s…", i, got[i], want[i])
		}
	}
}

func TestParseReportsOptionsWithTheirPlace(t *testing.T) {
	t.Parallel()
	_, _, err := Parse("postrider.yaml", []byte(`relays:
  - name: a
    publisher:
      url: nats://h?strem=S
      options:
        stream: S
        timeout: 1s
  - name: b
    publisher: https://h/x?strem=theirs#secrt=S
  - name: c
    publisher: https://h
  - name: d
    publisher: natz://u:pa55@h
  - name: e
    publisher: h:4222
  - name: f
    publisher: https://h/x#whsec_pa55
`), []string{"POSTRIDER_RELAYS_C_PUBLISHER_OPTIONS_STREAM=S"})
	if err == nil {
		t.Fatal("no error")
	}
	want := []string{
		"postrider.yaml:4:7: relays[0].publisher.url: in the URL: unknown option strem (did you mean stream?) of nats; allowed: stream, ",
		"postrider.yaml:7:9: relays[0].publisher.options.timeout: unknown option timeout of nats; allowed: stream, ",
		"postrider.yaml:9:5: relays[1].publisher.url: in the URL: unknown option secrt (did you mean secret?) of webhook; allowed: ",
		`postrider.yaml:13:5: relays[3].publisher.url: "natz" is no kind of broker (did you mean nats://?); write nats://`,
		"postrider.yaml:15:5: relays[4].publisher.url: this is not the URL of a broker; write nats://",
		"postrider.yaml:17:5: relays[5].publisher.url: in the URL: unknown option (not shown) of webhook",
		"environment POSTRIDER_RELAYS_C_PUBLISHER_OPTIONS_STREAM: relays[2].publisher.options.stream: unknown option stream of webhook",
	}
	got := strings.Split(err.Error(), "\n")
	if len(got) != len(want) {
		t.Errorf("%d faults, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("fault %d:\n got %s\nwant %s…", i, got[i], want[i])
		}
	}
	if strings.Contains(err.Error(), "pa55") {
		t.Error("a password is shown")
	}
}

func TestParseRefusesWhatIsNotOneYAMLDocument(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"store: {url: [":                             "postrider.yaml:1:",
		"log: {level: info}\n---\nlog: {}\n":         "more than one YAML document",
		"log:\n  level: info\nlog:\n  level: warn\n": "postrider.yaml:3:1: not YAML: mapping key \"log\" already defined",
		"- a\n":                       "postrider.yaml:1:1: here belongs a mapping",
		"a: &x 1\nhttp: {listen: *x}": "here belongs a single value",
		strings.Repeat("[", 500_000):  "postrider.yaml:1:33: lists and mappings are nested deeper than 32",
		strings.Repeat("{a: ", 100):   "nested deeper than 32",
		strings.Repeat("- ", 100_000): "nested deeper than 32",
		strings.Repeat("? ", 100_000): "nested deeper than 32",
	} {
		if _, _, err := Parse("postrider.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
	if c, _ := parse(t, "# nothing but a comment\n"); len(c.Relays) != 0 {
		t.Error("an empty file is a configuration")
	}
}

func TestListenIsCheckedWithTheOtherKeys(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"8080": `postrider.yaml:1:8: http.listen: "8080" is not host:port; for every address of this host write :8080`,
		"foo":  `http.listen: "foo" is not host:port; write e.g. :8080`, "h:": "has no port from 0 to 65535", "h:99999": "has no port from 0 to 65535",
	} {
		if _, _, err := Parse("postrider.yaml", []byte("http: {listen: \""+address+"\"}"), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", address, err, want)
		}
	}
	for _, address := range []string{":8080", "127.0.0.1:0", "[::1]:8080", "localhost:http"} {
		parse(t, "http: {listen: \""+address+"\"}")
	}
	_, _, err := Parse("", nil, []string{"POSTRIDER_HTTP_LISTEN=8080"})
	if err == nil || !strings.HasPrefix(err.Error(), "environment POSTRIDER_HTTP_LISTEN: http.listen: ") {
		t.Errorf("error %v does not name the variable", err)
	}
}

func TestAStoreOfTheEnvironmentNextToSeveralOfTheFile(t *testing.T) {
	t.Parallel()
	text, environ := []byte("stores: [{name: a, url: \"sqlite:a\"}, {name: b, url: \"sqlite:b\"}]"), []string{"POSTRIDER_STORE_URL=sqlite:c"}
	_, _, err := Parse("postrider.yaml", text, environ)
	want := "environment POSTRIDER_STORE_URL: store.url: the file has several stores (a, b), and this is none of them"
	if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
		t.Errorf("error %v, want %q", err, want)
	}
	chosen := decoder{storeChosen: true}
	c, _, err := chosen.read("postrider.yaml", text, environ)
	if err != nil || len(c.AllStores()) != 2 {
		t.Errorf("with a store that a flag names: %v, %v", c, err)
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Size{"0": 0, "12": 12, "5 B": 5, "2KiB": 2048, "3MB": 3e6, "1TiB": 1 << 40} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1.5GiB", "-1", "9999999TiB", "3 parsecs"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(full)
	f.Add("relays: 0")
	f.Add("relays: [{topics: !x }]\nstore: !y\nhttp: 0")
	f.Add("a: &x [*x]")
	f.Add("? [a]\n: b")
	f.Fuzz(func(t *testing.T, text string) {
		c, _, err := Parse("fuzz.yaml", []byte(text), nil)
		if (c == nil) == (err == nil) {
			t.Fatalf("configuration %v with error %v", c, err)
		}
	})
}

func TestFileIsLimited(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "postrider.yaml")
	if err := os.WriteFile(file, []byte(strings.Repeat("# comment\n", 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(file, nil, false); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("error %v", err)
	}
}

func TestSecretsThatOthersCanReadAreWarnedOf(t *testing.T) {
	t.Parallel()
	relay := func(publisher string) string { return "relays: [{name: r, publisher: " + publisher + "}]\n" }
	for text, secret := range map[string]bool{
		"store: {url: 'postgres://u:pa55@h/d'}":                                 true,
		"store: {url: 'postgres://u@h/d?password=pa55'}":                        true,
		"store: {url: 'postgres://u@h/d', listen_url: 'postgres://u:pa55@h/d'}": true,
		"store: {url: 'postgres://u@h/d'}":                                      false,
		relay("'redis://:pa55@a,b'"):                                            true,
		relay("'nats://h:4222?stream=S&token=pa55'"):                            true,
		relay("{url: 'kafka://h:9092', options: {password: pa55}}"):             true,
		relay("'https://h/path#secret=pa55'"):                                   true,
		relay("'https://h/path#secret_file=/run/secret'"):                       false,
		relay("'redis://a:6379,b:6379'"):                                        false,
	} {
		for _, mode := range []os.FileMode{0o600, 0o640, 0o644} {
			file := filepath.Join(t.TempDir(), "postrider.yaml")
			if err := errors.Join(os.WriteFile(file, []byte(text), mode), os.Chmod(file, mode)); err != nil {
				t.Fatal(err)
			}
			_, warnings, err := Read(file, []string{"POSTRIDER_STORE_URL=sqlite:x.db"}, false)
			if err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			all := strings.Join(warnings, "\n")
			if warned := strings.Contains(all, "every user of this host can read it"); warned != (secret && mode == 0o644) {
				t.Errorf("%s with mode %o: warnings %q", text, mode, warnings)
			}
			if strings.Contains(all, "pa55") {
				t.Error("a password is shown")
			}
		}
	}
}

// TestSecretsFromFiles: every secret can be in a file that a key or a variable names.
func TestSecretsFromFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	url, listen := file("url", "postgres://u@h/d\n"), file("listen", "postgres://u@listen/d")
	password, token, empty := file("password", "a b\r\n"), file("token", "t"), file("empty", "\n")
	c, _, err := Parse("f.yaml", []byte(`
store: {url_file: "`+url+`", password_file: "`+password+`", listen_url_file: "`+listen+`"}
relays:
  - {name: a, publisher: {url: "nats://h?stream=S", options: {token_file: "`+token+`", max_age: 1h}}}
  - {name: b, publisher: {url: "kafka://h"}}
`), []string{"POSTRIDER_RELAYS_B_PUBLISHER_OPTIONS_PASSWORD_FILE=" + password})
	if err != nil {
		t.Fatal(err)
	}
	s, a, b := c.Store, c.Relays[0].Publisher, c.Relays[1].Publisher
	if s.URL != "postgres://u@h/d" || s.Password != "a b" || s.ListenURL != "postgres://u@listen/d" ||
		!maps.Equal(a.Options, map[string]string{"token": "t", "max_age": "1h"}) || !maps.Equal(b.Options, map[string]string{"password": "a b"}) {
		t.Errorf("read as %+v, %+v, %+v", s, a, b)
	}
	for text, words := range map[string]string{
		`store: {url: "sqlite:x", url_file: "` + url + `"}`:                                                   "there is also url; give one of them",
		`store: {url_file: "` + empty + `"}`:                                                                  "is empty",
		`store: {url_file: "` + dir + `/none"}`:                                                               "store.url_file",
		`relays: [{name: a, publisher: {url_file: "` + dir + `/none"}}]`:                                      "relays[0].publisher.url_file",
		`relays: [{name: a, publisher: {url: "nats://h", options: {stream_file: x}}}]`:                        "unknown option stream_file",
		`relays: [{name: a, publisher: {url: "nats://h", options: {token_file: "` + token + `", token: x}}}]`: "there is also token",
	} {
		if _, _, err := Parse("f.yaml", []byte(text), nil); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %q", text, err, words)
		}
	}
}

// TestErrorsHaveNoSecret: an error in a file or a variable does not repeat a secret next to it.
func TestErrorsHaveNoSecret(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"store:\n  url: \"postgres://u:QZX@h/d\n  prefix: a", "store:\n\turl: postgres://u:QZX@h/d", "relays:\n  - name: a\n    publisher: u:QZX@h\n",
		"relays: [{name: a, publisher: \"host=h password=QZX://y\"}]", "relays: [{name: a, publisher: {url: \"nats://h\", options: {password: [QZX]}}}]",
		"store: {url: postgres://u:QZX@h/d, partitions: x}", "store: postgres://u:QZX@h/d", "relays: [{name: a, publisher: {url: \"nats://h?QZX!=1\"}}]",
	} {
		if _, _, err := Parse("f.yaml", []byte(text), nil); err == nil || strings.Contains(err.Error(), "QZX") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestRatesAndPoliciesAreChecked(t *testing.T) {
	t.Parallel()
	_, _, err := Parse("postrider.yaml", []byte(`store: {url: "sqlite:x.db"}
relays:
  - name: a
    publisher: nats://h
    max_rate: 100
  - name: b
    publisher: nats://h
    burst: 5
    policies:
      - {types: [""], backoff: fixed}
      - {backoff: fixed, backoff_base: 1s, backoff_max: 2s}
      - {backoff_base: 2s, backoff_max: 1s, discard_errors: [""]}
      - {backoff: linear}
  - name: c
    publisher: nats://h
    max_rate: 0/s
`), nil)
	for _, part := range []string{
		`5:15: relays[0].max_rate: "100" is not a rate`, "relays[1].burst: is nothing without max_rate", "policies[0].types: an empty pattern",
		"policies[0].backoff: fixed needs backoff_base", "policies[1].backoff_max: is nothing with", "policies[2].backoff_max: 1s is below",
		"policies[2].discard_errors: every error", `policies[3].backoff: "linear" is not allowed`, "relays[2].max_rate: 0/s is out of bounds; allowed: 1/h or more",
	} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v\nlacks %q", err, part)
		}
	}
	for text, want := range map[string]float64{"100/s": 100, "30/m": 0.5, "3600/h": 1} {
		if r, err := ParseRate(text); err != nil || r.PerSecond() != want {
			t.Errorf("%s: %v, %v", text, r, err)
		}
	}
}
