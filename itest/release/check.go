package release

import (
	"context"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"strings"
)

// Check uses the release as its users will: it gets modules into an empty one, builds and runs the README's program, installs the
// binary, and runs it. It writes what it does.
func (p *Place) Check(ctx context.Context, log io.Writer) error {
	for _, m := range p.Release.Modules {
		if !m.Published {
			continue
		}
		if _, err := p.Run(ctx, path.Join("tree", m.Dir), "go", "list", "-mod=readonly", "-deps", "-test", "./..."); err != nil {
			return fmt.Errorf("%s does not stand alone (make tidy): %w", m.Path, err)
		}
		fmt.Fprintln(log, "stands alone:", m.Path)
	}
	if err := p.checkProgram(ctx, log); err != nil {
		return err
	}
	return p.checkBinary(ctx, log)
}

// withServers links the modules whose servers the README's program does not use.
const withServers = `package main

import (
	_ "` + Path + `/broker/nats"
	_ "` + Path + `/store/postgres"
)
`

// checkProgram gets the modules into an empty one, in the version that the proxies have as the latest, and runs the README's program.
func (p *Place) checkProgram(ctx context.Context, log io.Writer) error {
	program, err := ProgramOf(string(p.Release.Tree["README.md"]))
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"main.go": program, "servers.go": withServers} {
		if err := writeFile(filepath.Join(p.Dir, "shop", name), []byte(text)); err != nil {
			return err
		}
	}
	for _, command := range []string{
		"go mod init example.com/shop",
		"go get " + Path + "/store/postgres " + Path + "/broker/nats",
		"go mod tidy",
		"go build -o shop .",
	} {
		words := strings.Fields(command)
		if _, err := p.Run(ctx, "shop", words[0], words[1:]...); err != nil {
			return err
		}
	}
	out, err := p.Run(ctx, "shop", "./shop")
	if err != nil {
		return err
	}
	if want := "ship order 42\n"; out != want {
		return fmt.Errorf("the README's program wrote %q, want %q", out, want)
	}
	fmt.Fprintln(log, "got, built and run: the README's program")
	return nil
}

// checkBinary installs the binary and runs it.
func (p *Place) checkBinary(ctx context.Context, log io.Writer) error {
	if _, err := p.Run(ctx, ".", "go", "install", Path+"/"+Command+"@"+p.Release.Version); err != nil {
		return err
	}
	out, err := p.Run(ctx, ".", filepath.Join(p.Dir, "bin", "postrider"), "version")
	if err != nil {
		return err
	}
	if !strings.HasPrefix(out, "postrider "+p.Release.Version+" ") {
		return fmt.Errorf("the installed binary says %q, want version %s", out, p.Release.Version)
	}
	fmt.Fprint(log, "installed and run: ", out)
	return nil
}
