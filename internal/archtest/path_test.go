package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// step is a call in a package.
type step struct{ from, to string }

// steps lists the calls by which a message gets from one package to the next, in the order in which it passes them: methods of the
// interfaces that a store or a broker implements, methods of the schedule, and calls of a user's handler.
var steps = []step{
	{"outbox", "store.Outbox.Insert"},
	{"outbox", "store.Outbox.Commit"},
	{"relay", "store.Log.Fetch"},
	{"relay", "schedule.Partition.Announce"},
	{"relay", "schedule.Partition.Skip"},
	{"relay", "schedule.Partition.Admit"},
	{"relay", "store.Log.Due"},
	{"relay", "schedule.Partition.AdmitRun"},
	{"relay", "schedule.Schedule.Take"},
	{"relay", "relay.Relay.publish"},
	{"relay", "postrider.Handler"},
	{"relay", "schedule.Schedule.Complete"},
	{"relay", "schedule.Partition.NextSettlement"},
	{"relay", "store.Log.Settle"},
	{"relay", "schedule.Partition.Confirm"},
	{"relay", "schedule.Schedule.Commit"},
	{"relay", "store.TxSettler.CommitSettled"},
	{"relay", "schedule.Schedule.Committed"},
	{"relay", "held.Store.Apply"},
	{"inbox", "postrider.Subscriber.Subscribe"},
	{"inbox", "postrider.Subscription.Receive"},
	{"inbox", "store.BeginBatcher.BeginClaim"},
	{"inbox", "postrider.Handler"},
	{"inbox", "inbox.Handler"},
	{"inbox", "store.TxSettler.CommitSettled"},
	{"inbox", "store.Parker.Park"},
	{"inbox", "store.Log.Due"},
	{"inbox", "postrider.Settler.Ack"},
}

// onThePath are the packages that a message passes, except those of stores and brokers.
var onThePath = []string{"outbox", "relay", "relay/internal/schedule", "inbox", "held", "deadletter", "saga"}

// TestPathOfAMessage: a package makes each call of the path in one function, and no other package on the path makes it, so that there
// is one place to look at when a message does not get further, and nothing exists twice. docs/code.md shows the path as it is in the
// code.
func TestPathOfAMessage(t *testing.T) {
	t.Parallel()
	code := &checked{root: repository(t), set: token.NewFileSet(), packages: make(map[string]*types.Package)}
	callers := make(map[string]map[string][]string)
	for _, folder := range onThePath {
		found, err := code.calls(folder)
		if err != nil {
			t.Fatal(err)
		}
		callers[folder] = found
	}
	var drawn strings.Builder
	for _, s := range steps {
		switch by := callers[s.from][s.to]; len(by) {
		case 1:
			fmt.Fprintf(&drawn, "%-34s → %s\n", by[0], s.to)
		default:
			t.Errorf("%s is called by %d functions of %s, want one: %q", s.to, len(by), s.from, by)
		}
		for _, folder := range onThePath {
			called := callers[folder][s.to]
			isOwn := strings.HasPrefix(s.to, filepath.Base(folder)+".")
			if len(called) > 0 && !isOwn && !slices.Contains(steps, step{folder, s.to}) {
				t.Errorf("%s is called by %s too: %q", s.to, folder, called)
			}
		}
	}
	doc, err := os.ReadFile(filepath.Join(code.root, "docs", "code.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), "```text\n"+drawn.String()+"```\n") {
		t.Errorf("docs/code.md does not show the path of a message, which is:\n%s", drawn.String())
	}
}

// TestCalls: calls are found through embedded types, type parameters and interfaces of other packages, and belong to the
// function that makes them, however deep.
func TestCalls(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for name, text := range map[string]string{
		"message.go": "package postrider\n\nimport \"context\"\n\ntype Handler func(ctx context.Context) error\n",
		"relay/relay.go": `package relay

import (
	"context"

	"github.com/postrider/postrider"
)

type Log interface{ Fetch(ctx context.Context) error }

type Source[Tx any] interface{ Log }

type base struct{ publish func() }

type Relay[Tx any] struct {
	base
	store Source[Tx]
}

func (r *Relay[Tx]) one(ctx context.Context) error { return r.store.Fetch(ctx) }

func (r Relay[Tx]) two(ctx context.Context, h postrider.Handler) {
	_ = func() { _ = r.store.Fetch(ctx); _ = r.store.Fetch(ctx) }
	_ = postrider.Handler(h)
	r.publish()
}

func three(h postrider.Handler) { go func() { _ = h(nil) }() }
`,
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	code := &checked{root: root, set: token.NewFileSet(), packages: make(map[string]*types.Package)}
	got, err := code.calls("relay")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{
		"relay.Log.Fetch":     {"relay.Relay.one", "relay.Relay.two"},
		"relay.Relay.publish": {"relay.Relay.two"},
		"postrider.Handler":   {"relay.three"},
	}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("calls: %q, want %q", got, want)
	}
}

// checked type-checks packages of this repository. It knows nothing of other packages; what depends on their types stays
// without a type.
type checked struct {
	root     string
	set      *token.FileSet
	packages map[string]*types.Package
}

// Import implements types.Importer.
func (c *checked) Import(path string) (*types.Package, error) {
	folder, ours := relative(path)
	if p := c.packages[path]; p != nil {
		return p, nil
	}
	if !ours {
		p := types.NewPackage(path, filepath.Base(path))
		p.MarkComplete()
		c.packages[path] = p
		return p, nil
	}
	p, _, err := c.check(folder, nil)
	return p, err
}

// check type-checks a package and returns its files.
func (c *checked) check(folder string, info *types.Info) (*types.Package, []*ast.File, error) {
	names, err := filepath.Glob(filepath.Join(c.root, folder, "*.go"))
	if err != nil {
		return nil, nil, err
	}
	var files []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(c.set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, nil, err
		}
		files = append(files, file)
	}
	path := Root
	if folder != "." {
		path += "/" + folder
	}
	config := types.Config{Importer: c, Error: func(error) {}} // what other packages declare is missing
	p, _ := config.Check(path, c.set, files, info)
	c.packages[path] = p
	return p, files, nil
}

