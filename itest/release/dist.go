package release

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// built is the binary of a target, with what is published with it.
type built struct {
	files []packed // of the archive
	sbom  []byte
}

// build builds the binary of a target.
func (p *Place) build(ctx context.Context, t Target, s Stamp) (built, error) {
	path := filepath.Join(p.Dir, "built", t.OS+"_"+t.Arch)
	if err := p.compile(ctx, t, s, path); err != nil {
		return built{}, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return built{}, err
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return built{}, err
	}
	notices, err := p.notices(ctx, info)
	if err != nil {
		return built{}, err
	}
	name := "postrider"
	if t.OS == "windows" {
		name += ".exe"
	}
	list, err := sbom(info, s)
	return built{sbom: list, files: []packed{
		{name, binary, 0o755}, {"LICENSE", p.Release.Tree["LICENSE"], 0o644}, {"THIRD_PARTY_NOTICES", notices, 0o644},
	}}, err
}

// Dist writes what a release publishes besides its modules and its image: for each target, an archive with the binary and its licenses,
// and an SBOM; checksums of all, and their signature if there is a key. It returns the names of the files.
func (p *Place) Dist(ctx context.Context, targets []Target, s Stamp, dir string) ([]string, error) {
	files := map[string][]byte{}
	for _, t := range targets {
		b, err := p.build(ctx, t, s)
		if err != nil {
			return nil, err
		}
		name := strings.Join([]string{"postrider", strings.TrimPrefix(s.Version, "v"), t.OS, t.Arch}, "_")
		files[name+".cdx.json"] = b.sbom
		if files[name+extension(t)], err = pack(t, b.files, s.Time); err != nil {
			return nil, err
		}
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	files["SHA256SUMS"] = []byte(sums.String())
	signature, err := sign(files["SHA256SUMS"], os.Getenv(KeyVariable), os.Getenv(PasswordVariable))
	if err != nil {
		return nil, err
	}
	if signature != nil {
		files["SHA256SUMS.minisig"] = signature
	}
	for name, content := range files {
		if err := writeFile(filepath.Join(dir, name), content); err != nil {
			return nil, err
		}
	}
	return slices.Sorted(maps.Keys(files)), nil
}
