package shop

import (
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"github.com/postrider/postrider/saga"
)

// maxBody is the largest request in bytes.
const maxBody = 1 << 20

// read reads the JSON of a request into value, or answers that it cannot.
func read(w http.ResponseWriter, r *http.Request, value any) (ok bool) {
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(value); err != nil {
		http.Error(w, "the request is not the JSON that is expected: "+err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// answer writes a value as JSON, or the error.
func answer(w http.ResponseWriter, status int, value any, err error) {
	switch {
	case errors.Is(err, sql.ErrNoRows), errors.Is(err, saga.ErrNotFound):
		http.Error(w, "not found", http.StatusNotFound)
	case errors.Is(err, saga.ErrConflict):
		http.Error(w, "this Idempotency-Key belongs to another order", http.StatusUnprocessableEntity)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		if err := json.NewEncoder(w).Encode(value); err != nil {
			slog.Debug("answer a request", "error", err) // the caller may be gone
		}
	}
}

// collect reads all rows.
func collect[T any](rows *sql.Rows, err error, fields func(*T) []any) (all []T, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var one T
		if err := rows.Scan(fields(&one)...); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// texts reads all rows of one column.
func texts(rows *sql.Rows, err error) ([]string, error) {
	return collect(rows, err, func(text *string) []any { return []any{text} })
}
