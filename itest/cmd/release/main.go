// Release prepares releases. Each subcommand works on the repository in the current folder:
//
//	release tag v0.1.0       commit a release and tag its modules; push nothing
//	release check [v0.1.0]   use the release as its users will, from an empty folder
//	release modules [v0.1.0] a module proxy with the release, in dist/modules
//	release tidy             go mod tidy in every module, with the others as they are in the work tree
//	release dist [v0.1.0]    archives for all platforms, checksums, SBOMs and a signature, in dist
//	release image [v0.1.0]   the container image, in dist/image
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/itest/release"
)

// unreleased is the version of what is checked or built without one.
const unreleased = "v0.0.1-unreleased"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || len(args) > 2 {
		return errors.New("want: release tag VERSION, release tidy, or release check, modules, dist or image [VERSION]")
	}
	version := unreleased
	if len(args) == 2 {
		version = args[1]
	}
	switch args[0] {
	case "tag":
		return tag(ctx, version)
	case "tidy":
		return release.Tidy(ctx, ".")
	case "check":
		return inPlace(ctx, version, func(p *release.Place) error { return p.Check(ctx, os.Stdout) })
	case "modules":
		return inPlace(ctx, version, func(p *release.Place) error {
			return p.Release.WriteProxy(filepath.Join("dist", "modules"), time.Now())
		})
	case "dist":
		return inPlace(ctx, version, func(p *release.Place) error { return dist(ctx, p) })
	case "image":
		return inPlace(ctx, version, func(p *release.Place) error { return image(ctx, p) })
	}
	return fmt.Errorf("there is no subcommand %q", args[0])
}

func tag(ctx context.Context, version string) error {
	if version == unreleased {
		return errors.New("tag needs a version: make release VERSION=v0.1.0")
	}
	tags, err := release.Tag(ctx, ".", version, time.Now())
	if err != nil {
		return err
	}
	fmt.Printf("The release is committed and tagged. After make release-check, publish it with:\n\n  git push --atomic origin HEAD %s\n", strings.Join(tags, " "))
	return nil
}

// inPlace runs f on a release of the work tree, in a temporary folder.
func inPlace(ctx context.Context, version string, f func(*release.Place) error) (err error) {
	tree, err := release.ReadTree(ctx, ".")
	if err != nil {
		return err
	}
	r, err := release.Prepare(tree, version)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "postrider-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	place, err := release.NewPlace(ctx, dir, filepath.Join(dir, "modules"))
	if err != nil {
		return err
	}
	if err := place.Put(r); err != nil {
		return err
	}
	return f(place)
}

func dist(ctx context.Context, p *release.Place) error {
	stamp, err := release.ReadStamp(ctx, ".", p.Release.Version)
	if err != nil {
		return err
	}
	names, err := p.Dist(ctx, release.Targets(), stamp, "dist")
	for _, name := range names {
		fmt.Println(filepath.Join("dist", name))
	}
	return err
}

func image(ctx context.Context, p *release.Place) error {
	stamp, err := release.ReadStamp(ctx, ".", p.Release.Version)
	if err != nil {
		return err
	}
	return p.Image(ctx, []release.Target{{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"}}, stamp, filepath.Join("dist", "image"))
}
