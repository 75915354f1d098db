// Package relay moves messages from the outbox to where they go.
package relay
