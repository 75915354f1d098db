package caseapproval_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/postrider/postrider/examples/caseapproval"
	"github.com/postrider/postrider/internal/servertest"
)

const (
	cases     = 12
	patience  = 5 * time.Minute
	tenants   = 2
	approvals = 240
)

// TestTheReadModelIsRight approves cases while the broker becomes unavailable and both services are killed, and then
// feeds a second read model the same messages as duplicates and out of order.
func TestTheReadModelIsRight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.startBroker()
	service := w.start("approvals", "approvals.db")
	view := w.start("caseview", "caseview.db")
	for c := range cases {
		w.post(service, caseOf(c), "opener")
	}
	approve := func(n int) {
		t.Helper()
		for range n {
			w.post(service, caseOf(rand.IntN(cases))+"/approvals", fmt.Sprint("approver-", rand.IntN(5)))
		}
	}
	approve(approvals / 4)
	service = w.killAndStart(service) // with messages that may be published but not settled
	approve(approvals / 4)
	w.broker.end(os.Kill)
	approve(approvals / 4) // approving does not need the broker
	view = w.killAndStart(view)
	service = w.killAndStart(service)
	w.startBroker()
	approve(approvals / 4)
	view = w.killAndStart(view)
	w.refused(service)
	w.awaitRight(service, view, caseapproval.Stream)

	shuffled := w.shuffle()
	second := w.killAndStart(w.start("caseview", "second.db", "-stream", shuffled))
	w.awaitRight(service, second, shuffled)
	for _, s := range []*program{service, view, second} {
		if code := s.end(syscall.SIGTERM); code != 0 {
			t.Errorf("%s: exit code %d", s.name, code)
		}
	}
}

func caseOf(n int) string {
	return fmt.Sprintf("/tenants/tenant-%d/cases/%d", n%tenants, n)
}

type world struct {
	t      *testing.T
	dir    string
	broker *program
}

// program is a running process.
type program struct {
	name, path string
	args       []string
	ready      *regexp.Regexp // matches, in its output, the address on which it listens
	log        string
	cmd        *exec.Cmd
	address    string
}

// newWorld builds both services.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", w.dir, "./approvals", "./caseview")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as make programs, so that they share what was compiled
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// startBroker starts NATS with its stored data, on a port that no connection takes the first time and then on the same one.
func (w *world) startBroker() {
	w.t.Helper()
	bin := servertest.Get(w.t, servertest.NATSBin)
	port := strconv.Itoa(servertest.Port(w.t))
	if w.broker != nil {
		_, again, err := net.SplitHostPort(w.broker.address)
		w.must(err)
		port = again
	}
	w.broker = w.run(program{
		name: "nats-server", path: bin, ready: regexp.MustCompile(`client connections on (\S+)`),
		args: []string{"--addr", "127.0.0.1", "--port", port, "--jetstream", "--store_dir", filepath.Join(w.dir, "jetstream")},
	})
}

// start starts a service on a database.
func (w *world) start(name, db string, args ...string) *program {
	w.t.Helper()
	return w.run(program{
		name: name, path: filepath.Join(w.dir, name), ready: regexp.MustCompile(`listening on (\S+)`),
		args: append([]string{"-addr", "127.0.0.1:0", "-nats", "nats://" + w.broker.address, "-db", filepath.Join(w.dir, db)}, args...),
	})
}

// run starts a process and waits until it listens.
func (w *world) run(p program) *program {
	w.t.Helper()
	log, err := os.CreateTemp(w.dir, p.name+"-*.log")
	w.must(err)
	defer log.Close()
	p.log, p.cmd, p.address = log.Name(), exec.Command(p.path, p.args...), ""
	p.cmd.Stdout, p.cmd.Stderr = log, log
	w.must(p.cmd.Start())
	w.t.Cleanup(func() {
		p.end(os.Kill)
		if w.t.Failed() {
			w.t.Logf("%s:\n%s", p.name, p.output())
		}
	})
	w.until(p.name+" listens", func() bool {
		if found := p.ready.FindStringSubmatch(p.output()); found != nil {
			p.address = found[1]
		}
		return p.address != ""
	})
	return &p
}

func (p *program) output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// end sends a signal to the process and returns its exit code, -1 if the signal ended it.
func (p *program) end(s os.Signal) int {
	_ = p.cmd.Process.Signal(s) // it may have ended already
	_ = p.cmd.Wait()            // the exit code is enough
	return p.cmd.ProcessState.ExitCode()
}

