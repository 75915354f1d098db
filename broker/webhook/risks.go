package webhook

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/postrider/postrider"
)

var _ postrider.RiskReader = (*Publisher)(nil)

// renewBefore is how long before its end the certificate of a receiver should be renewed.
const renewBefore = 14 * 24 * time.Hour

// Risks implements postrider.RiskReader: it connects to the receiver, without sending a request, and looks at its certificate.
func (p *Publisher) Risks(ctx context.Context) ([]string, error) {
	target, err := url.Parse(p.cfg.URL)
	if err != nil {
		return nil, err
	}
	port := target.Port()
	if port == "" {
		port = map[string]string{"https": "443", "http": "80"}[target.Scheme]
	}
	dialer := &net.Dialer{Timeout: p.cfg.Timeout, Control: guard(p.cfg.Allow)}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(target.Hostname(), port))
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if target.Scheme != "https" {
		return nil, nil
	}
	encryption, err := p.cfg.readTLS()
	if err != nil {
		return nil, err
	}
	if encryption == nil {
		encryption = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if encryption.ServerName == "" {
		encryption.ServerName = target.Hostname()
	}
	secure := tls.Client(conn, encryption)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, err
	}
	ends := secure.ConnectionState().PeerCertificates[0].NotAfter
	if left := time.Until(ends); left < renewBefore {
		return []string{fmt.Sprintf("the certificate of %s ends on %s; ask the owner of the receiver to renew it", target.Host, ends.UTC().Format("2 Jan 2006"))}, nil
	}
	return nil, nil
}
