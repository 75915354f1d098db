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
	"testing"
	"time"

	redisbroker "github.com/postrider/postrider/broker/redis"
)

// TestEveryNodeIsVerifiedByItsOwnName: the certificate of each node has only the name by which the URL names that node.
func TestEveryNodeIsVerifiedByItsOwnName(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	sign := func(c *x509.Certificate) []byte {
		der, err := x509.CreateCertificate(rand.Reader, c, authority, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: sign(authority)}), 0o600); err != nil {
		t.Fatal(err)
	}
	serve := func(c *x509.Certificate) (port string, handshakes chan error) {
		c.SerialNumber, c.NotAfter = big.NewInt(2), authority.NotAfter
		return serveTLS(t, tls.Certificate{Certificate: [][]byte{sign(c)}, PrivateKey: key})
	}
	first, ofFirst := serve(&x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}})
	second, ofSecond := serve(&x509.Certificate{DNSNames: []string{"localhost"}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := redisbroker.Open(ctx, "rediss://127.0.0.1:"+first+",rediss://localhost:"+second+"?ca="+file, redisbroker.Config{})
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
