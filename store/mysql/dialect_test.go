package mysqlstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestServersThatAreRefused(t *testing.T) {
	t.Parallel()
	good := server{version: "8.4.2", globalStep: 1, step: 1, mode: "STRICT_TRANS_TABLES", autocommit: true, variables: map[string]string{"transaction_isolation": "REPEATABLE-READ"}}
	for _, v := range []string{"8.0.13", "8.4.2-log", "9.1.0", "10.6.0-MariaDB", "10.11.19-MariaDB-0+deb12u1", "5.5.5-11.4.3-MariaDB-log", "12.0.1-MariaDB"} {
		s := good
		if s.version = v; s.check() != nil {
			t.Errorf("%s: %v", v, s.check())
		}
	}
	for words, change := range map[string]func(*server){
		"use MySQL 8.0.13":                    func(s *server) { s.version = "5.7.44" },
		"MySQL 8.0.12":                        func(s *server) { s.version = "8.0.12" },
		"use MariaDB 10.6.0":                  func(s *server) { s.version = "5.5.5-10.5.25-MariaDB" },
		"cannot be read":                      func(s *server) { s.version = "unknown" },
		"auto_increment_increment is 3":       func(s *server) { s.globalStep = 3 },
		"connect to the primary":              func(s *server) { s.readOnly = true },
		"set it to ROW or MIXED":              func(s *server) { s.binlog, s.binlogFormat = true, "STATEMENT" },
		"add STRICT_TRANS_TABLES":             func(s *server) { s.mode = "ANSI" },
		"autocommit is off":                   func(s *server) { s.autocommit = false },
		"delivered before they are committed": func(s *server) { s.variables = map[string]string{"tx_isolation": "READ-UNCOMMITTED"} },
	} {
		s := good
		change(&s)
		if err := s.check(); !errors.Is(err, ErrUnsuitable) || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want %q", err, words)
		}
	}
}

// driverError has the form of go-sql-driver/mysql's error.
type driverError struct {
	Number  uint16
	Message string
}

func (e *driverError) Error() string { return e.Message }

func TestCodesOfErrors(t *testing.T) {
	t.Parallel()
	deadlock := &driverError{Number: codeDeadlock, Message: "deadlock"}
	for err, want := range map[error]int{
		deadlock:                           codeDeadlock,
		fmt.Errorf("settle: %w", deadlock): codeDeadlock,
		errors.Join(context.Canceled, fmt.Errorf("%w: %w", context.Canceled, deadlock)): codeDeadlock,
		context.Canceled:     0,
		(*driverError)(nil):  0,
		errors.New("Number"): 0,
	} {
		if got := codeOf(err); got != want {
			t.Errorf("%v has code %d, want %d", err != nil, got, want)
		}
	}
	c, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.explain("settle", deadlock); !errors.Is(err, ErrDeadlock) || !errors.Is(err, deadlock) {
		t.Errorf("explained as %v", err)
	}
}

func TestConfigNamesEveryFault(t *testing.T) {
	t.Parallel()
	_, err := Config{Prefix: "a-b", Partitions: 5000, CloseGapAfter: -1}.withDefaults()
	for _, words := range []string{"Prefix", "Partitions", "CloseGapAfter"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want %s in it", err, words)
		}
	}
	for _, prefix := range []string{"`", "a b", "a;", "1a", "x'", strings.Repeat("a", 41)} {
		if _, err := (Config{Prefix: prefix}).withDefaults(); err == nil {
			t.Errorf("prefix %q is taken", prefix)
		}
	}
}

// TestRefusedSettlements: after some refusals, a relay drops a partition and delivers its messages again. A server that is read-only,
// full or busy for some seconds has refused nothing.
func TestRefusedSettlements(t *testing.T) {
	t.Parallel()
	s := &Store{cfg: Config{ErrorCode: codeOf}}
	coded := func(code uint16) error { return fmt.Errorf("settle: %w", &driverError{Number: code}) }
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, code := range []uint16{1290, 1792, 1836, 1040, 1203, 1205, 1213, 3572, 1053, 1021, 1114, 1041, 1317, 1927, 4031, 3032} {
		if s.refused(t.Context(), coded(code)) {
			t.Errorf("error %d counts as a refusal", code)
		}
	}
	for _, err := range []error{coded(1264), coded(1366), coded(1406), coded(1062), coded(1142), fmt.Errorf("a statement: %w", ErrTooLarge), fmt.Errorf("message 1: %w", errNotInLog)} {
		if !s.refused(t.Context(), err) {
			t.Errorf("%v %d is no refusal", err, codeOf(err))
		}
		if s.refused(ended, err) {
			t.Errorf("%v %d is a refusal although the context has ended", err, codeOf(err))
		}
	}
	if s.refused(t.Context(), errors.New("connection reset")) {
		t.Error("an error without a number counts as a refusal")
	}
}
