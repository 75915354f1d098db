package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// banned are words that docs/glossary.md replaces, in comments, texts, exported names and docs.
var banned = []struct {
	word    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(letters?|bury|buries|buried)\b`), "dead letter, dead-lettered message"},
	{regexp.MustCompile(`(?i)\b(aside|set apart|puts? away)\b`), "park, parked"},
	{regexp.MustCompile(`(?i)\b(lanes?)\b`), "queue"},
	{regexp.MustCompile(`(?i)\bsecond cop(y|ies)\b`), "duplicate"},
	{regexp.MustCompile(`(?i)\b(comes?|came) again\b`), "is redelivered"},
	{regexp.MustCompile(`(?i)\b(anew|upon)\b`), "again, on"},
	{regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), "fix"},
	{regexp.MustCompile(`(?i)\bpass(es|ed)? over\b`), "skip"},
	{regexp.MustCompile(`(?i)\bmade anew\b`), "recreated"},
}

// allowed are uses with another meaning: of an alphabet, of Go's and SQL's own words, of columns of the schema.
var allowed = regexp.MustCompile(`(?i)dead[-\s]letters?\b|\bletters?(,| and) digits|letter or underscore|lower-case letters|except letters and digits|` +
	`number of letters to insert|\{prefix\}aside|name = 'aside'|g\.letters|AS letters|ORDER BY letters|\x60letters\x60`)

// TestWords: one word for one thing. The replaced words were those of a translation.
func TestWords(t *testing.T) {
	t.Parallel()
	check := func(where, text string) {
		text = allowed.ReplaceAllString(text, "")
		for _, b := range banned {
			if found := b.word.FindString(text); found != "" {
				t.Errorf("%s: %q; write: %s", where, found, b.instead)
			}
		}
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(name, ".") && path != root || name == "adr" || strings.HasSuffix(name, "test") || name == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md" && name != "glossary.md":
			text, err := os.ReadFile(path)
			check(path, string(text))
			return err
		case strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go"):
			return checkFile(path, check)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkFile checks comments, texts and exported names.
func checkFile(path string, check func(where, text string)) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		return err
	}
	at := func(pos token.Pos) string { return files.Position(pos).String() }
	for _, group := range file.Comments {
		check(at(group.Pos()), group.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if n.Kind == token.STRING {
				check(at(n.Pos()), n.Value)
			}
		case *ast.Ident:
			if n.IsExported() {
				check(at(n.Pos()), words(n.Name))
			}
		}
		return true
	})
	return nil
}

// words splits a name in mixed caps.
func words(name string) string {
	return regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(name, "$1 $2")
}
