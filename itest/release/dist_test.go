package release_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"aead.dev/minisign"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/itest/release"
)

// here is the platform of the tests. make dist builds for all.
var here = []release.Target{{OS: runtime.GOOS, Arch: runtime.GOARCH}}

var stamp = release.Stamp{Version: "v0.0.1-test", Revision: "0123456789abcdef", Time: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)}

// TestReproducible: the same commit gives the same files, in whichever folders they are built. They have what a release needs.
func TestReproducible(t *testing.T) {
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := minisign.EncryptKey("secret", private)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(release.KeyVariable, string(key))
	t.Setenv(release.PasswordVariable, "secret")
	first, second := t.TempDir(), t.TempDir()
	names, err := newPlace(t).Dist(t.Context(), here, stamp, first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newPlace(t).Dist(t.Context(), here, stamp, second); err != nil {
		t.Fatal(err)
	}
	platform := runtime.GOOS + "_" + runtime.GOARCH
	archive, sbom := "postrider_0.0.1-test_"+platform+".tar.gz", "postrider_0.0.1-test_"+platform+".cdx.json"
	if want := fmt.Sprint([]string{"SHA256SUMS", "SHA256SUMS.minisig", sbom, archive}); fmt.Sprint(names) != want {
		t.Fatalf("files: %v, want %s", names, want)
	}
	sums := read(t, filepath.Join(first, "SHA256SUMS"))
	if again := read(t, filepath.Join(second, "SHA256SUMS")); !bytes.Equal(sums, again) {
		t.Errorf("built twice, with different results:\n%s\n%s", sums, again)
	}
	if sum := sha256.Sum256(read(t, filepath.Join(first, archive))); !bytes.Contains(sums, fmt.Appendf(nil, "%x  %s\n", sum, archive)) {
		t.Errorf("SHA256SUMS does not have the sum of %s:\n%s", archive, sums)
	}
	if !minisign.Verify(public, sums, read(t, filepath.Join(first, "SHA256SUMS.minisig"))) {
		t.Error("the signature does not fit")
	}
	checkSBOM(t, read(t, filepath.Join(first, sbom)))
	checkArchive(t, read(t, filepath.Join(first, archive)))
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func checkSBOM(t *testing.T, text []byte) {
	t.Helper()
	var bom struct {
		BOMFormat string `json:"bomFormat"`
		Metadata  struct {
			Component struct{ Name, Version string }
		}
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Component.Version != stamp.Version {
		t.Errorf("the SBOM is of %q %+v", bom.BOMFormat, bom.Metadata)
	}
	found := map[string]bool{}
	for _, c := range bom.Components {
		found[c.Name] = strings.HasPrefix(c.PURL, "pkg:golang/"+c.Name+"@")
	}
	for _, name := range []string{"std", release.Path, "github.com/jackc/pgx/v5", "modernc.org/sqlite"} {
		if !found[name] {
			t.Errorf("the SBOM lacks %s", name)
		}
	}
}

// checkArchive unpacks the archive and runs the binary.
func checkArchive(t *testing.T, archive []byte) {
	t.Helper()
	content, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	unpack(t, content, dir)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "postrider"), "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{stamp.Version, stamp.Revision[:12], "2026-11-23T12:00:00Z"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("version says %q, want %s in it", out, want)
		}
	}
	if notices := read(t, filepath.Join(dir, "THIRD_PARTY_NOTICES")); !bytes.Contains(notices, []byte("\ngithub.com/jackc/pgx/v5 ")) {
		t.Error("the notices lack pgx")
	}
}

// unpack writes the files of a tar archive to a folder, and returns the size of all.
func unpack(t *testing.T, archive io.Reader, dir string) (size int64) {
	t.Helper()
	for content := tar.NewReader(archive); ; {
		header, err := content.Next()
		if errors.Is(err, io.EOF) {
			return size
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, os.FileMode(header.Mode))
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(file, content)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		size += n
	}
}

// imageLimit is the largest size of the image, unpacked.
const imageLimit = 80 << 20

// TestImage: the image, unpacked, runs a relay as its user, who is not root, with nothing but its own files, and its health command says
// when the relay is ready.
func TestImage(t *testing.T) {
	t.Parallel()
	dir, root := t.TempDir(), t.TempDir()
	if err := newPlace(t).Image(t.Context(), here, stamp, dir); err != nil {
		t.Fatal(err)
	}
	image := readImage(t, dir)
	if size := unpack(t, mutate.Extract(image), root); size > imageLimit {
		t.Errorf("the image has %d MiB, want %d at most", size>>20, imageLimit>>20)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532:65532" || config.Config.Entrypoint[0] != "/postrider" {
		t.Errorf("runs %v as %q", config.Config.Entrypoint, config.Config.User)
	}
	if os.Geteuid() != 0 {
		t.Log("only root can run it as another user in a folder of its own; this runs it as the current user")
	}
	c := container{t, root}
	received := make(chan string, 1)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received <- r.URL.Path }))
	t.Cleanup(receiver.Close)
	c.volume()
	c.run("migrate", "up", "--store", c.store())
	address := c.startRelay(receiver.URL)
	health := append(append([]string{}, config.Config.Healthcheck.Test[2:]...), "--address", address)
	deadline := time.Now().Add(patience)
	for c.command(health...).Run() != nil {
		if time.Now().After(deadline) {
			t.Fatal("the health command does not become ready")
		}
	}
	c.run("publish", "--store", c.store(), "--type", "order.placed", "--payload", "{}")
	select {
	case <-received:
	case <-time.After(patience):
		t.Fatal("nothing was delivered")
	}
}

func readImage(t *testing.T, dir string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// container runs the files of an image.
type container struct {
	t    *testing.T
	root string
}

// volume makes the folder for the database, which belongs to the image's user.
func (c container) volume() {
	c.t.Helper()
	data := filepath.Join(c.root, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		c.t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(data, 65532, 65532); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c container) store() string {
	if os.Geteuid() != 0 {
		return "sqlite:" + filepath.Join(c.root, "data", "shop.db")
	}
	return "sqlite:/data/shop.db"
}

// attributes are those of a process in the container.
func (c container) attributes() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: 65532, Gid: 65532}}
}

func (c container) binary() string {
	if os.Geteuid() != 0 {
		return filepath.Join(c.root, "postrider")
	}
	return "/postrider"
}

func (c container) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(c.t.Context(), c.binary(), args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = "/", []string{"PATH=/"}, c.attributes()
	return cmd
}

func (c container) run(args ...string) {
	c.t.Helper()
	if out, err := c.command(args...).CombinedOutput(); err != nil {
		c.t.Fatalf("postrider %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// startRelay starts a relay to a webhook, and returns the address of its probes.
func (c container) startRelay(receiver string) string {
	c.t.Helper()
	port, err := servertest.FreePort()
	if err != nil {
		c.t.Fatal(err)
	}
	address := "127.0.0.1:" + strconv.Itoa(port)
	publisher := receiver + "#" + url.Values{
		"plain_http": {"true"}, "allow": {"127.0.0.0/8"}, "secret": {"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32))},
	}.Encode()
	cmd := c.command("relay", "--store", c.store(), "--publisher", publisher, "--listen", address)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { // the test's context has ended by now, so the relay has its signal
		if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 0 {
			c.t.Errorf("the relay ended with %v:\n%s", err, out.String())
		}
	})
	return address
}
