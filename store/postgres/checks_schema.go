package postgres

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/doctor"
)

// objectsSQL lists what migrations leave in schema $1: tables with their columns and indexes, sequences and functions whose names
// begin with the prefix that is like $2. Segments of the log come and go.
const objectsSQL = `
with tables as (
	select c.oid, c.relname, c.relkind from pg_class c
	where c.relnamespace = to_regnamespace($1) and c.relname like $2 and c.relkind in ('r', 'p', 'S') and not c.relispartition
		and c.relname !~ 'log_[0-9]+$'
)
select case relkind when 'S' then 'sequence' else 'table' end, '', relname::text, '', true from tables
union all
select 'column', t.relname::text, a.attname::text, '', true from tables t join pg_attribute a on a.attrelid = t.oid
where t.relkind <> 'S' and a.attnum > 0 and not a.attisdropped
union all
select 'index', t.relname::text, c.relname::text, pg_get_indexdef(i.indexrelid), i.indisvalid
from tables t join pg_index i on i.indrelid = t.oid join pg_class c on c.oid = i.indexrelid
union all
select 'function', '', p.proname::text, '', true from pg_proc p where p.pronamespace = to_regnamespace($1) and p.proname like $2
order by 1, 2, 3`

//go:embed objects.txt
var objectsText string

// presentObjects returns what is in the catalog, and the indexes that are not valid. In definitions, {prefix} stands for schema and
// prefix, {name} for the prefix.
func (c checker) presentObjects(ctx context.Context, tx pgx.Tx) (present []doctor.Object, invalid []string, err error) {
	n := c.s.names
	schema := pgx.Identifier{n.schema}.Sanitize()
	var o doctor.Object
	var valid bool
	args := []any{schema, likeLiteral(n.prefix) + "%"}
	err = c.each(ctx, tx, objectsSQL, args, []any{&o.Kind, &o.Table, &o.Name, &o.Definition, &valid}, func() {
		if !valid {
			invalid = append(invalid, o.Name)
		}
		found := doctor.Object{Kind: o.Kind, Table: strings.TrimPrefix(o.Table, n.prefix), Name: o.Name}
		if o.Kind != "column" {
			found.Name = strings.TrimPrefix(o.Name, n.prefix)
		}
		in := strings.NewReplacer(" ON ONLY ", " ON ", " "+n.schema+"."+n.prefix, " {prefix}", " "+schema+"."+n.prefix, " {prefix}", " "+n.prefix, " {name}")
		found.Definition = in.Replace(in.Replace(o.Definition)) // what is replaced may overlap
		present = append(present, found)
	})
	return present, invalid, err
}

func (c checker) objects(ctx context.Context, tx pgx.Tx) ([]doctor.Finding, error) {
	present, invalid, err := c.presentObjects(ctx, tx)
	if err != nil {
		return nil, err
	}
	n := c.s.names
	fill := strings.NewReplacer("{prefix}", pgx.Identifier{n.schema}.Sanitize()+"."+n.prefix, "{name}", n.prefix)
	out := doctor.MissingObjects(doctor.ParseObjects(objectsText), present, n.prefix, fill.Replace)
	for _, name := range invalid {
		out = append(out, doctor.Finding{
			Level: doctor.Warning, Target: name, Message: fmt.Sprintf("Index %s is not valid.", name), Evidence: "pg_index",
			Impact: "Searches do not use it, and writing still costs as much.",
			Fix:    []doctor.Fix{{Text: "as the owner of the table:", Command: fmt.Sprintf("reindex index %s;", pgx.Identifier{n.schema, name}.Sanitize())}},
		})
	}
	return out, nil
}

// grantLine is a statement of a file of grants that gives rights to whole tables.
var grantLine = regexp.MustCompile(`(?s)grant ([a-z, ]+) on ((?:\{prefix\}[a-z_]+[,\s]*)+) to \{role\};`)

// rightsOf returns the rights to tables that a job needs, by table.
func rightsOf(job string) (map[string][]string, error) {
	text, err := grantFiles.ReadFile("grants/" + job + ".sql")
	if err != nil {
		return nil, err
	}
	out := make(map[string][]string)
	for _, m := range grantLine.FindAllStringSubmatch(string(text), -1) {
		for table := range strings.SplitSeq(m[2], ",") {
			table = strings.TrimPrefix(strings.TrimSpace(table), "{prefix}")
			for right := range strings.SplitSeq(m[1], ",") {
				out[table] = append(out[table], strings.TrimSpace(right))
			}
		}
	}
	return out, nil
}

// jobs are those that a role is known to have by a right that no other job has.
var jobs = []struct{ name, table, right, impact string }{
	{"relay", "log", "truncate", "A relay with this role fails."},
	{"consumer", "claims", "insert", "A consumer with this role fails."},
	{"publisher", "log", "insert", "A program that publishes with this role fails."},
	{"admin", "audit", "insert", "The administration with this role fails."},
}

const (
	// granteesSQL lists roles, other than the owner, with right $3 to table $2 of schema $1.
	granteesSQL = `
select distinct a.grantee::regrole::text from pg_class c, aclexplode(c.relacl) as a
where c.relnamespace = to_regnamespace($1) and c.relname = $2 and a.privilege_type = upper($3) and a.grantee not in (0, c.relowner)
order by 1`
	lacksSQL = `
select r.name, r.privilege from unnest($1::text[], $2::text[]) as r (name, privilege)
where to_regclass(r.name) is not null and not has_table_privilege($3::regrole::oid, r.name, r.privilege)`
)

// rights finds roles with a part of the rights of a job.
func (c checker) rights(ctx context.Context, tx pgx.Tx) (out []doctor.Finding, err error) {
	n := c.s.names
	schema := pgx.Identifier{n.schema}.Sanitize()
	for _, job := range jobs {
		rights, err := rightsOf(job.name)
		if err != nil {
			return nil, err
		}
		var grantees, tables, needed []string
		var role string
		err = c.each(ctx, tx, granteesSQL, []any{schema, n.prefix + job.table, job.right}, []any{&role}, func() { grantees = append(grantees, role) })
		if err != nil {
			return nil, err
		}
		for _, table := range slices.Sorted(maps.Keys(rights)) {
			for _, right := range rights[table] {
				tables, needed = append(tables, n.table(table)), append(needed, right)
			}
		}
		for _, role := range grantees {
			var lacks []string
			var table, right string
			err := c.each(ctx, tx, lacksSQL, []any{tables, needed, role}, []any{&table, &right}, func() {
				lacks = append(lacks, fmt.Sprintf("grant %s on %s to %s;", right, table, role))
			})
			if err != nil {
				return nil, err
			}
			if len(lacks) > 0 {
				out = append(out, doctor.Finding{
					Level: doctor.Fault, Target: "role " + role, Impact: job.impact,
					Message:  fmt.Sprintf("Role %s has the rights of a %s, except %d.", role, job.name, len(lacks)),
					Fix:      []doctor.Fix{{Text: "as the owner of the tables:", Command: strings.Join(lacks, "\n")}},
					Evidence: "the rights to the tables, compared with those that postrider migrate grants gives",
				})
			}
		}
	}
	return out, nil
}
