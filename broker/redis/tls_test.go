package redisbroker_test

import (
	"context"
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
	"strconv"
	"strings"
	"testing"
	"time"

	redisbroker "github.com/postrider/postrider/broker/redis"
	"github.com/postrider/postrider/internal/servertest"
)

// TestEveryNodeIsVerifiedByItsOwnName: the certificate of each node has only the name by which the URL names that node.
func TestEveryNodeIsVerifiedByItsOwnName(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	serve := func(c *x509.Certificate) (port string, handshakes chan error) {
		return serveTLS(t, tls.Certificate{Certificate: [][]byte{ca.sign(t, c)}, PrivateKey: ca.key})
	}
	first, ofFirst := serve(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	second, ofSecond := serve(&x509.Certificate{DNSNames: []string{"localhost"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := redisbroker.Open(ctx, "rediss://127.0.0.1:"+first+",rediss://localhost:"+second+"?ca="+ca.file, redisbroker.Config{})
		ended <- err
	}()
	for name, handshakes := range map[string]chan error{"127.0.0.1": ofFirst, "localhost": ofSecond} {
		select {
		case err := <-handshakes:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s: nobody connected", name)
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("connected to servers that are none")
	}
}

// serveTLS accepts connections, closes them after the handshake, and reports the outcome of each.
func serveTLS(t *testing.T, c tls.Certificate) (port string, handshakes chan error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{c}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	handshakes = make(chan error, 1_000)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			handshakes <- conn.(*tls.Conn).Handshake()
			_ = conn.Close()
		}
	}()
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return port, handshakes
}

// TestEncryption: a real server with a password and a certificate, which also wants one of its clients.
func TestEncryption(t *testing.T) {
	t.Parallel()
	ca, other, port := newAuthority(t), newAuthority(t), strconv.Itoa(servertest.Port(t))
	cert, key := ca.files(t, &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	s := startServer(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", ca.file)
	if err := s.client(t).Do(t.Context(), "acl", "setuser", "shop", "on", ">opensesame", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	host := "@127.0.0.1:" + port
	own := "&cert=" + cert + "&key=" + key
	p := open(t, "rediss://shop:opensesame"+host+"?ca="+ca.file+own, redisbroker.Config{})
	if errs := p.Publish(t.Context(), numbered("orders", "a", 1)); errs != nil {
		t.Error(errs)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for url, want := range map[string]string{
		"rediss://shop:opensesame" + host + "?ca=" + other.file + own:         "check the CA file",
		"rediss://shop:opensesame" + host:                                     "check the CA file",
		"rediss://shop:opensesamy" + host + "?ca=" + ca.file + own:            "the server refuses the credentials",
		"rediss://shop:opensesame@localhost:" + port + "?ca=" + ca.file + own: "certificate is",
	} {
		_, err := redisbroker.Open(ctx, url, redisbroker.Config{})
		wantError(t, err, want)
		if ctx.Err() != nil || strings.Contains(err.Error(), "opensesam") {
			t.Errorf("%v, want an error that ends trying and tells no password", err)
		}
	}
}

// authority signs certificates. All of them have its key; file has its own certificate.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	a.file = writePEM(t, "CERTIFICATE", a.issue(t, a.cert))
	return a
}

// sign returns a certificate in DER.
func (a *authority) sign(t *testing.T, c *x509.Certificate) []byte {
	t.Helper()
	c.SerialNumber, c.NotAfter = big.NewInt(2), a.cert.NotAfter
	return a.issue(t, c)
}

func (a *authority) issue(t *testing.T, c *x509.Certificate) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// files returns the names of PEM files with a certificate and its key.
func (a *authority) files(t *testing.T, c *x509.Certificate) (cert, key string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		t.Fatal(err)
	}
	return writePEM(t, "CERTIFICATE", a.sign(t, c)), writePEM(t, "PRIVATE KEY", der)
}

func writePEM(t *testing.T, kind string, der []byte) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
