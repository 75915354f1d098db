package config_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/store/memory"
)

// A relay with handlers gets its settings from the file that operators edit.
func ExampleLoad() {
	folder, err := os.MkdirTemp("", "postrider")
	check(err)
	defer os.RemoveAll(folder)
	file := filepath.Join(folder, "postrider.yaml")
	check(os.WriteFile(file, []byte(`
relays:
  - name: billing
    max_attempts: 3
    policies:
      - {types: [invoice.*], max_attempts: 1}
`), 0o600))

	c, err := config.Load(file)
	check(err)
	settings, err := c.Relay("billing")
	check(err)
	settings.Logger = slog.New(slog.DiscardHandler) // what a file cannot say

	ctx, stop := context.WithCancel(context.Background())
	store := memory.New(memory.Config{})
	r, err := relay.New(store, settings)
	check(err)
	check(r.HandleFunc("invoice.requested", func(ctx context.Context, _ *postrider.Message) error {
		fmt.Println("attempts:", postrider.MaxAttemptsFromContext(ctx))
		stop()
		return errors.New("no such customer")
	}))
	box, err := outbox.New(store, outbox.Config{Source: "shop"})
	check(err)
	_, err = box.InTx(ctx, func(ctx context.Context, tx *memory.Tx) error {
		_, err := box.Publish(ctx, tx, &postrider.Message{Type: "invoice.requested", Key: "order/42"})
		return err
	})
	check(err)
	check(r.Run(ctx))
	// Output: attempts: 1
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
