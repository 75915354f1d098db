package saga_test

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/saga"
)

// fieldCase shows what a field changes: arrange sets it, next to others, and returns the struct that has it. The stage plays twice, once as it
// is arranged and once with the field zero. only is what happens with the field and not without it; after a "-", without it and not with it.
type fieldCase struct {
	only    string
	arrange func(s *stage) any
}

// TestEveryFieldHasAnEffect: no exported field of a configuration, a definition, a step, a contract or an event is ignored. A new field needs
// a case here.
func TestEveryFieldHasAnEffect(t *testing.T) {
	t.Parallel()
	cases := configFields()
	for _, more := range []map[string]fieldCase{definitionFields(), stepFields(), groupFields(), contractFields(), eventFields()} {
		maps.Copy(cases, more)
	}
	missing := maps.Clone(cases)
	for _, of := range fieldTypes {
		name, _, _ := strings.Cut(of.Name(), "[")
		for i := range of.NumField() {
			f := of.Field(i)
			if !f.IsExported() {
				continue
			}
			key := name + "." + f.Name
			c, found := cases[key]
			if !found {
				t.Errorf("no case shows that %s has an effect", key)
				continue
			}
			delete(missing, key)
			t.Run(key, func(t *testing.T) {
				t.Parallel()
				with, without := play(t, c.arrange, f.Name, true), play(t, c.arrange, f.Name, false)
				only, absent := strings.CutPrefix(c.only, "-")
				if absent {
					with, without = without, with
				}
				if !strings.Contains(with, only) || strings.Contains(without, only) {
					t.Errorf("want %q only here:\n%s\nand not here:\n%s", only, with, without)
				}
			})
		}
	}
	for key := range missing {
		t.Errorf("there is no field %s", key)
	}
}

// fieldTypes are the structs that users fill in.
var fieldTypes = []reflect.Type{
	reflect.TypeFor[saga.Config](), reflect.TypeFor[saga.Definition[purchase]](), reflect.TypeFor[saga.Case[purchase]](),
	reflect.TypeFor[requestStep](), reflect.TypeFor[localStep](), reflect.TypeFor[saga.Choose[purchase]](), reflect.TypeFor[saga.Parallel[purchase]](),
	reflect.TypeFor[awaitStep](), reflect.TypeFor[saga.Ask[purchase]](), reflect.TypeFor[eachStep](), reflect.TypeFor[childStep](),
	reflect.TypeFor[saga.Contract](), reflect.TypeFor[saga.Event](),
}

// TestFieldTypesAreComplete: every kind of step is among the fieldTypes.
func TestFieldTypesAreComplete(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(source)
	}
	steps := regexp.MustCompile(`(?m)^func \(\w* ?(\w+)\[[^\]]*\]\) build\(`).FindAllStringSubmatch(text.String(), -1)
	if len(steps) < 8 {
		t.Errorf("found only these kinds of steps: %v", steps)
	}
	for _, step := range steps {
		if !slices.ContainsFunc(fieldTypes, func(of reflect.Type) bool { return strings.HasPrefix(of.Name(), step[1]+"[") }) {
			t.Errorf("the fields of %s are not tested", step[1])
		}
	}
}
