//go:build !race

package memory_test

const (
	modelHistories    = 1000
	consumerHistories = 150
)
