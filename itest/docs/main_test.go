// Package docs_test checks the documents against what they describe: their links, their program, the tests and commands
// that they name, and the state diagram.
package docs_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// root is the folder of the repository.
var root string

// TestMain runs the tests in an empty folder, since the first program creates a database in the current folder.
func TestMain(m *testing.M) {
	code, err := runInEmptyFolder(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runInEmptyFolder(m *testing.M) (code int, err error) {
	if root, err = filepath.Abs("../.."); err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("", "postrider-docs-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chdir(dir); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
