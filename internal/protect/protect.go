// Package protect calls user functions and turns panics and runtime.Goexit into errors.
package protect

import (
	"errors"
	"runtime/debug"
)

// ErrGoexit: a function ended its goroutine.
var ErrGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// Call runs f on its own goroutine. A panic becomes the error that panicked returns for it; a function that ends its
// goroutine (runtime.Goexit) fails with ErrGoexit.
func Call(f func() error, panicked func(value any, stack string) error) (err error) {
	err = ErrGoexit
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				err = panicked(v, string(debug.Stack()))
			}
		}()
		err = f()
	}()
	<-done
	return err
}
