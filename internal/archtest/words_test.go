package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// word is a word that docs/glossary.md replaces.
type word struct {
	word    *regexp.Regexp
	instead string
}

// banned are words of comments, texts, exported names and docs.
var banned = []word{
	{regexp.MustCompile(`(?i)\b(letters?|bury|buries|buried)\b`), "dead letter, dead-lettered message"},
	{regexp.MustCompile(`(?i)\b(aside|set apart|puts? away)\b`), "park, parked"},
	{regexp.MustCompile(`(?i)\b(lanes?)\b`), "queue"},
	{regexp.MustCompile(`(?i)\bsecond cop(y|ies)\b`), "duplicate"},
	{regexp.MustCompile(`(?i)\b(comes?|came) again\b`), "is redelivered"},
	{regexp.MustCompile(`(?i)\b(anew|upon)\b`), "again, on"},
	{regexp.MustCompile(`(?i)\bmend(s|ed|ing)?\b`), "fix"},
	{regexp.MustCompile(`(?i)\bpass(es|ed)? over\b`), "skip"},
	{regexp.MustCompile(`(?i)\bforg(et|ets|etting|ot|otten)\b`), "remove"},
}

// allowed are uses with another meaning: of an alphabet, of Go's and SQL's own words, of columns of the schema (docs/adr/0018).
var allowed = regexp.MustCompile(`(?i)dead[-\s]letters?\b|\bletters?(,| and) digits|letter or underscore|letters a to z|lower-case letters|except letters and digits|` +
	`number of letters to insert|\{prefix\}aside|name = 'aside'|g\.letters|AS letters|ORDER BY letters|\x60letters\x60|forgetting to|\x60forget\x60 of|inbox\.Inbox\.Forget`)

// bannedNames are words of declared names, in all code including tests.
var bannedNames = []word{
	{regexp.MustCompile(`\b(letters?|bury|buries|buried|burying)\b`), "dead letter, dead"},
	{regexp.MustCompile(`\b(aside|apart|put away|puts away)\b`), "parked"},
	{regexp.MustCompile(`\b(behind|beside|followers?)\b`), "after, queued"},
	{regexp.MustCompile(`\b(forgets?|forgot|forgotten|forgetting)\b`), "remove"},
	{regexp.MustCompile(`\bepochs?\b`), "incarnation, token"},
	{regexp.MustCompile(`\b(give|gives|gave) up\b`), "dead-letter, fail, revoke"},
	{regexp.MustCompile(`\b(goes|go) on\b`), "continue"},
	{regexp.MustCompile(`\b(doubt|doubtful)\b`), "uncertain"},
	{regexp.MustCompile(`\bverdicts?\b`), "outcome"},
	{regexp.MustCompile(`\b(lanes?|mend|mended|anew|standing|standings)\b`), "queue, fix, again, result"},
	{regexp.MustCompile(`\bbeats?\b`), "heartbeat"},
}

// allowedNames are names with another meaning: a dead letter, a character, and the epoch of a leader as Kafka has it.
var allowedNames = regexp.MustCompile(`\bdead letters?\b|\bdead lettered\b|\bis letter\b|\bleader epoch\b|^compare epoch$`)

// TestWords: one word for one thing. The replaced words were those of a translation.
func TestWords(t *testing.T) {
	t.Parallel()
	report := func(words []word, where, text string) {
		for _, b := range words {
			if found := b.word.FindString(text); found != "" {
				t.Errorf("%s: %q; write: %s", where, found, b.instead)
			}
		}
	}
	check := func(where, text string) { report(banned, where, allowed.ReplaceAllString(text, "")) }
	checkName := func(where, name string) {
		report(bannedNames, where, allowedNames.ReplaceAllString(strings.ToLower(words(name)), ""))
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name := d.Name()
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(name, ".") && path != root || name == "adr" || name == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(name, ".md") && name != "CHANGELOG.md" && name != "glossary.md":
			text, err := os.ReadFile(path)
			check(path, string(text))
			return err
		case !strings.HasSuffix(name, ".go"):
			return nil
		case strings.HasSuffix(name, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test"):
			return checkFile(path, nil, checkName)
		}
		return checkFile(path, check, checkName)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// checkFile checks declared names and, unless check is nil, comments, texts and exported names.
func checkFile(path string, check, checkName func(where, text string)) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	at := func(pos token.Pos) string { return files.Position(pos).String() }
	for name := range declared(file) {
		checkName(at(name.Pos()), name.Name)
	}
	if check == nil {
		return nil
	}
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

// declared yields the names that a file declares: of functions, types, fields, parameters, variables and constants.
func declared(file *ast.File) iter.Seq[*ast.Ident] {
	return func(yield func(*ast.Ident) bool) {
		var names []*ast.Ident
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				names = append(names, n.Name)
			case *ast.TypeSpec:
				names = append(names, n.Name)
			case *ast.ValueSpec:
				names = append(names, n.Names...)
			case *ast.Field:
				names = append(names, n.Names...)
			case *ast.AssignStmt:
				if n.Tok == token.DEFINE {
					for _, e := range n.Lhs {
						if name, ok := e.(*ast.Ident); ok {
							names = append(names, name)
						}
					}
				}
			}
			return true
		})
		for _, name := range names {
			if !yield(name) {
				return
			}
		}
	}
}

// Where a word of a name in mixed caps begins, after a lower-case letter or an upper-case one.
var afterLower, afterUpper = regexp.MustCompile(`([a-z])([A-Z])`), regexp.MustCompile(`([A-Z])([A-Z][a-z])`)

// words splits a name in mixed caps.
func words(name string) string {
	return afterUpper.ReplaceAllString(afterLower.ReplaceAllString(name, "$1 $2"), "$1 $2")
}
