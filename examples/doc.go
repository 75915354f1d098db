// Package examples contains complete programs that use Postrider, each in its own directory.
package examples
