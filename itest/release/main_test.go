package release_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/postrider/postrider/itest/release"
)

// modules is the folder of the module cache that the places of all tests share.
var modules string

func TestMain(m *testing.M) {
	code, err := withModules(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func withModules(run func() int) (code int, err error) {
	if modules, err = os.MkdirTemp("", "postrider-modules-*"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(modules)) }()
	return run(), nil
}

// prepared is a release of the work tree.
var prepared = sync.OnceValues(func() (*release.Release, error) {
	tree, err := release.ReadTree(context.Background(), root)
	if err != nil {
		return nil, err
	}
	return release.Prepare(tree, stamp.Version)
})

// newPlace returns a place with a release of the work tree.
func newPlace(t *testing.T) *release.Place {
	t.Helper()
	r, err := prepared()
	if err != nil {
		t.Fatal(err)
	}
	place, err := release.NewPlace(t.Context(), t.TempDir(), modules)
	if err != nil {
		t.Fatal(err)
	}
	if err := place.Put(r); err != nil {
		t.Fatal(err)
	}
	return place
}
