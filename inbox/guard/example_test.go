package guard_test

import (
	"context"
	"fmt"
	"log"

	"github.com/postrider/postrider/inbox/guard"
	"github.com/postrider/postrider/store/memory"
)

// The second call finds the side effect done.
func ExampleGuard_Do() {
	ctx := context.Background()
	g, err := guard.New(memory.New(memory.Config{}), guard.Config{Name: "charge-card"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		err := g.Do(ctx, "order/42", func(_ context.Context, key string) error {
			fmt.Println("charge with a key of", len(key), "digits")
			return nil
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output: charge with a key of 64 digits
}
