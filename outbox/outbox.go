// Package outbox publishes messages inside the caller's database transaction.
package outbox

import "errors"

// ErrNoTransaction is returned when Publish is given no transaction, or one that has ended.
var ErrNoTransaction = errors.New("publish needs an open transaction")
