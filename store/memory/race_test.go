//go:build race

package memory_test

// The race detector makes a history five times as expensive. make test runs all of them without it, too.
const (
	modelHistories    = 250
	consumerHistories = 40
)
