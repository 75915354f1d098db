package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// Object is something that migrations leave in the catalog of a database.
type Object struct {
	// Kind is table, column, index and so on; Table is that of a column or index; Definition makes an index.
	Kind, Table, Name, Definition string
}

func (o Object) key() Object { return Object{Kind: o.Kind, Table: o.Table, Name: o.Name} }

// FormatObjects writes objects as ParseObjects reads them: one a line, the parts separated by tabs.
func FormatObjects(objects []Object) string {
	var b strings.Builder
	for _, o := range objects {
		fmt.Fprintf(&b, "%s\t%s\t%s\t%s\n", o.Kind, o.Table, o.Name, o.Definition)
	}
	return b.String()
}

// ParseObjects reads objects.
func ParseObjects(text string) (out []Object) {
	for line := range strings.Lines(text) {
		if p := strings.Split(strings.TrimRight(line, "\n"), "\t"); len(p) == 4 {
			out = append(out, Object{p[0], p[1], p[2], p[3]})
		}
	}
	return out
}

// Tables returns the names of the tables among objects.
func Tables(objects []Object) (names []string) {
	for _, o := range objects {
		if o.Kind == "table" {
			names = append(names, o.Name)
		}
	}
	return names
}

// MissingObjects reports which of the wanted objects are not present. fill completes the names in a definition; prefix begins the
// names of tables.
func MissingObjects(wanted, present []Object, prefix string, fill func(definition string) string) (out []Finding) {
	have, gone := map[Object]bool{}, map[string]bool{}
	for _, o := range present {
		have[o.key()] = true
	}
	// Tables come first: what belongs to one that is gone is not reported again.
	sorted := slices.Clone(wanted)
	slices.SortStableFunc(sorted, func(a, b Object) int { return strings.Compare(a.Table, b.Table) })
	for _, want := range sorted {
		if have[want.key()] || gone[want.Table] {
			continue
		}
		name := prefix + want.Name
		switch want.Kind {
		case "table":
			gone[want.Name] = true
		case "column":
			name = prefix + want.Table + "." + want.Name
		}
		f := Finding{
			Level: Fault, Target: name, Message: fmt.Sprintf("The %s %s is missing.", want.Kind, name),
			Impact: "Programs that use it fail.", Evidence: "the catalog of the database, compared with what migrations leave",
			Fix: []Fix{command("restore it from a backup, or see how migrations make it:", "migrate print")},
		}
		if want.Kind == "index" {
			f.Impact = "Searches read whole tables instead, or rows that must be unique are not: fetching and settling become slow."
			f.Fix = []Fix{{Text: "as the owner of the table; those who write to the table wait meanwhile:", Command: fill(want.Definition) + ";"}}
		}
		out = append(out, f)
	}
	return out
}
