package rabbitmqbroker

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/postrider/postrider"
)

// cloudEvents converts a message's attributes to headers and back. Of the two prefixes that the AMQP binding of
// CloudEvents allows, it prefers the one with an underscore.
var cloudEvents = postrider.CloudEventsBinary{Prefix: "cloudEvents_", UTF8: true}

const contentTypeHeader = "content-type"

// frameOverhead is the maximum size of a properties frame without the properties: 8 bytes for the frame, 14 for class,
// weight, size and flags, 4 for the table's length, 8 for the time, 1 for the delivery mode, and the lengths of 4 short
// strings.
const frameOverhead = 48

// encode returns m as an AMQP message. The properties must fit into one frame; limit is the frame size, 0 for no limit.
// Its errors are postrider.Dead.
func encode(m *postrider.Message, to route, limit int) (amqp.Publishing, error) {
	if len(to.exchange) > maxName || len(to.key) > maxName {
		return amqp.Publishing{}, postrider.Dead("cannot be addressed", fmt.Errorf(
			"exchange %.80s… or routing key %.80s… has more than %d bytes", to.exchange, to.key, maxName))
	}
	p := amqp.Publishing{
		Headers:       make(amqp.Table, 16),
		DeliveryMode:  amqp.Persistent,
		MessageId:     m.ID,
		Type:          m.Type,
		CorrelationId: m.CorrelationID,
		Body:          m.Payload,
	}
	if m.Time.Unix() > 0 { // AMQP has no times before 1970
		p.Timestamp = m.Time
	}
	size := frameOverhead + len(p.MessageId) + len(p.Type) + len(p.CorrelationId)
	for name, value := range cloudEvents.Headers(m) {
		size += len(name) + len(value) + len("\x00S\x00\x00\x00\x00")
		switch {
		case name == contentTypeHeader:
			p.ContentType = value
		case len(name) > maxName:
			return p, postrider.Dead("a header has too long a name", fmt.Errorf("header %.80s…: AMQP takes names of %d bytes", name, maxName))
		default:
			p.Headers[name] = value
		}
	}
	if limit > 0 && size > limit {
		return p, tooLarge(fmt.Errorf("headers and attributes take %d bytes; the connection's frames take %d: raise the server's frame_max", size, limit))
	}
	return p, nil
}

func tooLarge(err error) error { return postrider.Dead("too large for the broker", err) }
