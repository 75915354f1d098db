package web

import (
	"encoding"
	"encoding/json"
	"reflect"
)

// filled is a copy of an answer in which nothing is null where a list or an object is meant: it is empty instead.
func filled(answer any) any {
	if answer == nil {
		return nil
	}
	v := reflect.New(reflect.TypeOf(answer)).Elem()
	v.Set(reflect.ValueOf(answer))
	fill(v)
	return v.Interface()
}

// fill fills a value that nobody else has. What is below it is copied first: answers share parts of what the service keeps.
func fill(v reflect.Value) {
	t := v.Type()
	if t.Implements(reflect.TypeFor[json.Marshaler]()) || t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if t.Field(i).IsExported() || t.Field(i).Anonymous {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			inner := reflect.New(t.Elem())
			inner.Elem().Set(v.Elem())
			fill(inner.Elem())
			v.Set(inner)
		}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return
		}
		list := reflect.MakeSlice(t, v.Len(), v.Len())
		reflect.Copy(list, v)
		for i := range list.Len() {
			fill(list.Index(i))
		}
		v.Set(list)
	case reflect.Map:
		object := reflect.MakeMap(t)
		for key, value := range v.Seq2() {
			inner := reflect.New(t.Elem()).Elem()
			inner.Set(value)
			fill(inner)
			object.SetMapIndex(key, inner)
		}
		v.Set(object)
	}
}
