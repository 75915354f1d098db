// Package libraries has tests of what the libraries do that package resilience uses, or decided against (docs/adr/0019-gobreaker.md). A
// test that fails after an update says that a decision can be looked at again.
package libraries
