package signin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/signin"
)

// TestRefusedExchanges: the log says why the provider gives no token; a wrong ID or secret is not the person's fault, and neither is a limit of the provider.
func TestRefusedExchanges(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]struct {
		status    int
		page, log string
	}{
		"invalid_client":      {http.StatusServiceUnavailable, "Nobody can sign in with Example now", "check its ID and its secret"},
		"unauthorized_client": {http.StatusServiceUnavailable, "Nobody can sign in with Example now", "check its ID and its secret"},
		"slow_down":           {http.StatusServiceUnavailable, "Nobody can sign in with Example now", "exchange the code"},
		"invalid_grant":       {http.StatusForbidden, "Example does not accept this sign-in", "signing in failed"},
	} {
		var log bytes.Buffer
		p := newProvider(t)
		p.refuses = code
		address := serveLogging(t, p, operations, slog.New(slog.NewTextHandler(&log, nil)))
		status, body, _ := get(t, browser(t), address+"/signin/begin")
		if status != want.status || !strings.Contains(body, want.page) || !strings.Contains(log.String(), want.log) || !strings.Contains(log.String(), code) {
			t.Errorf("%s: %d, logged %s:\n%s", code, status, &log, body)
		}
	}
}

// TestProviderHangs: who waits while another asks for the addresses stops with its own context, and pages are shown meanwhile.
func TestProviderHangs(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}, 2), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		http.Error(w, "down", http.StatusBadGateway)
	}))
	t.Cleanup(server.Close)
	p, err := signin.New(signin.Config{
		Issuer: server.URL, ClientID: "postrider", Redirect: "https://ops.example.org/signin/callback", Access: operations,
		Client: &http.Client{},
	})
	must(t, err)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, _, err := p.Begin(t.Context())
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	go func() {
		_, _, err := p.Begin(ctx)
		if p.SignOut() != "" {
			t.Error("an address that nobody has told")
		}
		second <- err
	}()
	select {
	case err := <-second:
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a sign-in waits for another")
	}
	close(release)
	if err := <-first; err == nil {
		t.Error("a provider that is down has addresses")
	}
}
