package config

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder fills a Config from a YAML tree and records the position of each key, so that later checks can refer to it.
type decoder struct {
	file      string
	faults    *Error
	positions map[string]*token.Position
	// variables maps each path set by the environment to its variable.
	variables map[string]string
	// storeChosen says that a flag names the store: a store from the environment is then ignored if the file has several.
	storeChosen bool
}

// decode reads YAML text into c.
func (d *decoder) decode(text []byte, c *Config) {
	tokens := lexer.Tokenize(string(text))
	if at := tooDeep(tokens); at != nil {
		d.faults.Faults = append(d.faults.Faults, Fault{Origin: d.file, Line: at.Line, Column: at.Column,
			Text: fmt.Sprintf("lists and mappings are nested deeper than %d", maxDepth)})
		return
	}
	tree, err := parser.Parse(tokens, 0)
	if err != nil {
		d.syntax(err)
		return
	}
	if len(tree.Docs) > 1 {
		d.faults.Faults = append(d.faults.Faults, Fault{Origin: d.file, Text: "more than one YAML document; put all keys into one"})
		return
	}
	for _, doc := range tree.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.NullType && doc.Body.Type() != ast.CommentType {
			d.mapping(doc.Body, reflect.ValueOf(c).Elem(), "")
		}
	}
}

// maxDepth is how deep lists and mappings may be nested within a line or brackets; a configuration needs three levels. The parser
// calls itself for each.
const maxDepth = 32

// tooDeep returns the position from which on YAML is nested too deeply, or nil.
func tooDeep(tokens token.Tokens) *token.Position {
	brackets, entries, line := 0, 0, 0
	for _, t := range tokens {
		if t.Position == nil {
			continue
		}
		if t.Position.Line != line {
			entries, line = 0, t.Position.Line
		}
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			brackets++
		case token.MappingEndType, token.SequenceEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.TagType, token.AnchorType:
			entries++
		}
		if brackets > maxDepth || entries > maxDepth {
			return t.Position
		}
	}
	return nil
}

// syntax reports YAML that cannot be parsed, at the parser's position.
func (d *decoder) syntax(err error) {
	f := Fault{Origin: d.file, Text: "not YAML"} // the text of err repeats a part of the file
	var at yaml.Error
	if errors.As(err, &at) {
		f.Text = "not YAML: " + at.GetMessage()
		if tk := at.GetToken(); tk != nil && tk.Position != nil {
			f.Line, f.Column = tk.Position.Line, tk.Position.Column
		}
	}
	d.faults.Faults = append(d.faults.Faults, f)
}

// fault reports an error at a node.
func (d *decoder) fault(n ast.Node, path, format string, args ...any) {
	p := position(n)
	d.faults.Faults = append(d.faults.Faults,
		Fault{Origin: d.file, Line: p.Line, Column: p.Column, Path: path, Text: fmt.Sprintf(format, args...)})
}

// mapping fills the struct v from a YAML mapping.
func (d *decoder) mapping(n ast.Node, v reflect.Value, path string) {
	m, ok := mappingOf(n)
	if !ok {
		d.fault(n, path, "here belongs a mapping with the keys %s", strings.Join(keys(v.Type()), ", "))
		return
	}
	for it := m.MapRange(); it.Next(); {
		name := it.Key().GetToken().Value
		at := join(path, name)
		field, ok := fieldOf(v.Type(), name)
		if !ok {
			d.unknown(it.Key(), at, name, keys(v.Type()))
			continue
		}
		d.positions[at] = it.Key().GetToken().Position
		d.value(it.Value(), v.FieldByIndex(field.Index), field.Tag, at)
	}
}

func (d *decoder) unknown(n ast.Node, path, name string, allowed []string) {
	d.fault(n, path, "unknown key%s; allowed: %s", didYouMean(name, allowed), strings.Join(allowed, ", "))
}

// value fills a field of any type. A key without a value keeps the default.
func (d *decoder) value(n ast.Node, v reflect.Value, tag reflect.StructTag, path string) {
	switch {
	case n.Type() == ast.NullType:
	case v.Kind() == reflect.Struct:
		if s, ok := v.Addr().Interface().(interface{ Shorthand(string) }); ok && isScalar(n) {
			s.Shorthand(textOf(n))
			return
		}
		d.mapping(n, v, path)
	case v.Kind() == reflect.Map:
		d.texts(n, v, path)
	case v.Kind() == reflect.Slice && (!isScalar(n) || v.Type().Elem().Kind() == reflect.Struct):
		d.list(n, v, tag, path)
	case !isScalar(n):
		d.fault(n, path, "here belongs a single value")
	default:
		if err := setText(v, tag, textOf(n)); err != nil {
			d.fault(n, path, "%v", err)
		}
	}
}

// list fills a slice from a YAML sequence.
func (d *decoder) list(n ast.Node, v reflect.Value, tag reflect.StructTag, path string) {
	a, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fault(n, path, "here belongs a list")
		return
	}
	for i, it := 0, a.ArrayRange(); it.Next(); i++ {
		at := fmt.Sprintf("%s[%d]", path, i)
		d.positions[at] = position(it.Value())
		element := reflect.New(v.Type().Elem()).Elem()
		d.value(it.Value(), element, tag, at)
		v.Set(reflect.Append(v, element))
	}
}

// texts fills a map from names to texts.
func (d *decoder) texts(n ast.Node, v reflect.Value, path string) {
	m, ok := mappingOf(n)
	if !ok {
		d.fault(n, path, "here belongs a mapping from names to values")
		return
	}
	out := map[string]string{}
	for it := m.MapRange(); it.Next(); {
		name := it.Key().GetToken().Value
		at := join(path, name)
		d.positions[at] = it.Key().GetToken().Position
		if !isScalar(it.Value()) {
			d.fault(it.Value(), at, "here belongs a single value")
			continue
		}
		out[name] = textOf(it.Value())
	}
	v.Set(reflect.ValueOf(out))
}

// mappingOf returns n as a mapping. Anchors, aliases and tags are not supported: a configuration does not need them.
func mappingOf(n ast.Node) (ast.MapNode, bool) {
	switch m := n.(type) {
	case *ast.MappingNode:
		return m, true
	case *ast.MappingValueNode:
		return m, true
	default:
		return nil, false
	}
}

// position is the start of a node; the token of a block mapping is its first colon, so its first key is used instead.
func position(n ast.Node) *token.Position {
	if m, ok := mappingOf(n); ok && n.GetToken().Value == ":" {
		if it := m.MapRange(); it.Next() {
			return it.Key().GetToken().Position
		}
	}
	return n.GetToken().Position
}

// isScalar says whether n is a single value: text, number or boolean.
func isScalar(n ast.Node) bool {
	switch n.(type) {
	case *ast.StringNode, *ast.LiteralNode, *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return true
	default:
		return false
	}
}

// textOf returns a single value as written.
func textOf(n ast.Node) string {
	if l, ok := n.(*ast.LiteralNode); ok {
		return l.Value.Value // the token is the block indicator, | or >
	}
	return n.GetToken().Value
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fieldOf finds the field of a YAML key.
func fieldOf(t reflect.Type, key string) (reflect.StructField, bool) {
	for f := range t.Fields() {
		if f.Tag.Get("yaml") == key && key != "" {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// keys lists the YAML keys of a struct, sorted.
func keys(t reflect.Type) []string {
	set := map[string]bool{}
	for f := range t.Fields() {
		if name := f.Tag.Get("yaml"); name != "" {
			set[name] = true
		}
	}
	return slices.Sorted(maps.Keys(set))
}
