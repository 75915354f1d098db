package inbox

import (
	"testing"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/store"
)

// TestSubstituteID: a message without an ID is the same when it is read again, and is another one if only its place in the log is the
// same, e.g. after the log has lost its tail.
func TestSubstituteID(t *testing.T) {
	t.Parallel()
	at := postrider.Position{Incarnation: "1", Partition: "orders/0", Offset: 7, Mark: "time-content"}
	id := substituteID(&postrider.Delivery{Message: &postrider.Message{Payload: []byte("{}")}, Position: at})
	if again := substituteID(&postrider.Delivery{Err: errReplaced, Raw: []byte("x"), Position: at}); again != id {
		t.Errorf("the ID of the same message is %s, and then %s", id, again)
	}
	for _, change := range []func(p *postrider.Position){
		func(p *postrider.Position) { p.Incarnation = "2" }, func(p *postrider.Position) { p.Partition = "orders/1" },
		func(p *postrider.Position) { p.Offset++ }, func(p *postrider.Position) { p.Mark = "time-other" },
		func(p *postrider.Position) { p.Mark = "other-content" },
	} {
		other := at
		change(&other)
		if substituteID(&postrider.Delivery{Position: other}) == id {
			t.Errorf("messages at %+v and %+v have the same ID", at, other)
		}
	}
	one, two := &postrider.Message{Payload: []byte("1")}, &postrider.Message{Payload: []byte("2")}
	if substituteID(&postrider.Delivery{Message: one}) == substituteID(&postrider.Delivery{Message: two}) {
		t.Error("without a position, messages of different content have the same ID")
	}
}

// TestSubstituteIDInParts: a message that was processed before its log was divided is the same afterwards.
func TestSubstituteIDInParts(t *testing.T) {
	t.Parallel()
	id := func(part postrider.LogPartition) string {
		d := &postrider.Delivery{Err: errReplaced, Position: postrider.Position{Incarnation: "1", Partition: part.Name, Offset: 7, Mark: "m"}}
		newLogSession(store.LeaseRef{}, part, postrider.Position{}).admit([]*postrider.Delivery{d})
		return substituteID(d)
	}
	whole, part := id(postrider.LogPartition{Name: "ORDERS"}), id(postrider.LogPartition{Name: "ORDERS/3", Whole: "ORDERS"})
	if whole != part {
		t.Errorf("the ID of the message is %s in the whole log and %s in a part", whole, part)
	}
}
