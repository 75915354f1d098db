package release

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is who runs the binary in the image: nobody in particular, as in distroless images.
const user = "65532:65532"

// certificates is the file with the certificates of public CAs, which the image takes from this machine.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

// newImage returns an image with the files of an archive, certificates, and nothing else. It is built without a base, so that it needs no
// registry, and has the binary of the archive. (ko would build another one, on a base from a registry.)
func newImage(t Target, s Stamp, files []packed) (v1.Image, error) {
	roots, err := os.ReadFile(certificates)
	if err != nil {
		return nil, err
	}
	var additions []mutate.Addendum
	for _, f := range append([]packed{
		{"etc/passwd", []byte("postrider:x:" + user + "::/:/\n"), 0o644}, {strings.TrimPrefix(certificates, "/"), roots, 0o644},
	}, files...) {
		content, err := packTar([]packed{f}, s.Time)
		if err != nil {
			return nil, err
		}
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil }
		layer, err := tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		additions = append(additions, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.Time}, CreatedBy: "make image"}})
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), additions...)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = t.OS, t.Arch, v1.Time{Time: s.Time}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/postrider"}, Env: []string{"PATH=/"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}}, StopSignal: "SIGTERM",
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/postrider", "health", "--address", ":8080"}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "postrider", "org.opencontainers.image.version": s.Version,
			"org.opencontainers.image.revision": s.Revision, "org.opencontainers.image.source": repository, "org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(image, config)
}

// writeImages writes images for several platforms to a folder, as an OCI layout.
func writeImages(dir string, images map[Target]v1.Image) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, t := range Targets() {
		image, ok := images[t]
		if !ok {
			continue
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: t.OS, Architecture: t.Arch}},
		})
	}
	if _, err := layout.Write(dir, index); err != nil {
		return fmt.Errorf("write the image: %w", err)
	}
	return nil
}

// Image writes the image to a folder, as an OCI layout.
func (p *Place) Image(ctx context.Context, targets []Target, s Stamp, dir string) error {
	images := map[Target]v1.Image{}
	for _, t := range targets {
		built, err := p.build(ctx, t, s)
		if err != nil {
			return err
		}
		if images[t], err = newImage(t, s, built.files); err != nil {
			return err
		}
	}
	return writeImages(dir, images)
}
