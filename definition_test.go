package postrider

import (
	"context"
	"errors"
	"strings"
	"testing"
)

type orderPlaced struct {
	Order string `json:"order"`
	Total int    `json:"total,omitzero"`
}

var orderPlacedV1 = Define[orderPlaced]("order.placed").
	WithTopic("orders").
	WithKey(func(o orderPlaced) string { return "order/" + o.Order })

func TestDefinitionMakesAndReadsMessages(t *testing.T) {
	t.Parallel()
	m, err := orderPlacedV1.New(orderPlaced{Order: "42", Total: 7})
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, m, &Message{Type: "order.placed", Topic: "orders", Key: "order/42", SchemaVersion: 1,
		ContentType: "application/json", Payload: []byte(`{"order":"42","total":7}`)})
	got, err := orderPlacedV1.Decode(m)
	if err != nil {
		t.Fatal(err)
	}
	if got.Message != m || got.Data != (orderPlaced{"42", 7}) {
		t.Errorf("got %+v", got)
	}

	plain, err := Define[int]("n").WithSchemaVersion(3).New(1)
	if err != nil {
		t.Fatal(err)
	}
	requireEqual(t, plain, &Message{Type: "n", Topic: "n", SchemaVersion: 3, ContentType: "application/json", Payload: []byte("1")})
}

func TestDecodeTakesAMissingVersionForTheFirst(t *testing.T) {
	t.Parallel()
	m := &Message{Type: "order.placed", Payload: []byte(`{"order":"42","unknown":true}`)}
	if got, err := orderPlacedV1.Decode(m); err != nil || got.Data.Order != "42" {
		t.Errorf("got %+v, %v", got.Data, err)
	}
}

func TestDecodeOfWhatItIsNotIsDead(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		m    Message
		want string
	}{
		{Message{Type: "order.placed", ContentType: "text/plain", Payload: []byte("{")}, "decode 1 bytes of text/plain as order.placed version 1: unexpected end of JSON input"},
		{Message{Type: "order.placed"}, "decode 0 bytes of unknown content type as order.placed version 1: unexpected end of JSON input"},
		{Message{Type: "order.paid"}, "message is order.paid version 1, the definition is for order.placed version 1"},
	} {
		called := false
		handler := orderPlacedV1.Handler(func(context.Context, Typed[orderPlaced]) error { called = true; return nil })
		err := handler(t.Context(), &c.m)
		o := OutcomeOf(err)
		if o.Kind != DeadLettered || o.Reason != "undecodable" || !strings.Contains(err.Error(), c.want) || called {
			t.Errorf("%+v: got %v", c.m, err)
		}
	}
}

// TestDecodeOfANewerVersionIsUnhandled: a process of a newer release may know the version.
func TestDecodeOfANewerVersionIsUnhandled(t *testing.T) {
	t.Parallel()
	newer := orderPlacedV1.WithSchemaVersion(2)
	_, err := newer.Decode(&Message{Type: "order.placed", SchemaVersion: 3, Payload: []byte("{}")})
	if !errors.Is(err, ErrUnhandled) || OutcomeOf(err).Kind != Retried {
		t.Errorf("newer version: %v", err)
	}
	_, err = newer.Decode(&Message{Type: "order.placed", SchemaVersion: 1, Payload: []byte("{}")})
	if o := OutcomeOf(err); o.Kind != DeadLettered || o.Reason != Undecodable {
		t.Errorf("older version: %v", err)
	}
}

func TestDefinitionHandlerPassesTheOutcomeOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	handler := orderPlacedV1.Handler(func(_ context.Context, m Typed[orderPlaced]) error {
		if m.Data.Order != "42" || m.ID != "1" {
			t.Errorf("got %+v", m)
		}
		return broken
	})
	if err := handler(t.Context(), &Message{ID: "1", Type: "order.placed", Payload: []byte(`{"order":"42"}`)}); err != broken {
		t.Errorf("got %v", err)
	}
}

func TestDefinitionFaults(t *testing.T) {
	t.Parallel()
	bad := Define[int]("").WithSchemaVersion(0).WithTopic(strings.Repeat("x", 250)).WithCodec(nil)
	want := `define message "": type is required` + "\ntopic is 250 bytes long, the limit is 249" +
		"\nschema_version is 0, it counts from 1, the limit is 2147483647\ncodec is nil"
	if _, err := bad.New(1); err == nil || err.Error() != want {
		t.Errorf("New: got %v", err)
	}
	if _, err := bad.Decode(&Message{}); err == nil || err.Error() != want {
		t.Errorf("Decode: got %v", err)
	}
	if _, err := Define[chan int]("c").New(nil); err == nil || !strings.Contains(err.Error(), "encode message c version 1: json: unsupported type") {
		t.Errorf("got %v", err)
	}
}
