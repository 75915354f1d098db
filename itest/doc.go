// Package itest and its subpackages contain the tests that need drivers, servers or real processes, and the programs that
// run them.
package itest
