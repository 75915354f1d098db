// Package protect calls user functions and turns panics and runtime.Goexit into errors.
package protect

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/postrider/postrider"
)

// ErrGoexit: a function ended its goroutine.
var ErrGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// Call runs f on its own goroutine. A panic becomes the error that panicked returns for it; a function that ends its
// goroutine (runtime.Goexit) fails with ErrGoexit. The methods of the returned error do not panic.
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
		if returned := f(); returned == nil {
			err = nil
		} else {
			callMethods(returned)
			err = returned
		}
	}()
	<-done
	return err
}

// Here is Call on the goroutine of its caller, which runtime.Goexit ends: for short functions within a Call, whose goroutine costs more
// than they do.
func Here(f func() error, panicked func(value any) error) (err error) {
	err = ErrGoexit // as in Call
	defer func() {
		if v := recover(); v != nil {
			err = panicked(v)
		}
	}()
	returned := f()
	if returned != nil {
		callMethods(returned)
	}
	return returned
}

// callMethods calls the methods of an error, e.g. of a nil pointer that was returned as an error, so that they panic here or
// not at all.
func callMethods(err error) {
	defer func() {
		if v := recover(); v != nil {
			panic(fmt.Sprintf("a method of the returned %T: %v", err, v))
		}
	}()
	_ = err.Error()
	_ = errors.Is(err, ErrGoexit)
	_ = postrider.OutcomeOf(err)
}
