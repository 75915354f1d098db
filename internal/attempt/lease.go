package attempt

import "context"

// Lease is the lease of a partition: its number, and the token of the lease.
type Lease struct {
	Partition int
	Token     string
}

type leaseKey struct{}

// WithLease returns a context for the calls that a relay makes under a lease.
func WithLease(ctx context.Context, l Lease) context.Context {
	return context.WithValue(ctx, leaseKey{}, l)
}

// LeaseOf returns the lease of a call's context.
func LeaseOf(ctx context.Context) (l Lease, ok bool) {
	l, ok = ctx.Value(leaseKey{}).(Lease)
	return l, ok
}
