package backend

import (
	"cmp"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/config"
	"github.com/postrider/postrider/internal/address"
)

// The kinds of stores, by URL scheme.
const (
	kindSQLite   = "sqlite"
	kindPostgres = "postgres"
	kindMySQL    = "mysql"
)

// location is the parsed URL of a store.
type location struct {
	kind string
	// dsn is the file of a SQLite database, the connection string for pgx, or the URL of a MySQL database without
	// Postrider's options.
	dsn string
	// shown is the URL for operators, without a password.
	shown string
	store config.Store
}

// URLError is an error in the URL or the settings of a store or publisher; the text says what is allowed.
type URLError struct{ text string }

func (e *URLError) Error() string { return e.text }

func badURL(format string, args ...any) error { return &URLError{fmt.Sprintf(format, args...)} }

// locate parses the URL of a store. The options schema, prefix, partitions, notify and deliver_after_flush in its query
// correspond to the settings of the same name; a setting overrides the option.
func locate(s config.Store) (location, error) {
	scheme, u, err := parse(s)
	if err != nil {
		return location{}, err
	}
	query := u.Query()
	l := location{shown: address.Show(s.URL)}
	if l.store, err = settings(s, query); err != nil {
		return location{}, err
	}
	switch scheme {
	case "sqlite":
		l.kind, l.dsn = kindSQLite, cmp.Or(u.Opaque, u.Path)
		if u.Host != "" {
			return location{}, badURL("%s names a host; write sqlite:FILE, or sqlite:///FILE with three slashes for an absolute path", l.shown)
		}
		if l.dsn, err = url.PathUnescape(l.dsn); err != nil || l.dsn == "" {
			return location{}, badURL("%s names no file; write sqlite:FILE", l.shown)
		}
		if len(query) > 0 {
			return location{}, badURL("%s: unknown option in the URL; allowed: partitions, prefix", l.shown)
		}
	case "postgres", "postgresql":
		for name := range query {
			if word := config.Nearest(name, ownOptions); word != "" { // the server would refuse it with a less helpful error
				return location{}, badURL("%s: unknown option %s in the URL (did you mean %s?)", l.shown, name, word)
			}
		}
		u.RawQuery = query.Encode()
		l.kind, l.dsn = kindPostgres, u.String()
	case "mysql", "mariadb":
		u.RawQuery = query.Encode()
		l.kind, l.dsn = kindMySQL, u.String()
		if u.Host == "" || strings.Trim(u.Path, "/") == "" {
			return location{}, badURL("%s names no host or no database; write mysql://user@host:3306/database", l.shown)
		}
	default:
		return location{}, badURL("%q is not a kind of store%s; allowed: %s", scheme, meant(scheme), storeURLs)
	}
	if l.kind != kindPostgres && (l.store.Schema != "" || l.store.Notify != nil || l.store.ListenURL != "" || l.store.DeliverAfterFlush) {
		return location{}, badURL("%s: schema, notify, listen_url and deliver_after_flush are settings of PostgreSQL only", l.shown)
	}
	if l.store.Schema+l.store.Prefix != "" {
		if _, err := l.print(); err != nil { // only validates the settings
			return location{}, badURL("%s: %v", l.shown, err)
		}
	}
	return l, nil
}

const storeURLs = "sqlite:FILE, postgres://user@host/database, mysql://user@host/database"

// meant asks about a scheme that is almost one of a store, without repeating it.
func meant(scheme string) string {
	if word := config.Nearest(scheme, []string{"sqlite", "postgres", "postgresql", "mysql", "mariadb"}); word != "" && word != scheme {
		return fmt.Sprintf(" (did you mean %s:?)", word)
	}
	return ""
}

// parse returns the scheme of a store's URL, and the URL with the password that is configured separately. Its errors repeat
// nothing of the URL but its scheme: anything else may be a password.
func parse(s config.Store) (scheme string, u *url.URL, err error) {
	scheme, rest, ok := strings.Cut(s.URL, ":")
	if !ok || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz") != "" || rest != "" && scheme != kindSQLite && !strings.HasPrefix(rest, "//") {
		return "", nil, badURL("this is not the URL of a store%s; allowed: %s", meant(scheme), storeURLs)
	}
	if scheme != kindSQLite && rest != "" {
		if _, err = address.Parse(s.URL); err != nil {
			return "", nil, badURL("the URL of the store cannot be read: %v", err)
		}
	}
	if u, err = url.Parse(s.URL); err != nil {
		return "", nil, badURL("the URL of the store cannot be read; percent-encode what is special in it")
	}
	if _, has := u.User.Password(); s.Password != "" && !has {
		if u.User.Username() == "" {
			return "", nil, badURL("there is a password, and no user in the URL of the store %s", address.Show(s.URL))
		}
		u.User = url.UserPassword(u.User.Username(), s.Password)
	}
	return scheme, u, nil
}

// ownOptions are the options in the query of a PostgreSQL URL that belong to Postrider, not to the server or the driver.
var ownOptions = []string{"deliver_after_flush", "notify", "partitions", "prefix", "schema"}

// settings removes Postrider's options from the query of a URL and applies the explicit settings over them.
func settings(s config.Store, query url.Values) (config.Store, error) {
	take := func(name string) string {
		value := query.Get(name)
		query.Del(name)
		return value
	}
	s.Schema = cmp.Or(s.Schema, take("schema"))
	s.Prefix = cmp.Or(s.Prefix, take("prefix"))
	if text := take("partitions"); text != "" && s.Partitions == 0 {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > 1024 {
			return s, badURL("partitions=%s in the URL of the store is out of bounds; allowed: 1 to 1024", text)
		}
		s.Partitions = n
	}
	if text := take("notify"); text != "" && s.Notify == nil {
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > time.Minute {
			return s, badURL("notify=%s in the URL of the store is out of bounds; allowed: 0s to 1m", text)
		}
		s.Notify = &d
	}
	if text := take("deliver_after_flush"); text != "" && !s.DeliverAfterFlush {
		on, err := strconv.ParseBool(text)
		if err != nil {
			return s, badURL("deliver_after_flush=%s in the URL of the store is out of bounds; allowed: true, false", text)
		}
		s.DeliverAfterFlush = on
	}
	return s, nil
}
