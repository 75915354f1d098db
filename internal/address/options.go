package address

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// optionName is what names of options look like; anything else may be a misplaced password.
var optionName = regexp.MustCompile(`^[a-z_]{1,20}$`)

// Options sets the options after the question mark of a broker's URL, and returns the part before it. The error lists every option
// that is unknown or invalid, and has no part of a password.
func Options(broker, text string, set map[string]func(value string) error) (base string, err error) {
	if err := Check(text); err != nil {
		return "", fmt.Errorf("%s: %w", broker, err)
	}
	base, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil { // its text has a part of the query
		return "", fmt.Errorf("%s: the URL's options cannot be read; separate them with &, and percent-encode what is special in them", broker)
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		apply, ok := set[name]
		if !ok {
			known := strings.Join(slices.Sorted(maps.Keys(set)), ", ")
			faults = append(faults, fmt.Errorf("%s: unknown URL option %s; known are %s", broker, ShowOption(name), known))
			continue
		}
		if err := apply(values.Get(name)); err != nil {
			faults = append(faults, fmt.Errorf("%s: URL option %s: %w", broker, name, err))
		}
	}
	return base, errors.Join(faults...)
}

// ShowOption returns the name of an unknown option, quoted.
func ShowOption(name string) string {
	if !optionName.MatchString(name) {
		return "(not shown)"
	}
	return fmt.Sprintf("%q", name)
}

// CheckPlaintext returns an error if one of the hosts to which a password is sent without encryption is not Local; instead says
// what to do about it.
func CheckPlaintext(broker string, hosts []string, instead string) error {
	for _, host := range hosts {
		if !Local(host) {
			return fmt.Errorf("%s: the password would be sent to %s without encryption; %s, or allow it with allow_plaintext=true (AllowPlaintext)",
				broker, host, instead)
		}
	}
	return nil
}

// Reason returns the text of an error of pgx about a connection string, without the string, which pgx repeats.
func Reason(err error) string {
	text := err.Error()
	if at := strings.LastIndex(text, "`: "); at >= 0 {
		return text[at+len("`: "):]
	}
	return "it cannot be parsed"
}
