//go:build !race

package sqlite_test

const (
	modelHistories    = 10
	consumerHistories = 8
)
