package store_test

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/postrider/postrider/store"
)

// TestMethods: docs/code.md says how many methods a new store has. A new capability adds a kind of records, not a method.
func TestMethods(t *testing.T) {
	t.Parallel()
	type core interface {
		store.Outbox[int]
		store.Relay
		store.TxSettler[int]
		store.Inbox[int]
		store.Effects
		store.StatusReader
		store.Administrator
	}
	type sagas interface {
		store.SagaStore[int]
		store.SagaReader
		store.SagaMaintenance
		store.SagaRecords[int]
	}
	want := fmt.Sprintf("%d methods for outboxes, relays and consumers, %d for what operators do in a transaction (`store.Writer`), most of them one statement "+
		"each, and %d for sagas", reflect.TypeFor[core]().NumMethod(), reflect.TypeFor[store.Writer]().NumMethod(), reflect.TypeFor[sagas]().NumMethod())
	page, err := os.ReadFile("../docs/code.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("docs/code.md does not say: %s", want)
	}
}
