// Package inbox consumes messages so that the effect of each happens exactly once.
package inbox