// calls returns the functions of a package that call a method, a field or a value of a named function type, by what they
// call.
func (c *checked) calls(folder string) (map[string][]string, error) {
	info := &types.Info{Uses: make(map[*ast.Ident]types.Object), Types: make(map[ast.Expr]types.TypeAndValue), Selections: make(map[*ast.SelectorExpr]*types.Selection)}
	_, files, err := c.check(folder, info)
	if err != nil {
		return nil, err
	}
	found := make(map[string][]string)
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			caller := filepath.Base(folder) + "." + f.Name.Name
			if f.Recv != nil {
				caller = filepath.Base(folder) + "." + receiver(f) + "." + f.Name.Name
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok {
					if to := called(info, call.Fun); to != "" && !slices.Contains(found[to], caller) {
						found[to] = append(found[to], caller)
					}
				}
				return true
			})
		}
	}
	return found, nil
}

// receiver is the name of a method's receiver type.
func receiver(f *ast.FuncDecl) string {
	e := f.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return "?"
		}
	}
}

// called names what an expression calls: a method or field as package.Type.name, a value of a named function type as
// package.Type; "" for anything else.
func called(info *types.Info, e ast.Expr) string {
	if s, ok := e.(*ast.SelectorExpr); ok {
		if selection := info.Selections[s]; selection != nil {
			return member(selection)
		}
	}
	if named, ok := info.TypeOf(e).(*types.Named); ok && info.Types[e].IsValue() {
		return named.Obj().Pkg().Name() + "." + named.Obj().Name()
	}
	return ""
}

// member names a selected method by the type that declares it, and a selected field by the type that it was selected from.
func member(s *types.Selection) string {
	from := s.Recv()
	if f, ok := s.Obj().(*types.Func); ok {
		if recv := f.Signature().Recv(); recv != nil {
			from = recv.Type()
		}
	}
	if p, ok := from.(*types.Pointer); ok {
		from = p.Elem()
	}
	named, ok := from.(*types.Named)
	if !ok || named.Obj().Pkg() == nil {
		return ""
	}
	return named.Obj().Pkg().Name() + "." + named.Obj().Name() + "." + s.Obj().Name()
}
