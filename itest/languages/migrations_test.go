package languages_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	atlas "ariga.io/atlas/sql/migrate"
	atlaspostgres "ariga.io/atlas/sql/postgres"

	"github.com/postrider/postrider/internal/migrate"
	"github.com/postrider/postrider/internal/servertest"
	"github.com/postrider/postrider/store/postgres"
)

// filesOf writes the migration files of a tool into a folder, and returns their number.
func filesOf(t *testing.T, tool migrate.Tool, dir string) int {
	t.Helper()
	scripts, err := postgres.MigrationScripts(postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, s := range scripts {
		f := s.File(tool, false)
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return len(scripts)
}

// shortJava is java with what suits a program that ends soon: the other compiler and the other collector take twice its processor time.
var shortJava = []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"}

// java runs a program of testdata with the migration tools.
func java(t *testing.T, db database, program string, args ...string) {
	t.Helper()
	home := servertest.Get(t, servertest.Languages)
	jars := filepath.Join(home, "migrations", "*") + string(filepath.ListSeparator) + filepath.Join(home, "java", "*")
	db.must(t, slices.Concat(shortJava, []string{"-cp", jars, filepath.Join("testdata", program)}, args)...)
}

// wantSchema compares the schema with what a store needs.
func wantSchema(t *testing.T, db database, want error) {
	t.Helper()
	s, err := postgres.NewSQL(db.DB, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Open(t.Context()); !errors.Is(err, want) {
		t.Errorf("open the outbox: %v, want %v", err, want)
	}
}

// TestFlyway: Flyway creates the schema from its files.
func TestFlyway(t *testing.T) {
	t.Parallel()
	db, dir := newDatabase(t), t.TempDir()
	filesOf(t, migrate.Flyway, dir)
	java(t, db, "FlywayMigrate.java", dir)
	wantSchema(t, db, nil)
}

// changelog includes the files as docs/guides/migrations.md says.
const changelog = `<databaseChangeLog xmlns="http://www.liquibase.org/xml/ns/dbchangelog"
	xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
	xsi:schemaLocation="http://www.liquibase.org/xml/ns/dbchangelog http://www.liquibase.org/xml/ns/dbchangelog/dbchangelog-latest.xsd">
	<includeAll path="migrations/postrider"/>
</databaseChangeLog>
`

// TestLiquibase: Liquibase creates the schema from its files, and rolls it back.
func TestLiquibase(t *testing.T) {
	t.Parallel()
	db, dir := newDatabase(t), t.TempDir()
	n := filesOf(t, migrate.Liquibase, filepath.Join(dir, "migrations", "postrider"))
	if err := os.WriteFile(filepath.Join(dir, "changelog.xml"), []byte(changelog), 0o600); err != nil {
		t.Fatal(err)
	}
	java(t, db, "LiquibaseUpdate.java", "update", dir)
	wantSchema(t, db, nil)
	java(t, db, "LiquibaseUpdate.java", "rollback", dir, fmt.Sprint(n))
	wantSchema(t, db, postgres.ErrSchemaMissing)
}

// revisions are the versions that Atlas has run.
type revisions struct {
	atlas.NopRevisionReadWriter
	all []*atlas.Revision
}

func (r *revisions) ReadRevisions(context.Context) ([]*atlas.Revision, error) { return r.all, nil }

func (r *revisions) WriteRevision(_ context.Context, v *atlas.Revision) error {
	r.all = append(r.all, v)
	return nil
}

// TestAtlas: Atlas takes the checksums, and creates the schema from the files.
func TestAtlas(t *testing.T) {
	t.Parallel()
	db, dir := newDatabase(t), t.TempDir()
	filesOf(t, migrate.Atlas, dir)
	local, err := atlas.NewLocalDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	sum := filepath.Join(dir, migrate.AtlasSumFile)
	found, err := local.Files()
	if err != nil {
		t.Fatal(err)
	}
	var files []migrate.File
	for _, f := range found {
		files = append(files, migrate.File{Name: f.Name(), Text: string(f.Bytes())})
	}
	if err := os.WriteFile(sum, []byte(migrate.AtlasSum(files)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := atlas.Validate(local); err != nil {
		t.Fatalf("the checksums: %v", err)
	}
	driver, err := atlaspostgres.Open(db.DB)
	if err != nil {
		t.Fatal(err)
	}
	run, err := atlas.NewExecutor(driver, local, &revisions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := run.ExecuteN(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	wantSchema(t, db, nil)
}
