package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// TestRefusedConnectionsSayWhatToDo: the texts for errors that a test server does not produce on demand.
func TestRefusedConnectionsSayWhatToDo(t *testing.T) {
	t.Parallel()
	l := location{shown: "postgres://h/d"}
	for code, words := range map[string]string{
		"28P01": "; check the user and the password", "28000": "; let the user in: CREATE ROLE ", "3D000": "; make it with CREATE DATABASE ",
		"42501": "; let the user in: GRANT CONNECT ", "42704": "; of the options in the URL, ", "53300": "; raise max_connections",
	} {
		refused := &pgconn.PgError{Severity: "FATAL", Code: code, Message: "no"}
		twice := errors.Join(fmt.Errorf("127.0.0.1:5432 (h): %w", refused), fmt.Errorf("[::1]:5432 (h): %w", refused))
		text := connectError(l, twice, time.Second).Error()
		if want := "connect to postgres://h/d: FATAL: no (SQLSTATE " + code + ")" + words; !strings.HasPrefix(text, want) || strings.Contains(text, "\n") {
			t.Errorf("%s: %s, want %s…", code, text, want)
		}
	}
	unknown := &net.DNSError{Err: "no such host", Name: "h", IsNotFound: true}
	if text := connectError(l, errors.Join(unknown, unknown), time.Second).Error(); text != "connect to postgres://h/d: lookup h: no such host; check the name of the host" {
		t.Errorf("no such host: %s", text)
	}
	if text := connectError(l, context.DeadlineExceeded, 2012*time.Millisecond).Error(); !strings.Contains(text, "no answer within 2s; is the server running there") {
		t.Errorf("no answer: %s", text)
	}
}
