package program

import (
	"cmp"
	"runtime"
	"runtime/debug"
)

// build is the binary's build information.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Built    string `json:"commit_time,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// The linker sets these in the binaries of a release, which are built from its modules and not from a repository.
var version, revision, date string

// ReadBuild reads what the linker and the Go toolchain stored in the binary.
func ReadBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.time":
			b.Built = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	b.Version, b.Revision, b.Built = cmp.Or(version, b.Version), cmp.Or(revision, b.Revision), cmp.Or(date, b.Built)
	return b
}
