//go:build race

package relay_test

// The race detector makes a history five times as expensive. make test runs all of them without it, too.
const histories = 25
