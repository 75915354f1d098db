package postrider

import "errors"

// Recorder collects the messages that an entity records while it changes, until they are published. Embed it, or keep it in a
// field; the zero value is ready to use. It is not safe for concurrent use, as entities are not.
//
//	func (o *Order) Cancel(why string) {
//		o.Status = "cancelled"
//		postrider.Record(&o.events, OrderCancelled, OrderCancelledData{OrderID: o.ID, Why: why})
//	}
//
// What saves the entity publishes them in the same transaction:
//
//	msgs, err := order.events.Take()
//	...
//	_, err = box.Publish(ctx, tx, msgs...)
type Recorder struct {
	messages []*Message
	faults   []error
}

// Record adds a message with data. If it cannot be created, Take returns the error, so that methods of entities need not.
func Record[T any](r *Recorder, d Definition[T], data T) {
	m, err := d.New(data)
	if err != nil {
		r.faults = append(r.faults, err)
		return
	}
	r.Add(m)
}

// Add adds messages.
func (r *Recorder) Add(messages ...*Message) { r.messages = append(r.messages, messages...) }

// Take returns the recorded messages in order, and empties the recorder. If one of them could not be created, it returns none, all
// errors of Record, and keeps everything.
func (r *Recorder) Take() ([]*Message, error) {
	if err := errors.Join(r.faults...); err != nil {
		return nil, err
	}
	taken := r.messages
	r.messages = nil
	return taken, nil
}
