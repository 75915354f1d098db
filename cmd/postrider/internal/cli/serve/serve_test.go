package serve_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

var signIn = regexp.MustCompile(`http://127\.0\.0\.1:\d+/signin\?code=\S+`)

// TestServe: the printed link signs in once, as an operator of a file; an access token of the command line signs in at the API.
func TestServe(t *testing.T) {
	t.Parallel()
	store := clitest.NewOutbox(t)
	r := clitest.Start(t, nil, "serve", "--store", store, "--listen", "127.0.0.1:0", "--print-code")
	<-r.Address
	link, err := url.Parse(signIn.FindString(r.Err.String()))
	clitest.Must(t, err)
	jar, err := cookiejar.New(nil)
	clitest.Must(t, err)
	browser := &http.Client{Jar: jar}
	base := "http://" + link.Host
	answer, err := browser.PostForm(base+"/signin", url.Values{"code": {link.Query().Get("code")}})
	clitest.Must(t, err)
	body, err := io.ReadAll(answer.Body)
	clitest.Must(t, err)
	clitest.Must(t, answer.Body.Close())
	clitest.Contains(t, string(body), "No relay has run yet", "operator")

	token := strings.TrimSpace(clitest.OK(t, "token", "create", "--store", store, "--name", "ci"))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/api/v1/me", nil)
	clitest.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err = http.DefaultClient.Do(request)
	clitest.Must(t, err)
	body, err = io.ReadAll(answer.Body)
	clitest.Must(t, err)
	clitest.Must(t, answer.Body.Close())
	clitest.Contains(t, string(body), `"role": "viewer"`)
	list := clitest.OK(t, "token", "list", "--store", store)
	clitest.Contains(t, list, "ci", "valid")
	clitest.OK(t, "token", "revoke", "--store", store, strings.Fields(strings.Split(list, "\n")[1])[0])
	answer, err = http.DefaultClient.Do(request)
	clitest.Must(t, err)
	clitest.Must(t, answer.Body.Close())
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("with a revoked token: %d", answer.StatusCode)
	}
	if code := r.End(t); code != program.ExitDone {
		t.Errorf("exit code %d:\n%s", code, r.Err.String())
	}
}

func TestServeRefusesToBeUnsafe(t *testing.T) {
	t.Parallel()
	store := clitest.NewOutbox(t)
	for _, address := range []string{":8686", "0.0.0.0:8686", "[::]:8686", "192.0.2.1:8686"} {
		clitest.Fails(t, program.ExitUsage, "can be reached from other hosts", "serve", "--store", store, "--listen", address)
	}
	clitest.Fails(t, program.ExitUsage, "both a certificate and its key", "serve", "--store", store, "--tls-cert", "a.crt")
}

// TestConnectionsAreBounded: connections that send nothing do not keep others out. The oldest one is closed.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	r := clitest.Start(t, nil, "serve", "--store", clitest.NewOutbox(t), "--listen", "127.0.0.1:0", "--print-code")
	<-r.Address
	link, err := url.Parse(signIn.FindString(r.Err.String()))
	clitest.Must(t, err)
	var first net.Conn
	for i := range 300 {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", link.Host)
		clitest.Must(t, err)
		defer c.Close()
		if i == 0 {
			first = c
		}
	}
	clitest.Must(t, first.SetReadDeadline(time.Now().Add(8*time.Second))) // before the server stops waiting for a request
	if _, err := first.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the oldest of 300 connections stays open")
	}
	r.End(t)
}
