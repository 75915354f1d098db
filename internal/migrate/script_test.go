package migrate

import (
	"strings"
	"testing"
)

var (
	transactional = Script{Version: 2, Name: "inbox", Up: []string{"create a;\ncreate b"}, Down: []string{"drop b;\ndrop a"}, Begin: "begin", End: "commit"}
	delimited     = Script{Version: 2, Name: "inbox", Up: []string{"create a", "create b"}, Down: []string{"drop b", "drop a"}, Delimited: true}
)

func TestScriptSQL(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{transactional.SQL(false), "-- up 0002_inbox\n\nbegin;\n\ncreate a;\ncreate b;\n\ncommit;\n"},
		{transactional.SQL(true), "-- down 0002_inbox\n\nbegin;\n\ndrop b;\ndrop a;\n\ncommit;\n"},
		{delimited.SQL(false), "-- up 0002_inbox\n\nDELIMITER ;;\n\ncreate a;;\n\ncreate b;;\n\nDELIMITER ;\n"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
	if _, err := ScriptOf(3, []Script{{Version: 1}, {Version: 2}}); err == nil || !strings.Contains(err.Error(), "1 to 2") {
		t.Errorf("error %v, want one that names the versions", err)
	}
}

// TestScriptFiles: each tool gets the names and marks that it expects.
func TestScriptFiles(t *testing.T) {
	t.Parallel()
	const goose = "-- +goose StatementBegin\n%s;\n-- +goose StatementEnd\n"
	for _, c := range []struct {
		tool       Tool
		s          Script
		down       bool
		name, text string
	}{
		{Goose, transactional, false, "00002_postrider_inbox.sql", "-- +goose Up\n" + strings.ReplaceAll(goose, "%s", "create a;\ncreate b") +
			"\n-- +goose Down\n" + strings.ReplaceAll(goose, "%s", "drop b;\ndrop a")},
		{GolangMigrate, transactional, false, "00002_postrider_inbox.up.sql", "create a;\ncreate b;\n"},
		{GolangMigrate, delimited, true, "00002_postrider_inbox.down.sql", "drop b;\n\ndrop a;\n"},
		{Flyway, transactional, false, "V2__postrider_inbox.sql", "create a;\ncreate b;\n"},
		{Flyway, delimited, true, "U2__postrider_inbox.sql", "DELIMITER ;;\n\ndrop b;;\n\ndrop a;;\n\nDELIMITER ;\n"},
		{Atlas, delimited, false, "00002_postrider_inbox.sql",
			"-- atlas:delimiter -- end of statement\n\ncreate a;\n-- end of statement\n\ncreate b;\n-- end of statement\n"},
		{Liquibase, transactional, false, "00002_postrider_inbox.sql", "--liquibase formatted sql\n\n" +
			"--changeset postrider:2_inbox splitStatements:false rollbackSplitStatements:false stripComments:false\ncreate a;\ncreate b;\n\n" +
			"/* liquibase rollback\n drop b;\n drop a;\n*/\n"},
		{Liquibase, delimited, false, "00002_postrider_inbox.sql", "--liquibase formatted sql\n\n" +
			"--changeset postrider:2_inbox splitStatements:true endDelimiter:;; rollbackSplitStatements:true rollbackEndDelimiter:;; " +
			"stripComments:false\ncreate a;;\n\ncreate b;;\n\n" +
			"/* liquibase rollback\n drop b;;\n drop a;;\n*/\n"},
	} {
		if f := c.s.File(c.tool, c.down); f.Name != c.name || f.Text != c.text {
			t.Errorf("%s: got %s with %q, want %s with %q", c.tool, f.Name, f.Text, c.name, c.text)
		}
	}
}

// TestForRollback: nothing changes when the lines are joined.
func TestForRollback(t *testing.T) {
	t.Parallel()
	const statements = "-- Why.\ninsert into a\nselect b; -- and how\n\n  drop c;\n"
	if got, want := strings.ReplaceAll(forRollback(statements), "\n", ""), " insert into a select b;  drop c;"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
