package kafkabroker_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"github.com/twmb/franz-go/pkg/kadm"

	"github.com/postrider/postrider"
	kafkabroker "github.com/postrider/postrider/broker/kafka"
)

// TestAuthentication runs on a Kafka server that requires TLS and SASL and restricts what users may do.
func TestAuthentication(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := writeCertificate(t, dir)
	s := startServer(t, strings.NewReplacer("STORE", filepath.Join(dir, "server.pem"), "INTERNAL_ADDRESS", freeAddress(t)).Replace(`
listeners=CLIENTS://127.0.0.1:PORT,INTERNAL://INTERNAL_ADDRESS,CONTROLLER://CONTROLLER_ADDRESS
listener.security.protocol.map=CLIENTS:SASL_SSL,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=INTERNAL
ssl.keystore.type=PEM
ssl.keystore.location=STORE
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_boss="boss-secret";
listener.name.clients.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:boss`), [2]string{"boss", "boss-secret"}, [2]string{"clerk", "clerk-secret"})
	connect := func(user, password, mechanism string) kafkabroker.Connection {
		return kafkabroker.Connection{User: user, Password: password, SASL: mechanism, CAFile: ca}
	}
	for _, mechanism := range []string{"", "plain", "SCRAM-SHA-256", "scram-sha-512"} {
		p := open(t, s.address, kafkabroker.Config{Connection: connect("boss", "boss-secret", mechanism), Create: true})
		mustPublish(t, p, message("mine", "a", 1))
		_, err := kafkabroker.Open(by(t), "kafka://"+s.address, kafkabroker.Config{Connection: connect("boss", "wrong-secret", mechanism)})
		wantError(t, err, "refuses the credentials")
		if postrider.OutcomeOf(err).Kind == postrider.BrokerUnavailable || strings.Contains(err.Error(), "secret") {
			t.Errorf("wrong password: %v, want an error that ends trying and tells no password", err)
		}
	}
	_, err := kafkabroker.Open(by(t), "kafkas://boss:boss-secret@"+s.address, kafkabroker.Config{})
	wantError(t, err, "check the CA file")
	short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = kafkabroker.Open(short, "kafka://"+s.address, kafkabroker.Config{})
	wantError(t, err, "whether the listener wants TLS or SASL")

	testRights(t, s, connect)
}

// testRights has a user who may write to one topic but not to another, and may not read settings.
func testRights(t *testing.T, s *server, connect func(user, password, mechanism string) kafkabroker.Connection) {
	boss := open(t, s.address, kafkabroker.Config{Connection: connect("boss", "boss-secret", ""), Create: true})
	mustPublish(t, boss, message("theirs", "a", 1))
	allow(t, s, "User:clerk", "mine")

	p := open(t, s.address, kafkabroker.Config{Connection: connect("clerk", "clerk-secret", "")})
	errs := p.Publish(t.Context(), []*postrider.Message{message("mine", "a", 1), message("theirs", "b", 1), message("new", "c", 1)})
	if errs == nil || errs[0] != nil {
		t.Fatalf("got %v, want errors of what is not allowed only", errs)
	}
	wantError(t, errs[1], "may not Describe topic theirs", "kafka-acls.sh --add", "--topic theirs")
	wantError(t, errs[2], "topic new")

	sub, err := kafkabroker.OpenSubscriber(t.Context(), "kafka://"+s.address, kafkabroker.SubscriberConfig{
		Connection: connect("clerk", "clerk-secret", ""), Group: "clerks", Topics: []string{"mine"},
	})
	if err != nil {
		t.Fatal(err)
	}
	reading, err := sub.Subscribe(by(t))
	if err != nil {
		t.Fatal(err)
	}
	_, err = reading.Receive(by(t), 1)
	wantError(t, err, "--group clerks")
	if postrider.OutcomeOf(err).Kind != postrider.BrokerUnavailable {
		t.Errorf("%v is not made by Unavailable", err)
	}
	_ = reading.Close(by(t)) // it never joined the group
}

// allow lets a user write and read a topic, and nothing else.
func allow(t *testing.T, s *server, user, topic string) {
	t.Helper()
	client := plainClient(t, internalAddress(t, s))
	acls := kadm.NewACLs().Topics(topic).Allow(user).AllowHosts().Operations(kadm.OpWrite, kadm.OpRead, kadm.OpDescribe).
		ResourcePatternType(kadm.ACLPatternLiteral)
	created, err := kadm.NewClient(client).CreateACLs(by(t), acls)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range created {
		if c.Err != nil {
			t.Fatal(c.Err)
		}
	}
}

// internalAddress returns the address of the listener that trusts everybody.
func internalAddress(t *testing.T, s *server) string {
	t.Helper()
	text, err := os.ReadFile(s.file("server.properties"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "INTERNAL://")
	if !ok {
		t.Fatal("the server has no internal listener")
	}
	address, _, _ := strings.Cut(rest, ",")
	return address
}

// writeCertificate creates a self-signed certificate for 127.0.0.1. It writes the server's file and returns the name of
// the clients' CA file.
func writeCertificate(t *testing.T, dir string) (ca string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	ca = filepath.Join(dir, "ca.pem")
	store := append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), public...)
	if err := os.WriteFile(filepath.Join(dir, "server.pem"), store, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ca, public, 0o600); err != nil {
		t.Fatal(err)
	}
	return ca
}
