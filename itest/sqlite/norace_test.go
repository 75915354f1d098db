//go:build !race

package sqlite_test

const (
	modelHistories    = 25
	consumerHistories = 8
)
