package postrider

import (
	"encoding"
	"fmt"
	"strconv"
	"time"
)

// Property is a custom attribute of messages with a type: a header that any CloudEvents receiver reads as an extension
// attribute. Declare it once, for publishers and handlers:
//
//	var Priority = postrider.DefineProperty[int]("priority")
//
//	err := Priority.Set(m, 3)
//	priority, found, err := Priority.Get(m)
//
// T is string, bool, int, int64, time.Time, or a type that implements encoding.TextMarshaler and, as a pointer,
// encoding.TextUnmarshaler.
type Property[T any] struct{ name string }

// Actor is the property that says who caused a message: a user, or a program. Publish inside a handler copies it from the
// handled message.
var Actor = DefineProperty[string]("actor")

// DefineProperty defines the property with a name of 1 to 20 letters a to z and digits, as CloudEvents recommends. Set and Get
// report another name as an error.
func DefineProperty[T any](name string) Property[T] { return Property[T]{name} }

// Name is the name of the header.
func (p Property[T]) Name() string { return p.name }

// Set sets the property of a message.
func (p Property[T]) Set(m *Message, v T) error {
	text, err := p.format(v)
	if err != nil {
		return fmt.Errorf("set property %q: %w", p.name, err)
	}
	if m.Headers == nil {
		m.Headers = make(map[string]string, 1)
	}
	m.Headers[p.name] = text
	return nil
}

// Get returns the property of a message, and whether it has one. The error says why its value cannot be read.
func (p Property[T]) Get(m *Message) (v T, found bool, err error) {
	text, found := m.Headers[p.name]
	if !found {
		return v, false, p.check()
	}
	if err := p.parse(text, &v); err != nil {
		return v, true, fmt.Errorf("property %q is %q: %w", p.name, text, err)
	}
	return v, true, nil
}

func (p Property[T]) check() error {
	ok := len(p.name) >= 1 && len(p.name) <= 20
	for i := range len(p.name) {
		c := p.name[i]
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9')
	}
	if !ok {
		return fmt.Errorf("the name of a property has 1 to 20 letters a to z and digits, not %q", p.name)
	}
	return nil
}

func (p Property[T]) format(v T) (string, error) {
	if err := p.check(); err != nil {
		return "", err
	}
	switch v := any(v).(type) {
	case string:
		return v, nil
	case bool:
		return strconv.FormatBool(v), nil
	case int:
		return strconv.Itoa(v), nil
	case int64:
		return strconv.FormatInt(v, 10), nil
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), nil
	case encoding.TextMarshaler:
		text, err := v.MarshalText()
		return string(text), err
	default:
		return "", fmt.Errorf("a property cannot have the type %T", v)
	}
}

func (p Property[T]) parse(text string, into *T) (err error) {
	if err := p.check(); err != nil {
		return err
	}
	switch v := any(into).(type) {
	case *string:
		*v = text
	case *bool:
		*v, err = strconv.ParseBool(text)
	case *int:
		*v, err = strconv.Atoi(text)
	case *int64:
		*v, err = strconv.ParseInt(text, 10, 64)
	case *time.Time:
		*v, err = time.Parse(time.RFC3339Nano, text)
	case encoding.TextUnmarshaler:
		err = v.UnmarshalText([]byte(text))
	default:
		err = fmt.Errorf("a property cannot have the type %T", *into)
	}
	return err
}
