package migrate

import (
	"fmt"
	"slices"
	"strings"
)

// Script is a migration that other tools can run: its statements, with the record of the version.
type Script struct {
	Version  int
	Name     string
	Up, Down []string // each is one or several statements without the last semicolon
	// Begin and End make a transaction of the statements; "" if the database has none for changes of the schema.
	Begin, End string
	// Delimited: a statement can contain semicolons, so that clients need another delimiter.
	Delimited bool
}

// ScriptOf returns the statements of a migration.
func ScriptOf(version int, all []Script) (Script, error) {
	i := slices.IndexFunc(all, func(s Script) bool { return s.Version == version })
	if i < 0 {
		return Script{}, fmt.Errorf("no migration %d: this program knows 1 to %d", version, len(all))
	}
	return all[i], nil
}

// SQL returns the script for a client of the database, such as psql.
func (s Script) SQL(down bool) string {
	step := Step{Version: s.Version, Name: s.Name, Down: down}
	var b strings.Builder
	fmt.Fprintf(&b, "-- %s\n\n", step)
	if s.Begin != "" {
		fmt.Fprintf(&b, "%s;\n\n", s.Begin)
	}
	b.WriteString(s.joined(down))
	if s.End != "" {
		fmt.Fprintf(&b, "\n%s;\n", s.End)
	}
	return b.String()
}

// joined returns the statements with their delimiters.
func (s Script) joined(down bool) string {
	if !s.Delimited {
		return strings.Join(s.statements(down), ";\n\n") + ";\n"
	}
	return "DELIMITER ;;\n\n" + strings.Join(s.statements(down), ";;\n\n") + ";;\n\nDELIMITER ;\n"
}

func (s Script) statements(down bool) []string {
	if down {
		return s.Down
	}
	return s.Up
}

// Tool is a tool that runs migrations.
type Tool string

// The tools for which scripts can be written.
const (
	Goose         Tool = "goose"
	GolangMigrate Tool = "golang-migrate"
	Flyway        Tool = "flyway"
	Atlas         Tool = "atlas"
	Liquibase     Tool = "liquibase"
)

// Allowed lists the tools.
func (Tool) Allowed() []string {
	return []string{string(Goose), string(GolangMigrate), string(Flyway), string(Atlas), string(Liquibase)}
}

// File is a migration file of a tool.
type File struct{ Name, Text string }

// File returns the file of a tool that has the up script, or the down script. For goose and Liquibase, it is the same file, which has both.
func (s Script) File(tool Tool, down bool) File {
	padded := fmt.Sprintf("%05d_postrider_%s", s.Version, s.Name)
	switch tool {
	case Goose:
		return File{padded + ".sql", "-- +goose Up\n" + s.goose(s.Up) + "\n-- +goose Down\n" + s.goose(s.Down)}
	case Liquibase:
		return File{padded + ".sql", s.liquibase()}
	case Atlas:
		const delimiter = "-- end of statement"
		text := "-- atlas:delimiter " + delimiter + "\n\n" + strings.Join(s.statements(down), ";\n"+delimiter+"\n\n") + ";\n" + delimiter + "\n"
		return File{padded + suffix(down, ".sql", ".down.sql"), text}
	case Flyway:
		return File{fmt.Sprintf("%s%d__postrider_%s.sql", suffix(down, "V", "U"), s.Version, s.Name), s.joined(down)}
	default: // GolangMigrate
		return File{padded + suffix(down, ".up.sql", ".down.sql"), strings.Join(s.statements(down), ";\n\n") + ";\n"}
	}
}

func suffix(down bool, ofUp, ofDown string) string {
	if down {
		return ofDown
	}
	return ofUp
}

func (s Script) goose(statements []string) string {
	var b strings.Builder
	for _, text := range statements {
		fmt.Fprintf(&b, "-- +goose StatementBegin\n%s;\n-- +goose StatementEnd\n", text)
	}
	return b.String()
}

// liquibase returns one changeset with its rollback.
func (s Script) liquibase() string {
	options, between := "splitStatements:false rollbackSplitStatements:false", ";\n\n"
	if s.Delimited {
		options, between = "splitStatements:true endDelimiter:;; rollbackSplitStatements:true rollbackEndDelimiter:;;", ";;\n\n"
	}
	return fmt.Sprintf("--liquibase formatted sql\n\n--changeset postrider:%d_%s %s stripComments:false\n%s%s/* liquibase rollback\n%s*/\n",
		s.Version, s.Name, options, strings.Join(s.Up, between), between, forRollback(strings.Join(s.Down, between)+between))
}

// forRollback returns statements for a rollback of Liquibase, which joins their lines without a space: a comment would hide what follows
// it, and two words would become one.
func forRollback(statements string) string {
	var b strings.Builder
	for line := range strings.Lines(statements) {
		code, _, _ := strings.Cut(strings.TrimSpace(line), "-- ")
		if code != "" {
			fmt.Fprintf(&b, " %s\n", code)
		}
	}
	return b.String()
}
