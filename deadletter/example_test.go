package deadletter_test

import (
	"context"
	"fmt"
	"log"
	"strings"

	"github.com/postrider/postrider/deadletter"
	"github.com/postrider/postrider/store"
	"github.com/postrider/postrider/store/memory"
)

// What operators do: find the cause of most dead letters, look at one, fix its payload, and send it back.
func Example() {
	ctx := context.Background()
	dead := deadletter.New(memory.New(memory.Config{}))
	exported := `{"relay":"billing","reason":"undecodable","cause":"total: invalid character 'x'","died_at":"2026-01-02T15:04:05Z",` +
		`"state":"open","message":{"id":"m-1","type":"order.placed","source":"shop","topic":"orders","time":"2026-01-02T15:04:05Z",` +
		`"content_type":"application/json","payload":"x"}}`
	_, err := dead.Import(ctx, strings.NewReader(exported), nil)
	check(err)

	causes, err := dead.CountCauses(ctx, store.DeadFilter{}, 10)
	check(err)
	for _, c := range causes.Causes {
		fmt.Println(c.DeadLetters, c.Relay, c.Cause)
	}
	var number int64
	for d, err := range dead.ListDead(ctx, store.DeadFilter{Relay: "billing"}, 0, 0) {
		check(err)
		fmt.Println(d.Message.ID, d.Reason)
		number = d.Number
	}
	_, err = dead.EditDead(ctx, number, store.Edit{Payload: []byte(`{"total":19}`), By: "ann", Why: "total was no number"})
	check(err)
	n, err := dead.RedriveDead(ctx, store.DeadFilter{Numbers: []int64{number}}, "ann", 0)
	check(err)
	fmt.Println("sent back:", n)
	// Output:
	// 1 billing total: invalid character 'x'
	// m-1 undecodable
	// sent back: 1
}

// Send many dead letters back at a limited rate: one first, and the others if it is delivered. Any process may drive the redrive, and
// one that deadletter.Store.Run runs in does.
func ExampleStore_StartRedrive() {
	ctx := context.Background()
	dead := deadletter.New(memory.New(memory.Config{}))
	r, err := dead.StartRedrive(ctx, deadletter.Plan{
		Filter: store.DeadFilter{Relay: "billing"}, Rate: 50, First: true, StopAt: 0.05, By: "ann",
	})
	check(err)
	r, err = dead.Drive(ctx, r.ID, nil)
	check(err)
	fmt.Println(r.State, r.Done, "of", r.Selected)
	// Output: finished 0 of 0
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
