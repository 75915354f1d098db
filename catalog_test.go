package postrider

import (
	"errors"
	"strings"
	"testing"
)

func TestCatalog(t *testing.T) {
	t.Parallel()
	var c Catalog
	v2 := Define[int]("order.placed").WithSchemaVersion(2)
	if err := c.Add(orderPlacedV1, v2); err != nil {
		t.Fatal(err)
	}
	if d, ok := c.Lookup("order.placed", 0); !ok || d.SchemaVersion() != 1 || d.Topic() != "orders" {
		t.Errorf("no version: got %v", d)
	}
	if d, ok := c.Lookup("order.placed", 2); !ok || d.SchemaVersion() != 2 {
		t.Errorf("version 2: got %v", d)
	}
	if _, ok := c.Lookup("order.placed", 3); ok {
		t.Error("found what was never added")
	}

	twice := Define[int]("order.paid")
	err := c.Add(twice, twice, v2, Define[int](""))
	if !errors.Is(err, ErrDuplicateDefinition) {
		t.Errorf("got %v", err)
	}
	if _, ok := errors.AsType[*ValidationError](err); !ok || strings.Count(err.Error(), "already defined") != 2 {
		t.Errorf("want every fault, got %v", err)
	}
	if _, ok := c.Lookup("order.paid", 1); ok {
		t.Error("something was added in spite of the error")
	}
}
