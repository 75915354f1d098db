package release

import (
	"fmt"

	"aead.dev/minisign"
)

// The environment variables with the key that signs releases, as minisign writes it, and its password. Without a key, nothing is signed.
const (
	KeyVariable      = "POSTRIDER_RELEASE_KEY"
	PasswordVariable = "POSTRIDER_RELEASE_PASSWORD"
)

// sign returns the signature of a message, nil without a key.
func sign(message []byte, key, password string) ([]byte, error) {
	if key == "" {
		return nil, nil
	}
	private, err := minisign.DecryptKey(password, []byte(key))
	if err != nil {
		return nil, fmt.Errorf("read the key in %s: %w", KeyVariable, err)
	}
	return minisign.Sign(private, message), nil
}
