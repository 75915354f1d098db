package migrate

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
)

// AtlasSumFile is the file in which Atlas expects the checksums of a directory.
const AtlasSumFile = "atlas.sum"

// AtlasSum returns the content of AtlasSumFile for the files of a directory, in the order of their names. The checksum of a file
// includes those of all files before it, so that a file that is inserted or removed changes the later ones.
func AtlasSum(files []File) string {
	var lines strings.Builder
	all, total := sha256.New(), sha256.New()
	for _, f := range files {
		all.Write([]byte(f.Name + f.Text))
		sum := base64.StdEncoding.EncodeToString(all.Sum(nil))
		total.Write([]byte(f.Name + sum))
		fmt.Fprintf(&lines, "%s h1:%s\n", f.Name, sum)
	}
	return fmt.Sprintf("h1:%s\n%s", base64.StdEncoding.EncodeToString(total.Sum(nil)), lines.String())
}
