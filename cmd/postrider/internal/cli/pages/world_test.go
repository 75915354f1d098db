package pages_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/cmd/postrider/internal/cli/clitest"
	"github.com/postrider/postrider/internal/servertest"
)

// world has what all desks share: servers, and outboxes to copy.
type world struct {
	sqlite   string   // file of the outbox
	empty    string   // file of an outbox that has nothing
	postgres *url.URL // of the server
	template string   // database of the outbox
	nats     string
	mysql    func() *url.URL
}

func newWorld(t *testing.T) *world {
	t.Helper()
	server, err := url.Parse(servertest.Get(t, servertest.Postgres))
	clitest.Must(t, err)
	dir := t.TempDir()
	w := &world{sqlite: filepath.Join(dir, "shop.db"), empty: filepath.Join(dir, "new.db"), postgres: server, nats: clitest.StartNATS(t)}
	clitest.OK(t, "migrate", "up", "--store", "sqlite:"+w.empty)
	w.mysql = sync.OnceValue(func() *url.URL { return newMySQL(t) })
	w.template = w.database(t, "template1")
	t.Run("fill", func(t *testing.T) { // which closes the outboxes at its end
		fill(t, "sqlite:"+w.sqlite)
		fill(t, w.url(w.template))
	})
	writeCertificate(t)
	for _, role := range []string{"shop", "shop_relay", "shop_admin", "postrider_relay", "postrider_admin"} {
		w.role(t, role)
	}
	return w
}

// newMySQL returns the URL of a database for an account that the pages name.
func newMySQL(t *testing.T) *url.URL {
	t.Helper()
	u := clitest.NewMySQL(t)
	clitest.OK(t, "migrate", "up", "--store", u.String())
	_, admin := clitest.MySQLServer(t)
	const account = "'ops'@'10.1.2.%'"
	_, err := admin.ExecContext(t.Context(), "CREATE USER IF NOT EXISTS "+account)
	clitest.Must(t, err)
	t.Cleanup(func() {
		_, err := admin.ExecContext(context.Background(), "DROP USER "+account)
		clitest.Must(t, err)
	})
	return u
}

// execute runs a statement on the server.
func (w *world) execute(ctx context.Context, t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(ctx, w.postgres.String())
	clitest.Must(t, err)
	_, err = conn.Exec(ctx, statement)
	clitest.Must(t, err)
	clitest.Must(t, conn.Close(ctx))
}

// writeCertificate writes a certificate for this host and its key.
func writeCertificate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	clitest.Must(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	clitest.Must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	clitest.Must(t, err)
	files["tls.crt"] = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	files["tls.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}

// database returns the name of a copy of a database.
func (w *world) database(t *testing.T, template string) string {
	t.Helper()
	name := "pages_" + strings.ToLower(rand.Text()[:10])
	w.execute(t.Context(), t, "CREATE DATABASE "+name+" TEMPLATE "+template+" STRATEGY FILE_COPY")
	t.Cleanup(func() { w.execute(context.Background(), t, "DROP DATABASE "+name+" WITH (FORCE)") })
	return name
}

// role creates a role that the pages name, unless the server has one. It is left there: other desks may use it.
func (w *world) role(t *testing.T, name string) {
	t.Helper()
	w.execute(t.Context(), t, "DO $$ BEGIN CREATE ROLE "+name+"; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$")
}

func (w *world) url(database string) string {
	u := *w.postgres
	u.Path = "/" + database
	return u.String()
}

// desk is a folder and a database in which a reader types the commands of a page.
type desk struct {
	world    *world
	dir      string
	environ  []string
	store    string // URL of the store that is meant if none is named
	postgres string // URL of the copy on PostgreSQL, "" until it is needed
	relay    string // address at which the relay answers, "" until it lives
	engine   *engine
}

// files are what the reader of a page has.
var files = map[string]string{
	"invoice.pdf":                         "%PDF-1.7\n",
	"messages.ndjson":                     `{"type":"order.placed","key":"order/50","payload":{}}` + "\n" + "{}\n",
	"17.json":                             `{"order":17,"total":1}`,
	"SHA256SUMS":                          fmt.Sprintf("%x  postrider_v0.1.0_linux_amd64.tar.gz\n%064x  postrider_v0.1.0_darwin_arm64.tar.gz\n", sha256.Sum256(nil), 0),
	"postrider_v0.1.0_linux_amd64.tar.gz": "",
	"postrider":                           "the binary", "store-url": "postgres://db/shop", "postrider-relay.service": "[Unit]\n",
	"orders.secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\n",
}

// desk returns a desk with copies of the outboxes. kind is that of the store which is meant if a command names none.
func (w *world) desk(t *testing.T, kind string) *desk {
	t.Helper()
	d := &desk{world: w}
	var err error
	d.dir, err = os.MkdirTemp(bin, "desk-") //nolint:usetesting // the name of a test has characters that are special in a URL
	clitest.Must(t, err)
	if d.store = "sqlite:" + filepath.Join(d.dir, "shop.db"); kind == "postgres" {
		d.store = d.onPostgres(t)
	}
	for name, from := range map[string]string{"shop.db": w.sqlite, "old.db": w.sqlite, "new.db": w.empty} {
		outbox, err := os.ReadFile(from)
		clitest.Must(t, err)
		clitest.Must(t, os.WriteFile(filepath.Join(d.dir, name), outbox, 0o600))
	}
	for name, text := range files {
		clitest.Must(t, os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600))
	}
	clitest.Must(t, os.WriteFile(filepath.Join(d.dir, "postrider.yaml"),
		[]byte("store: {url: '"+d.store+"'}\nrelays: [{name: to-nats, publisher: '"+w.nats+"?stream=ORDERS'}]\n"), 0o600))
	clitest.Must(t, os.Mkdir(filepath.Join(d.dir, "etc"), 0o700))
	clitest.Must(t, os.MkdirAll(filepath.Join(d.dir, ".config", "fish", "completions"), 0o700))
	d.environ = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HOME="+d.dir, "USER=anna", "TERM=xterm", started, "POSTRIDER_STORE_URL="+d.store)
	return d
}

// onPostgres returns the URL of the desk's outbox on PostgreSQL.
func (d *desk) onPostgres(t *testing.T) string {
	t.Helper()
	if d.postgres == "" {
		d.postgres = d.world.url(d.world.database(t, d.world.template))
	}
	return d.postgres
}
