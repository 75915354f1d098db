// Package ent is generated from package schema.
package ent

//go:generate go run -mod=mod entgo.io/ent/cmd/ent generate ./schema
