package natsbroker_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/postrider/postrider"
	natsbroker "github.com/postrider/postrider/broker/nats"
)

func opens(t *testing.T, url string, cfg natsbroker.Config) {
	t.Helper()
	cfg.Stream = "ORDERS"
	p, err := natsbroker.Open(t.Context(), url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if errs := p.Publish(t.Context(), []*postrider.Message{{ID: "1", Type: "a", Topic: "a"}}); errs != nil {
		t.Errorf("publish: %v", errs[0])
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

const wrongPassword = "opensesamy"

func refuses(t *testing.T, url string, cfg natsbroker.Config) {
	t.Helper()
	cfg.Stream = "ORDERS"
	_, err := natsbroker.Open(t.Context(), url, cfg)
	wantError(t, err, "the server refuses the credentials")
	if strings.Contains(err.Error(), wrongPassword) {
		t.Errorf("the error tells the password: %v", err)
	}
}

func TestUserAndPassword(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) { o.Username, o.Password = "shop", "secret" })
	opens(t, "nats://shop:secret@"+s.address(), natsbroker.Config{})
	opens(t, "nats://"+s.address(), natsbroker.Config{User: "shop", Password: "secret"})
	refuses(t, "nats://shop:"+wrongPassword+"@"+s.address(), natsbroker.Config{})
	refuses(t, "nats://"+s.address(), natsbroker.Config{})
}

func TestToken(t *testing.T) {
	t.Parallel()
	s := startEmbedded(t, func(o *server.Options) { o.Authorization = "secret" })
	opens(t, "nats://"+s.address()+"?token=secret", natsbroker.Config{})
	refuses(t, "nats://"+s.address()+"?token="+wrongPassword, natsbroker.Config{})
}

func TestNKey(t *testing.T) {
	t.Parallel()
	user, public, seed := newNKey(t, nkeys.CreateUser)
	defer user.Wipe()
	file := writeFile(t, "user.nk", seed)
	s := startEmbedded(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} })
	opens(t, "nats://"+s.address()+"?nkey="+file, natsbroker.Config{})
	refuses(t, "nats://"+s.address(), natsbroker.Config{})
	_, err := natsbroker.Open(t.Context(), "nats://"+s.address(), natsbroker.Config{Stream: "ORDERS", NKeySeedFile: file + ".absent"})
	wantError(t, err, "read nkey seed "+file+".absent")
}

// TestCredentialsFile uses a credentials file as operators of decentralized accounts issue it.
func TestCredentialsFile(t *testing.T) {
	t.Parallel()
	operator, operatorID, _ := newNKey(t, nkeys.CreateOperator)
	account, accountID, _ := newNKey(t, nkeys.CreateAccount)
	_, systemID, _ := newNKey(t, nkeys.CreateAccount)
	_, userID, userSeed := newNKey(t, nkeys.CreateUser)
	operatorClaims := jwt.NewOperatorClaims(operatorID)
	accountClaims := jwt.NewAccountClaims(accountID)
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	accountToken, err := accountClaims.Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	systemToken, err := jwt.NewAccountClaims(systemID).Encode(operator)
	if err != nil {
		t.Fatal(err)
	}
	userToken, err := jwt.NewUserClaims(userID).Encode(account)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(userToken, []byte(userSeed))
	if err != nil {
		t.Fatal(err)
	}
	s := startEmbedded(t, func(o *server.Options) {
		resolver := &server.MemAccResolver{}
		for id, token := range map[string]string{accountID: accountToken, systemID: systemToken} {
			if err := resolver.Store(id, token); err != nil {
				t.Fatal(err)
			}
		}
		o.SystemAccount = systemID
		o.TrustedOperators, o.AccountResolver = []*jwt.OperatorClaims{operatorClaims}, resolver
	})
	opens(t, "nats://"+s.address()+"?creds="+writeFile(t, "user.creds", string(creds)), natsbroker.Config{})
	refuses(t, "nats://"+s.address(), natsbroker.Config{})
}

func TestTLS(t *testing.T) {
	t.Parallel()
	certFile, keyFile := newCertificate(t)
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(pair.Leaf)
	s := startEmbedded(t, func(o *server.Options) {
		o.TLS, o.TLSVerify, o.TLSTimeout = true, true, 10
		o.TLSConfig = &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	})
	opens(t, "tls://"+s.address()+"?ca="+certFile+"&cert="+certFile+"&key="+keyFile, natsbroker.Config{})
	opens(t, "nats://"+s.address(), natsbroker.Config{TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}}})
	otherCA, _ := newCertificate(t)
	for _, ca := range []string{"", otherCA} {
		_, err = natsbroker.Open(t.Context(), "tls://"+s.address(), natsbroker.Config{Stream: "ORDERS", CAFile: ca, CertFile: certFile, KeyFile: keyFile})
		wantError(t, err, "certificate signed by unknown authority")
	}
}

func newNKey(t *testing.T, create func() (nkeys.KeyPair, error)) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	s, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public, string(s)
}

// newCertificate creates a self-signed certificate for both sides of a loopback connection.
func newCertificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	encodedKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block := func(kind string, b []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: b}))
	}
	return writeFile(t, "cert.pem", block("CERTIFICATE", cert)), writeFile(t, "key.pem", block("PRIVATE KEY", encodedKey))
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
