//go:build !race

package relay_test

const histories = 100
