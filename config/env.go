package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Prefix is the prefix of all Postrider environment variables.
const Prefix = "POSTRIDER_"

// overlay applies environment variables to c. A key's variable is its path in upper case with _ as separator: store.url
// is POSTRIDER_STORE_URL, and concurrency of the relay to-nats POSTRIDER_RELAYS_TO_NATS_CONCURRENCY. Lists of texts are
// comma-separated, and so are the entries name=value of a mapping. Unknown names are returned as warnings, not errors, because other programs set variables too:
// container platforms set POSTRIDER_SERVICE_HOST and the like for a service of that name. set maps each path that was set
// to its variable.
func overlay(c *Config, environ []string, faults *Error) (set map[string]string, warnings []string) {
	set = map[string]string{}
	known := leaves{}
	collect(reflect.ValueOf(c).Elem(), strings.TrimSuffix(Prefix, "_"), "", known)
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, Prefix) || isForeign(name) {
			continue
		}
		l, ok := known[name]
		if !ok {
			warnings = append(warnings, unknownVariable(name, slices.Sorted(maps.Keys(known))))
			continue
		}
		if l.also != "" {
			faults.Faults = append(faults.Faults, Fault{Origin: "environment " + name, Path: l.also, Text: fmt.Sprintf(
				"the variable stands for %s too; set both in the file, or rename one of their owners", l.path)})
		}
		if err := l.set(text); err != nil {
			faults.Faults = append(faults.Faults, Fault{Origin: "environment " + name, Path: l.path, Text: err.Error()})
		}
		set[l.path] = name
	}
	return set, warnings
}

// isForeign says whether a variable matches no key but is not a mistake: three that the program reads itself, those that a
// container platform sets for a service called postrider, and those of Postrider's own tests.
func isForeign(name string) bool {
	rest := strings.TrimPrefix(name, Prefix)
	return rest == "CONFIG" || rest == "PUBLISHER" || rest == "PUBLISHER_FILE" || rest == "PORT" || strings.HasPrefix(rest, "PORT_") || strings.HasPrefix(rest, "SERVICE_") ||
		strings.HasPrefix(rest, "TEST_")
}

func unknownVariable(name string, allowed []string) string {
	best, bestDistance := "", 4
	for _, word := range allowed {
		if d := distance(name, word); d < bestDistance {
			best, bestDistance = word, d
		}
	}
	if best != "" {
		return fmt.Sprintf("environment %s stands for no key and is ignored; did you mean %s?", name, best)
	}
	return fmt.Sprintf("environment %s stands for no key and is ignored", name)
}

// leaf is a single value that a variable can set.
type leaf struct {
	path  string
	value reflect.Value
	tag   reflect.StructTag
	// key is the name in a map of options.
	key string
	// also is the path of another leaf with the same variable.
	also string
}

// leaves are the leaves by their variables.
type leaves map[string]leaf

func (all leaves) add(variable string, l leaf) {
	if other, taken := all[variable]; taken {
		l.also = other.path
	}
	all[variable] = l
}

func (l leaf) set(text string) error {
	if l.key == "" {
		return setText(l.value, l.tag, text)
	}
	if l.value.IsNil() {
		l.value.Set(reflect.MakeMap(l.value.Type()))
	}
	l.value.SetMapIndex(reflect.ValueOf(l.key), reflect.ValueOf(text))
	return nil
}

// collect collects the leaves of a struct; elements of lists are addressed by name, or by number, from 0.
func collect(v reflect.Value, variable, path string, out leaves) {
	for f := range v.Type().Fields() {
		key := f.Tag.Get("yaml")
		if key == "" {
			continue
		}
		name, at, value := variable+"_"+variableOf(key), join(path, key), v.FieldByIndex(f.Index)
		switch {
		case value.Kind() == reflect.Struct:
			if _, ok := value.Addr().Interface().(interface{ Shorthand(string) }); ok {
				out.add(name, leaf{path: at + ".url", value: value.FieldByName("URL"), tag: f.Tag})
			}
			collect(value, name, at, out)
		case value.Kind() == reflect.Slice && value.Type().Elem().Kind() == reflect.Struct:
			for i := range value.Len() {
				element, called := value.Index(i), strconv.Itoa(i)
				if own := element.FieldByName("Name"); own.IsValid() {
					called = own.String()
				}
				collect(element, name+"_"+variableOf(called), fmt.Sprintf("%s[%d]", at, i), out)
			}
		case f.Tag.Get("names") == "options": // of brokers
			for _, option := range everyOption() {
				out.add(name+"_"+variableOf(option), leaf{path: join(at, option), value: value, tag: f.Tag, key: option})
			}
		default:
			out.add(name, leaf{path: at, value: value, tag: f.Tag})
		}
	}
}

// variableOf converts a name to a part of a variable's name: upper case, with everything except letters and digits as _.
func variableOf(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		default:
			return '_'
		}
	}, name)
}
