// Package examples holds whole programs that use Postrider, each in a directory of its own.
package examples