// killAndStart kills a service with SIGKILL and restarts it.
func (w *world) killAndStart(p *program) *program {
	w.t.Helper()
	p.end(os.Kill)
	return w.run(*p)
}

func (w *world) until(what string, condition func() bool) {
	w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		if time.Now().After(deadline) {
			w.t.Fatalf("not within %s: %s", patience, what)
		}
		<-tick.C
	}
}

func (w *world) post(s *program, path, by string) {
	w.t.Helper()
	if status := w.tryPost(s, path, by); status != http.StatusOK {
		w.t.Fatalf("POST %s by %s: status %d", path, by, status)
	}
}

func (w *world) tryPost(s *program, path, by string) (status int) {
	w.t.Helper()
	answer, err := http.PostForm("http://"+s.address+path, url.Values{"by": {by}})
	w.must(err)
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	w.must(err)
	return answer.StatusCode
}

// refused tries approvals that the service rolls back: their messages must never be seen.
func (w *world) refused(s *program) {
	w.t.Helper()
	if status := w.tryPost(s, caseOf(0)+"/approvals", "opener"); status != http.StatusConflict {
		w.t.Errorf("who opened a case approves it: status %d", status)
	}
	if status := w.tryPost(s, "/tenants/tenant-0/cases/none/approvals", "eva"); status != http.StatusNotFound {
		w.t.Errorf("approval of no case: status %d", status)
	}
}

func (w *world) get(s *program, path string) (c caseapproval.Case, found bool) {
	w.t.Helper()
	answer, err := http.Get("http://" + s.address + path)
	w.must(err)
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusNotFound {
		return c, false
	}
	w.must(json.NewDecoder(answer.Body).Decode(&c))
	return c, true
}

// awaitRight waits until a read model shows every case in its last version and expects no more messages, and compares it
// with the service.
func (w *world) awaitRight(service, view *program, stream string) {
	w.t.Helper()
	for n := range cases {
		want, _ := w.get(service, caseOf(n))
		w.until("the read model knows the last version of "+caseOf(n), func() bool {
			got, _ := w.get(view, caseOf(n))
			return got.Version >= want.Version
		})
	}
	js := w.jetstream()
	w.until("everything is consumed", func() bool {
		consumer, err := js.Consumer(w.t.Context(), stream, "case-view")
		w.must(err)
		info := consumer.CachedInfo()
		return info.NumPending == 0 && info.NumAckPending == 0
	})
	for n := range cases {
		want, _ := w.get(service, caseOf(n))
		want.Approvals = want.Version
		if got, found := w.get(view, caseOf(n)); got != want && (found || want.Version > 0) {
			w.t.Errorf("the read model has %+v, the service %+v", got, want)
		}
	}
}

func (w *world) jetstream() jetstream.JetStream {
	w.t.Helper()
	conn, err := nats.Connect("nats://" + w.broker.address)
	w.must(err)
	w.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	w.must(err)
	return js
}

// shuffle copies the stream to another, out of order within a distance and with every third message duplicated, and
// returns its name.
func (w *world) shuffle() string {
	w.t.Helper()
	const stream, distance = "SHUFFLED", 20
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	js := w.jetstream()
	from, err := js.Stream(ctx, caseapproval.Stream)
	w.must(err)
	_, err = js.CreateStream(ctx, jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}})
	w.must(err)
	var messages []*nats.Msg
	for seq := uint64(1); seq <= from.CachedInfo().State.LastSeq; seq++ {
		raw, err := from.GetMsg(ctx, seq)
		w.must(err)
		raw.Header.Del(nats.MsgIdHdr)          // the stream must not drop duplicates
		raw.Header.Del(nats.ExpectedStreamHdr) // nor require the original stream
		m := &nats.Msg{Subject: stream + ".cases", Header: raw.Header, Data: raw.Data}
		messages = append(messages, m)
		if seq%3 == 0 {
			messages = append(messages, m)
		}
	}
	for i := range messages {
		j := min(i+rand.IntN(distance), len(messages)-1)
		messages[i], messages[j] = messages[j], messages[i]
	}
	for _, m := range messages {
		_, err := js.PublishMsg(ctx, m)
		w.must(err)
	}
	return stream
}
