package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"

	secretPrefix    = "whsec_"
	signaturePrefix = "v1,"
)

// secret is a decoded signing secret.
type secret []byte

// parseSecrets decodes secrets. Its error lists every invalid one, without showing it.
func parseSecrets(texts []string) ([]secret, error) {
	if len(texts) == 0 {
		return nil, errors.New("webhook: no secret; make one with: echo whsec_$(openssl rand -base64 32)")
	}
	var faults []error
	var secrets []secret
	for i, text := range texts {
		encoded, ok := strings.CutPrefix(text, secretPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		switch {
		case !ok || err != nil:
			faults = append(faults, fmt.Errorf("webhook: secret %d is not %s and base64", i+1, secretPrefix))
		case len(key) < 24 || len(key) > 64:
			faults = append(faults, fmt.Errorf("webhook: secret %d has %d bytes; give 24 to 64", i+1, len(key)))
		}
		secrets = append(secrets, key)
	}
	return secrets, errors.Join(faults...)
}

// sign returns the HMAC of a message as it is sent.
func (s secret) sign(id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, s)
	h.Write([]byte(id + "." + timestamp + "."))
	h.Write(body)
	return h.Sum(nil)
}

// signatures returns the value of the signature header.
func signatures(secrets []secret, id, timestamp string, body []byte) string {
	all := make([]string, len(secrets))
	for i, s := range secrets {
		all[i] = signaturePrefix + base64.StdEncoding.EncodeToString(s.sign(id, timestamp, body))
	}
	return strings.Join(all, " ")
}

// verified reports whether any signature in the header is by one of the secrets. The body is hashed once per secret,
// however many signatures the header has.
func verified(secrets []secret, id, timestamp string, body []byte, header string) bool {
	right := make([][]byte, len(secrets))
	for i, s := range secrets {
		right[i] = s.sign(id, timestamp, body)
	}
	found := false
	for text := range strings.FieldsSeq(header) {
		encoded, ok := strings.CutPrefix(text, signaturePrefix)
		signature, err := base64.StdEncoding.DecodeString(encoded)
		if !ok || err != nil {
			continue
		}
		for _, r := range right {
			found = hmac.Equal(signature, r) || found
		}
	}
	return found
}

// headerValue returns an ID in a form that a header can hold: space, %, everything that is not printable ASCII and the
// characters of also are percent-encoded.
func headerValue(id, also string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(id) {
		if c := id[i]; c <= ' ' || c >= 0x7f || c == '%' || strings.IndexByte(also, c) >= 0 {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// signedID returns an ID in the form that is signed: without dots, which separate the signed parts.
func signedID(id string) string { return headerValue(id, ".") }

// maxAge is the default maximum difference between a message's timestamp and a Receiver's clock.
const maxAge = 5 * time.Minute
