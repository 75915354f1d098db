package demo_test

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"regexp"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

var demoLink = regexp.MustCompile(`http://127\.0\.0\.1:\d+/signin\?code=\S+`)

// TestDemoServesItsUI: on a terminal, the demo prints a link that signs in to the web UI of its outbox.
func TestDemoServesItsUI(t *testing.T) {
	t.Parallel()
	var out, errs clitest.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Run(t.Context(), &program.Program{
			Stdout: &out, Stderr: &errs, Environ: []string{"USER=tester"}, Signals: make(chan os.Signal), Exit: func(int) { t.Error("ended at once") },
			Terminal: func(any) (int, bool) { return 100, true },
		}, []string{"demo", "--for", "6s", "--plain"})
	}()
	errs.Await(t.Context(), t, "/signin?code=")
	link, err := url.Parse(demoLink.FindString(errs.String()))
	clitest.Must(t, err)
	jar, err := cookiejar.New(nil)
	clitest.Must(t, err)
	answer, err := (&http.Client{Jar: jar}).PostForm("http://"+link.Host+"/signin", url.Values{"code": {link.Query().Get("code")}})
	clitest.Must(t, err)
	page, err := io.ReadAll(answer.Body)
	clitest.Must(t, err)
	clitest.Must(t, answer.Body.Close())
	clitest.Contains(t, string(page), "<h1", "Overview", "Demo", "tester")
	if code := <-ended; code != program.ExitDone {
		t.Errorf("exit code %d:\n%s%s", code, out.String(), errs.String())
	}
}
