// Package itest and the packages below it hold the tests that need drivers, servers or real processes, and the programs
// that run them.
package itest
