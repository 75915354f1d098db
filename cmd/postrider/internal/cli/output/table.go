// Package output writes tables, fields, messages, numbers and times for people, and JSON for programs.
package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// NewTableUnless returns newTable, or nil if not is set.
func NewTableUnless(not bool, out io.Writer, columns ...string) *Table {
	if not {
		return nil
	}
	return NewTable(out, columns...)
}

// Table writes rows in aligned columns. Long tables are aligned in pieces, so that they need not fit into memory.
type Table struct {
	w    *tabwriter.Writer
	rows int
}

// tablePiece is the number of rows that are aligned together.
const tablePiece = 1000

// NewTable returns a table with a header.
func NewTable(out io.Writer, columns ...string) *Table {
	t := &Table{w: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.Row(anys(columns)...)
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...any) {
	texts := make([]string, len(cells))
	for i, c := range cells {
		texts[i] = Printable(fmt.Sprint(c))
	}
	fmt.Fprintln(t.w, strings.TrimRight(strings.Join(texts, "\t"), "\t"))
	if t.rows++; t.rows%tablePiece == 0 {
		_ = t.w.Flush() // a closed output shows in the last flush too
	}
}

// Flush writes the table out.
func (t *Table) Flush() error { return t.w.Flush() }

func anys(texts []string) []any {
	out := make([]any, len(texts))
	for i, s := range texts {
		out[i] = s
	}
	return out
}
