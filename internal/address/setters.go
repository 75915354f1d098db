package address

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Text returns a setter for Options: it sets a text.
func Text(to *string) func(value string) error {
	return func(v string) error { *to = v; return nil }
}

// List sets a list from texts separated by commas.
func List(to *[]string) func(value string) error {
	return func(v string) error { *to = strings.Split(v, ","); return nil }
}

// Bool sets true or false.
func Bool(to *bool) func(value string) error {
	return func(v string) (err error) {
		if *to, err = strconv.ParseBool(v); err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		return nil
	}
}

// Number sets a whole number.
func Number[N int | int64](to *N) func(value string) error {
	return func(v string) error {
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil {
			return fmt.Errorf("%q is not a whole number", v)
		}
		*to = N(n)
		return nil
	}
}

// Duration sets a duration.
func Duration(to *time.Duration) func(value string) error {
	return func(v string) (err error) {
		if *to, err = time.ParseDuration(v); err != nil {
			return fmt.Errorf("%q is not a duration such as 30s or 2m", v)
		}
		return nil
	}
}
