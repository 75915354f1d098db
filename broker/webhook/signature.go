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

// parseSecrets names every fault, and never a secret.
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

// sign returns the HMAC of a message as it travels.
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

// verified says whether one of the signatures in the header is by one of the secrets. The body is hashed once for each
// secret, however many signatures a stranger sends.
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

// headerValue is an ID as headers hold it: percent-encoded, unless it is printable ASCII without space, % and what else is
// to be encoded.
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

// signedID is an ID as it is signed: without dots, which separate the parts of what is signed.
func signedID(id string) string { return headerValue(id, ".") }

// maxAge is how old a message may be for a Receiver by default, and how far ahead its sender's clock.
const maxAge = 5 * time.Minute
