package storetest

import (
	"flag"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// Statements checks which tests execute which statements: the tests with the mark statements together execute every statement
// that a suite executes. So they suffice over another way to the same database.
type Statements struct {
	mu     sync.Mutex
	byTest map[string]*executed
}

// executed is what a test executes.
type executed struct {
	marked     bool
	statements map[string]bool
}

// Execute records that a test executes a statement. Call it before each statement that the store sends.
func (s *Statements) Execute(t testing.TB, statement string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t).statements[statement] = true
}

// of is called with mu locked.
func (s *Statements) of(t testing.TB) *executed {
	if s.byTest == nil {
		s.byTest = make(map[string]*executed)
	}
	e := s.byTest[t.Name()]
	if e == nil {
		e = &executed{statements: make(map[string]bool)}
		s.byTest[t.Name()] = e
	}
	return e
}

func (s *Statements) mark(t testing.TB) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(t).marked = true
}

// numbersAndSpace differ between executions of one statement: the names of segments have numbers.
var numbersAndSpace = regexp.MustCompile(`[\d\s]+`)

// beginning identifies a statement: after it, the columns and rows of a message or a filter may follow in any number.
func beginning(statement string) string {
	const length = 120
	text := numbersAndSpace.ReplaceAllString(statement, " ")
	return text[:min(len(text), length)]
}

// check reports the statements that no marked subtest of t executes.
func (s *Statements) check(t *testing.T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	missing, there := make(map[string]string), make(map[string]bool)
	for name, e := range s.byTest {
		if !strings.HasPrefix(name, t.Name()+"/") {
			continue
		}
		for statement := range e.statements {
			if e.marked {
				there[beginning(statement)] = true
			} else {
				missing[beginning(statement)] = name
			}
		}
	}
	for statement, name := range missing {
		if !there[statement] {
			t.Errorf("no test with the mark statements executes this; mark one that does, for instance %s:\n%s …", name, statement)
		}
	}
}

// statementsVariable makes a suite that runs as a whole check its marks. Whoever adds a statement sets it. It is not always set,
// because the relays of a test also execute what is due by then: on a slow machine, one without the mark can be the first.
const statementsVariable = "POSTRIDER_TEST_STATEMENTS"

// checkStatements makes a suite that runs as a whole check its marks at its end.
func (s *suite) checkStatements(t *testing.T) {
	if filter := flag.Lookup("test.run"); s.features.Statements != nil && filter.Value.String() == "" && os.Getenv(statementsVariable) != "" {
		t.Cleanup(func() { s.features.Statements.check(t) })
	}
}
