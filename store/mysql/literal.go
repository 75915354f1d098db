package mysqlstore

import (
	"database/sql"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Statements are sent as text that includes their values. A statement with parameters would take two round trips, unless the
// driver is configured to interpolate them, and prepared statements are limited per server. Numbers are written as digits and
// texts as hexadecimal literals, X'6162'. So no value can end its literal, whatever sql_mode and character set the session has,
// and every byte of a text arrives unchanged. A literal takes twice the size of its value, so a large value, such as a payload of
// 1 MiB, is sent as the parameter of a prepared statement instead, in binary form.

// large is the size in bytes from which a value is sent as a parameter.
const large = 64 << 10

// expression is an SQL expression used as a value.
type expression string

// nowSQL is the database's clock in microseconds since 1970, whatever the session's time zone.
const nowSQL = `TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))`

// expander fills in the table names of one outbox and the expressions that statements share.
func expander(prefix string) *strings.Replacer {
	return strings.NewReplacer("{prefix}", prefix, "{now}", nowSQL, "{server}", serverNameSQL, "{present}", presentSQL(prefix))
}

// statement is a statement with the values that are sent as its parameters.
type statement struct {
	text   string
	params []any
}

// size is about what the statement takes in a packet, or its parameters in several, in bytes.
func (st *statement) size() int {
	n := len(st.text)
	for _, p := range st.params {
		n += len(p.([]byte))
	}
	return n
}

// add appends a text with values as render does, except that large values become parameters.
func (st *statement) add(text string, args []any) { st.text += renderWith(text, args, &st.params) }

// render fills in values: ?1 is the first of args, and so on; each bare ? is the next one after the last bare ?.
func render(text string, args []any) string { return renderWith(text, args, nil) }

// renderWith is render with large values as parameters, unless params is nil.
func renderWith(text string, args []any, params *[]any) string {
	if len(args) == 0 {
		return text
	}
	size := len(text)
	for _, a := range args {
		switch v := a.(type) {
		case string:
			size += 2*len(v) + 3
		case []byte:
			if params == nil || len(v) < large {
				size += 2*len(v) + 3
			}
		default:
			size += 20
		}
	}
	out, next := make([]byte, 0, size), 0
	for {
		before, after, ok := strings.Cut(text, "?")
		if !ok {
			return string(append(out, text...))
		}
		out, text = append(out, before...), after
		digits := 0
		for digits < len(text) && '0' <= text[digits] && text[digits] <= '9' {
			digits++
		}
		index := next
		if digits > 0 {
			n, _ := strconv.Atoi(text[:digits]) // only digits, and few
			index = n - 1
		} else {
			next++
		}
		text = text[digits:]
		if v, ok := args[index].([]byte); ok && params != nil && len(v) >= large {
			out, *params = append(out, '?'), append(*params, v)
			continue
		}
		out = appendLiteral(out, args[index])
	}
}

func appendLiteral(out []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(out, "NULL"...)
	case bool:
		return strconv.AppendBool(out, v)
	case int:
		return strconv.AppendInt(out, int64(v), 10)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case string:
		return append(hex.AppendEncode(append(out, "X'"...), []byte(v)), '\'')
	case []byte:
		return append(hex.AppendEncode(append(out, "X'"...), v), '\'')
	case expression:
		return append(out, v...)
	case sql.Null[int64]:
		return appendNull(out, v.Valid, v.V)
	case sql.Null[int]:
		return appendNull(out, v.Valid, v.V)
	case []int64:
		return appendList(out, v)
	case []int:
		return appendList(out, v)
	case []string:
		return appendList(out, v)
	}
	panic(fmt.Sprintf("no literal for a value of type %T", value))
}

func appendNull(out []byte, valid bool, value any) []byte {
	if !valid {
		value = nil
	}
	return appendLiteral(out, value)
}

// appendList writes a list for IN. An empty list matches nothing.
func appendList[T any](out []byte, values []T) []byte {
	if len(values) == 0 {
		return append(out, "(NULL)"...)
	}
	for i, v := range values {
		separator := byte(',')
		if i == 0 {
			separator = '('
		}
		out = appendLiteral(append(out, separator), v)
	}
	return append(out, ')')
}
