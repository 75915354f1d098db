package webhook_test

import (
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/broker/webhook"
)

func TestParseURL(t *testing.T) {
	t.Parallel()
	got, cfg, err := webhook.ParseURL("https://h/x?secret=theirs#secret=whsec_a+b/c=,b&binary=true&authorization=Bearer%20x&timeout=2s&concurrency=3"+
		"&max_message_bytes=9&plain_http=1&allow=10.0.0.0/8,127.0.0.1,::1&secret_file=s&ca=a&cert=c&key=k&keep_attempts=1h", webhook.Config{Attempts: &attemptLog{}})
	if err != nil {
		t.Fatal(err)
	}
	want := webhook.Config{
		Secrets: []string{"whsec_a+b/c=", "b"}, SecretFile: "s", Binary: true, Header: http.Header{"Authorization": {"Bearer x"}},
		Timeout: 2 * time.Second, Concurrency: 3, MaxMessageBytes: 9, PlainHTTP: true, CAFile: "a", CertFile: "c", KeyFile: "k",
		Allow: []netip.Prefix{
			netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128"),
		},
		Attempts: &attemptLog{}, KeepAttempts: time.Hour,
	}
	if got != "https://h/x?secret=theirs" || !reflect.DeepEqual(cfg, want) {
		t.Errorf("%s with %+v\nwant %+v", got, cfg, want)
	}
	if _, cfg, err := webhook.ParseURL("https://h#keep_attempts=0s", webhook.Config{Attempts: &attemptLog{}}); err != nil || cfg.Attempts != nil {
		t.Errorf("keep_attempts=0s: log %v, error %v", cfg.Attempts, err)
	}
	_, _, err = webhook.ParseURL("https://h#secrt=x&timeout=soon&concurrency=x&binary=maybe&allow=here&secret=%zz&whsec_x", webhook.Config{})
	wantError(t, err, `unknown URL option "secrt"; known are allow, authorization`, `timeout: "soon"`, `concurrency: "x"`, `binary: "maybe"`,
		`allow: "here"`, "secret: invalid URL escape", "a URL option has no value")
	if strings.Contains(err.Error(), "whsec") {
		t.Errorf("the error tells a secret: %v", err)
	}
}

func TestSecretsOfAFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte(secretA+"\n"+secretB+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var signatures string
	url := serve(t, func(_ http.ResponseWriter, req *http.Request) { signatures = req.Header.Get("Webhook-Signature") })
	p, err := webhook.Open(url+"#plain_http=true&allow=127.0.0.1&secret_file="+file, webhook.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Publish(t.Context(), []*postrider.Message{message()}); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(signatures) != 2*len("v1,")+2*44+1 {
		t.Errorf("signatures %q, want two", signatures)
	}
	_, err = webhook.Open("https://h#secret_file="+file+".none&ca="+file, webhook.Config{})
	wantError(t, err, "read the secrets", "has no certificate in PEM form")
}
