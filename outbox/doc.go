// Package outbox publishes messages inside the caller's database transaction: a message exists if and only if the
// transaction that published it committed.
package outbox
