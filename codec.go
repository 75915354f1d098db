package postrider

import "encoding/json"

// Codec encodes data as a payload and decodes it. Implementations are safe for concurrent use.
type Codec interface {
	// ContentType is the media type of encoded payloads.
	ContentType() string
	// Encode returns the payload for v, a value of the definition's type.
	Encode(v any) ([]byte, error)
	// Decode reads a payload into v, a pointer to the definition's type. It must not retain the payload.
	Decode(payload []byte, v any) error
}

// JSON is the Codec of encoding/json. It ignores fields that the Go type does not have, so that publishers can add fields
// before every handler knows them.
type JSON struct{}

var _ Codec = JSON{}

// ContentType implements Codec.
func (JSON) ContentType() string { return DefaultContentType }

// Encode implements Codec.
func (JSON) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode implements Codec.
func (JSON) Decode(payload []byte, v any) error { return json.Unmarshal(payload, v) }
