package resilience

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"
)

// separate is a call of a function in a goroutine of its own.
type separate struct {
	done     chan struct{}
	err      error
	panicked any // with returned false
	returned bool
	// left is set once: by the goroutine when the function ended, or by the caller who did not wait for it.
	left atomic.Bool
}

// abandonable calls the function in a goroutine of its own, and does not wait for it once ctx has ended.
func (o *Operation) abandonable(ctx context.Context, f func(ctx context.Context) error) error {
	s := &separate{done: make(chan struct{})}
	o.set.pending.Go(func() {
		defer func() {
			if !s.returned {
				s.panicked = recover()
			}
			if s.left.Swap(true) {
				o.abandoned.Add(-1)
			}
			close(s.done)
		}()
		s.err = f(ctx)
		s.returned = true
	})
	select {
	case <-s.done:
	case <-ctx.Done():
		o.abandoned.Add(1)
		if !s.left.Swap(true) {
			return context.Cause(ctx)
		}
		o.abandoned.Add(-1) // it ended at the same moment
		<-s.done
	}
	switch {
	case s.returned:
		return s.err
	case s.panicked != nil:
		panic(s.panicked)
	}
	return errBroken
}

// Call is Operation.Run with a result.
func Call[T any](ctx context.Context, o *Operation, f func(ctx context.Context) (T, error)) (T, error) {
	var result atomic.Pointer[T] // an abandoned attempt may still write it
	err := o.Run(ctx, func(ctx context.Context) error {
		v, err := f(ctx)
		if err == nil {
			result.Store(&v)
		}
		return err
	})
	if v := result.Load(); err == nil && v != nil {
		return *v, nil
	}
	var none T
	return none, err
}

// Pending is a call of Go.
type Pending[T any] struct {
	done  chan struct{}
	value T
	err   error
}

// Go makes a call in a goroutine, which Set.Close waits for. The breaker counts it when it has ended. A panic of f is its error.
func Go[T any](ctx context.Context, o *Operation, f func(ctx context.Context) (T, error)) *Pending[T] {
	p := &Pending[T]{done: make(chan struct{}), err: errBroken}
	o.set.pending.Go(func() {
		defer close(p.done)
		defer func() {
			if v := recover(); v != nil {
				p.err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
			}
		}()
		p.value, p.err = Call(ctx, o, f)
	})
	return p
}

// Done is closed when the call has ended.
func (p *Pending[T]) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the call and returns its result, or the error of ctx if that ends first.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	select {
	case <-p.done:
		return p.value, p.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}
