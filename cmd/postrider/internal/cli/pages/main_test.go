// Package pages_test types the commands of the documentation into a shell, next to databases, brokers and services like those that the
// pages speak of.
package pages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/postrider/postrider/cmd/postrider/internal/cli"
	"github.com/postrider/postrider/cmd/postrider/internal/cli/program"
)

const root = "../../../../.."

// bin is a folder with the programs that the pages call.
var bin string

// editor is what a reader does in an editor.
const editor = `#!/bin/sh
sed -i 's/order/ORDER/' "$1"
`

// pager is what a reader calls when something is wrong.
const pager = `#!/bin/sh
echo somebody was called
`

// started is set for the program postrider, also where it starts itself by the path of its file.
const started = "PROGRAM=postrider"

// TestMain is the program postrider if it is called by this name.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "postrider" || slices.Contains(os.Environ(), started) {
		signals := make(chan os.Signal, 2)
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
		os.Exit(cli.Run(context.Background(), &program.Program{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Environ: os.Environ(), Signals: signals, Exit: os.Exit,
		}, os.Args[1:]))
	}
	code, err := withPrograms(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withPrograms(m *testing.M) (code int, err error) {
	if bin, err = os.MkdirTemp("", "postrider-pages-*"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	if err := errors.Join(os.Symlink(self, filepath.Join(bin, "postrider")),
		os.WriteFile(filepath.Join(bin, "vi"), []byte(editor), 0o700),
		os.WriteFile(filepath.Join(bin, "page-somebody"), []byte(pager), 0o700)); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
