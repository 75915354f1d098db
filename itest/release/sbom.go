package release

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// sbom returns the list of what is linked into a binary, in the CycloneDX format.
func sbom(info *buildinfo.BuildInfo, s Stamp) ([]byte, error) {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: s.Time.Format(time.RFC3339),
		Component: component(cyclonedx.ComponentTypeApplication, info.Main.Path, s.Version),
	}
	components := []cyclonedx.Component{*component(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, m := range info.Deps {
		version := m.Version
		if inRepository(m.Path) {
			version = s.Version
		}
		c := component(cyclonedx.ComponentTypeLibrary, m.Path, version)
		if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
			c.Hashes = &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
		}
		components = append(components, *c)
	}
	bom.Components = &components
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, fmt.Errorf("write the SBOM: %w", err)
	}
	return out.Bytes(), nil
}

// component returns a Go module with its package URL, by which scanners look it up.
func component(kind cyclonedx.ComponentType, path, version string) *cyclonedx.Component {
	url := "pkg:golang/" + path + "@" + version
	return &cyclonedx.Component{Type: kind, BOMRef: url, Name: path, Version: version, PackageURL: url}
}
