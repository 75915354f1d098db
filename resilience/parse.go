package resilience

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Parse reads a configuration from JSON. Keys are the fields in snake case, durations are texts such as "500ms". Errors: each unknown
// key and each value that cannot be read, with its path.
func Parse(data []byte) (Config, error) {
	var c Config
	if err := decode(reflect.ValueOf(&c).Elem(), data, ""); err != nil {
		return Config{}, fmt.Errorf("resilience: %w", err)
	}
	return c, nil
}

// decode reads JSON into a value, strictly.
func decode(v reflect.Value, data []byte, path string) error {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		var text string
		if err := json.Unmarshal(data, &text); err != nil {
			return fmt.Errorf(`%s: a duration is a text such as "500ms", not %s`, path, bytes.TrimSpace(data))
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		v.SetInt(int64(d))
		return nil
	case v.Kind() == reflect.Struct, v.Kind() == reflect.Map:
		var entries map[string]json.RawMessage
		if err := json.Unmarshal(data, &entries); err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(path, "configuration"), err)
		}
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(entries)) {
			errs = append(errs, decodeEntry(v, key, entries[key], strings.TrimPrefix(path+"."+key, ".")))
		}
		return errors.Join(errs...)
	default:
		if err := json.Unmarshal(data, v.Addr().Interface()); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		return nil
	}
}

// decodeEntry reads one entry of a struct or map.
func decodeEntry(v reflect.Value, key string, data []byte, path string) error {
	if v.Kind() == reflect.Map {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		entry := reflect.New(v.Type().Elem()).Elem()
		err := decode(entry, data, path)
		v.SetMapIndex(reflect.ValueOf(key), entry)
		return err
	}
	for field, value := range fieldsOf(v) {
		if name := field.Tag.Get("json"); name == key && name != "-" {
			return decode(value, data, path)
		}
	}
	return fmt.Errorf("%s: unknown key", path)
}

func fieldsOf(v reflect.Value) iter.Seq2[reflect.StructField, reflect.Value] {
	return func(yield func(reflect.StructField, reflect.Value) bool) {
		for i := range v.NumField() {
			if !yield(v.Type().Field(i), v.Field(i)) {
				return
			}
		}
	}
}
