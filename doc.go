// Package postrider is the vocabulary that every room of Postrider shares.
package postrider
