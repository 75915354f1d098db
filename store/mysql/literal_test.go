package mysqlstore

import (
	"database/sql"
	"testing"
)

func TestRender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		args []any
		want string
	}{
		{"SELECT 1 WHERE a = '?'", nil, "SELECT 1 WHERE a = '?'"},
		{"a = ? AND b IN ? AND c = ?", []any{1, []int64{2, 3}, nil}, "a = 1 AND b IN (2,3) AND c = NULL"},
		{"?2 ?1 ?2", []any{"a?1", true}, "true X'613f31' true"},
		{"?1?12", []any{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, "x"}, "1X'78'"},
		{"? ?", []any{"", []byte{0, 255, '\''}}, "X'' X'00ff27'"},
		{"? ?", []any{sql.Null[int64]{V: 7, Valid: true}, sql.Null[int64]{V: 7}}, "7 NULL"},
		{"x IN ? OR y IN ?", []any{[]string{}, []string{"'); --"}}, "x IN (NULL) OR y IN (X'27293b202d2d')"},
		{"?", []any{expression("{now}")}, "{now}"},
	} {
		if got := render(c.text, c.args); got != c.want {
			t.Errorf("%s with %v is %s, want %s", c.text, c.args, got, c.want)
		}
	}
}

func TestStatements(t *testing.T) {
	t.Parallel()
	got := statements("-- only words\n\n-- what it is\nCREATE TABLE a (\n  b INT\n);\n\n\nDROP TABLE c;\n")
	if len(got) != 2 || got[0] != "-- what it is\nCREATE TABLE a (\n  b INT\n);" || got[1] != "DROP TABLE c;" {
		t.Errorf("cut into %q", got)
	}
}
