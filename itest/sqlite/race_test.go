//go:build race

package sqlite_test

// The driver is a database engine in Go; under the race detector it is some twenty times slower, so random tests run
// fewer histories there.
const (
	modelHistories    = 5
	consumerHistories = 2
)
