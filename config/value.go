package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// enum is a text type with a fixed set of values.
type enum interface{ Allowed() []string }

var (
	durationType = reflect.TypeFor[time.Duration]()
	sizeType     = reflect.TypeFor[Size]()
	rateType     = reflect.TypeFor[Rate]()
)

// setText sets a leaf from its text in YAML, in the environment or in a flag, and checks its bounds.
func setText(v reflect.Value, tag reflect.StructTag, text string) error {
	if v.Kind() == reflect.Pointer {
		fresh := reflect.New(v.Type().Elem())
		if err := setText(fresh.Elem(), tag, text); err != nil {
			return err
		}
		v.Set(fresh)
		return nil
	}
	if e, ok := v.Interface().(enum); ok {
		if !slices.Contains(e.Allowed(), text) {
			return fmt.Errorf("%q is not allowed; allowed: %s", text, strings.Join(e.Allowed(), ", "))
		}
		v.SetString(text)
		return nil
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
		return nil
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is not allowed; allowed: true, false", text)
		}
		v.SetBool(b)
		return nil
	case reflect.Slice:
		v.Set(reflect.ValueOf(splitList(text)))
		return nil
	case reflect.Map:
		return setEntries(v, text)
	}
	return setNumber(v, tag, text)
}

// setNumber sets a number, a duration or a size.
func setNumber(v reflect.Value, tag reflect.StructTag, text string) error {
	n, err := parseNumber(v.Type(), text)
	if err != nil {
		return err
	}
	for bound, outside := range map[string]func(limit int64) bool{
		"min": func(limit int64) bool { return n < limit },
		"max": func(limit int64) bool { return n > limit },
	} {
		limit, given := tag.Lookup(bound)
		if !given {
			continue
		}
		if l, err := parseNumber(v.Type(), limit); err == nil && outside(l) {
			return fmt.Errorf("%s is out of bounds; allowed: %s", text, bounds(tag))
		}
	}
	v.SetInt(n)
	return nil
}

func parseNumber(t reflect.Type, text string) (int64, error) {
	switch t {
	case durationType:
		d, err := time.ParseDuration(text)
		if err != nil {
			return 0, fmt.Errorf("%q is not a duration; write a number with a unit, e.g. 250ms, 15s, 2m or 24h", text)
		}
		return int64(d), nil
	case sizeType:
		s, err := ParseSize(text)
		return int64(s), err
	case rateType:
		r, err := ParseRate(text)
		return int64(r), err
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%q is not a whole number", text)
		}
		return n, nil
	}
}

// bounds describes the bounds of a number.
func bounds(tag reflect.StructTag) string {
	lo, hi := tag.Get("min"), tag.Get("max")
	switch {
	case hi == "":
		return lo + " or more"
	case lo == "":
		return hi + " or less"
	default:
		return lo + " to " + hi
	}
}

// setEntries sets a map from comma-separated entries name=value.
func setEntries(v reflect.Value, text string) error {
	entries := map[string]string{}
	for _, entry := range splitList(text) {
		name, value, found := strings.Cut(entry, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !found || name == "" || value == "" {
			return fmt.Errorf("%q is not name=value; separate several by commas", entry)
		}
		entries[name] = value
	}
	v.Set(reflect.ValueOf(entries))
	return nil
}

// splitList splits a comma-separated list.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
