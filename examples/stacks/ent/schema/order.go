// Package schema describes the entities of package ent.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Order is an order of a customer.
type Order struct{ ent.Schema }

// Annotations name the table.
func (Order) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "orders"}}
}

// Fields are the columns.
func (Order) Fields() []ent.Field {
	return []ent.Field{field.String("id"), field.Int("total")}
}
