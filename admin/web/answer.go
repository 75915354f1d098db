package web

import (
	"encoding/json"
	"net/http"
)

func writeJSON(w http.ResponseWriter, status int, kind string, v any) {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(`{"title": "Internal Server Error", "status": 500}`)
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// problem is an error as RFC 9457 describes it.
type problem struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func writeProblem(w http.ResponseWriter, status int, detail string) {
	if status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	writeJSON(w, status, "application/problem+json", problem{http.StatusText(status), status, detail})
}
