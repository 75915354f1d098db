package output

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Fields writes names and values, one pair per line, without empty values.
type Fields struct{ w *tabwriter.Writer }

// NewFields returns fields that are written to out.
func NewFields(out io.Writer) *Fields { return &Fields{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)} }

// Add adds a name and a value, unless the value is empty.
func (f *Fields) Add(name, value string) {
	if value != "" {
		fmt.Fprintf(f.w, "  %s\t%s\n", name, Printable(value))
	}
}

// Flush writes the fields. A closed output shows in the writes that follow.
func (f *Fields) Flush() { _ = f.w.Flush() }
