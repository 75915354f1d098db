// Package output writes tables, fields, messages, numbers and times for people, and JSON for programs.
package output

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// tableWidth is the number of columns that a table fits, unless what identifies its rows needs more.
const tableWidth = 100

// minLast is the least number of columns for the last cell of a row.
const minLast = 16

// columnGap is the space between two columns.
const columnGap = 2

// Table writes rows in aligned columns. The last cells are shortened to what fits tableWidth; the others are names,
// numbers and times, and stay whole. Long tables are aligned in pieces, so that they need not fit into memory.
type Table struct {
	out  io.Writer
	rows [][]string
	err  error
}

// tablePiece is the number of rows that are aligned together.
const tablePiece = 1000

// NewTable returns a table with a header.
func NewTable(out io.Writer, columns ...string) *Table {
	return &Table{out: out, rows: [][]string{columns}}
}

// NewTableUnless returns NewTable, or nil if not is set.
func NewTableUnless(not bool, out io.Writer, columns ...string) *Table {
	if not {
		return nil
	}
	return NewTable(out, columns...)
}

// Row adds a row.
func (t *Table) Row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = Printable(fmt.Sprint(c))
	}
	if t.rows = append(t.rows, row); len(t.rows) == tablePiece {
		t.writePiece()
	}
}

// Flush writes the table out.
func (t *Table) Flush() error {
	t.writePiece()
	return t.err
}

// writePiece writes the rows that were collected.
func (t *Table) writePiece() {
	if len(t.rows) == 0 || t.err != nil {
		t.rows = nil
		return
	}
	last := max(tableWidth-widthBeforeLast(t.rows), minLast)
	w := tabwriter.NewWriter(t.out, 0, 0, columnGap, ' ', 0)
	for _, row := range t.rows {
		row[len(row)-1] = Shorten(row[len(row)-1], last)
		fmt.Fprintln(w, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	t.err, t.rows = w.Flush(), nil
}

// widthBeforeLast is the number of columns that all cells but the last need.
func widthBeforeLast(rows [][]string) int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row[:len(row)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+columnGap)
		}
	}
	sum := 0
	for _, w := range widths {
		sum += w
	}
	return sum
}
