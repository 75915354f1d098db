package postrider

import "encoding/json"

// Codec turns data into payload and back. Implementations are safe for concurrent use.
type Codec interface {
	// ContentType is the media type of what Encode makes.
	ContentType() string
	// Encode returns the payload for v, which is a value of the definition's type.
	Encode(v any) ([]byte, error)
	// Decode reads a payload into v, which points to a value of the definition's type. It must not keep the payload.
	Decode(payload []byte, v any) error
}

// JSON is the Codec of encoding/json. A field that the Go type does not have is ignored, so that publishers can add
// fields before every handler knows them.
type JSON struct{}

var _ Codec = JSON{}

// ContentType implements Codec.
func (JSON) ContentType() string { return DefaultContentType }

// Encode implements Codec.
func (JSON) Encode(v any) ([]byte, error) { return json.Marshal(v) }

// Decode implements Codec.
func (JSON) Decode(payload []byte, v any) error { return json.Unmarshal(payload, v) }
