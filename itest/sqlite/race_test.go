//go:build race

package sqlite_test

// The driver is slow under the race detector, so random tests run fewer histories there.
const (
	modelHistories    = 5
	consumerHistories = 2
)
