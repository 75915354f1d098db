// Package docs has the pages that the administration serves, so that they are at hand, in the version of the program, when nothing else is.
package docs

import "embed"

// Pages are the glossary, and what operators read.
//
//go:embed glossary.md operations/*.md operations/runbooks/*.md
var Pages embed.FS
