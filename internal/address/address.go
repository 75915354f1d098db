// Package address reads the URLs of stores and brokers as far as secrets are concerned: it shows them without, and says where a
// password would be sent without encryption. Only its texts of URLs get into errors, logs and output.
//
// A URL that can be read in more than one way is not shown: a slash, question mark or number sign in a password that is not
// percent-encoded ends the part with user and password early, and what follows looks like something else.
package address

import (
	"errors"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// ErrAmbiguous: the URL can be read in more than one way.
var ErrAmbiguous = errors.New("user and password in the URL cannot be told from the rest: percent-encode / as %2F, ? as %3F, # as %23, " +
	"and any @ that does not precede the host as %40")

// hidden stands for what is not shown.
const hidden = "…"

var (
	schemeOf = regexp.MustCompile(`^[a-z][a-z0-9+-]*://`)
	nextURL  = regexp.MustCompile(`,[a-z][a-z0-9+-]*://`)
	hostName = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	// secretName is a part of the names of all options that hold secrets.
	secretName = regexp.MustCompile(`(?i)pass|secret|token|auth`)
)

// URL is a URL whose parts are certain. Several servers are separated by commas, each with scheme and user or only the first.
type URL struct {
	Scheme string
	// User and Password are decoded. Named says that there are any.
	User, Password string
	Named          bool
	// Hosts are host:port or host as written; Rest is path and options.
	Hosts []string
	Rest  string
}

// Parse reads a URL. Errors: ErrAmbiguous, and others that say what is wrong. None of them contains a part of the URL.
func Parse(text string) (u URL, err error) {
	var users []string
	for i, one := range split(text) {
		scheme, after, ok := strings.Cut(one, "://")
		if !ok || !schemeOf.MatchString(one) {
			return u, errors.New("the URL does not begin with a scheme and ://")
		}
		own, hosts, rest := cut(after)
		switch {
		case strings.Contains(rest, "@"):
			return u, ErrAmbiguous
		case i == 0:
			u.Scheme = scheme
		case scheme != u.Scheme:
			return u, errors.New("the servers in the URL have different schemes; give all of them the same")
		case u.Rest != "":
			return u, ErrAmbiguous
		}
		users, u.Hosts, u.Rest = append(users, own...), append(u.Hosts, hosts...), rest
	}
	for i, host := range u.Hosts {
		if users[i] != users[0] {
			return u, errors.New("the servers in the URL have different users or passwords; give all of them the same, and percent-encode " +
				"a comma in a password as %2C")
		}
		if !valid(host) {
			return u, errors.New("a server in the URL is neither host nor host:port; user and password precede the host, followed by @, and what is " +
				"special in them is percent-encoded")
		}
	}
	user, password, _ := strings.Cut(users[0], ":")
	u.Named = users[0] != ""
	var err1, err2 error
	u.User, err1 = url.PathUnescape(user)
	u.Password, err2 = url.PathUnescape(password)
	if err1 != nil || err2 != nil {
		return u, errors.New("user and password in the URL cannot be read; write % as %25")
	}
	return u, nil
}

// Check returns ErrAmbiguous for a URL that can be read in more than one way.
func Check(text string) error {
	if _, err := Parse(text); errors.Is(err, ErrAmbiguous) {
		return err
	}
	return nil
}

// Servers returns scheme and hosts of a URL, e.g. nats://a:4222,b:4222.
func Servers(text string) string {
	u, err := Parse(text)
	if err != nil {
		return schemeOf.FindString(text) + hidden
	}
	return u.Scheme + "://" + strings.Join(u.Hosts, ",")
}

// Show returns a URL without its password, without its fragment, and, if one of its options holds a secret, without options.
func Show(text string) string {
	if file, ok := strings.CutPrefix(text, "sqlite:"); ok && (!strings.HasPrefix(file, "//") || strings.HasPrefix(file, "///")) {
		return "sqlite:" + withoutSecrets(file)
	}
	u, err := Parse(text)
	if err != nil {
		return schemeOf.FindString(text) + hidden
	}
	user := ""
	if u.User != "" {
		user = url.User(u.User).String() + "@"
	}
	return u.Scheme + "://" + user + strings.Join(u.Hosts, ",") + withoutSecrets(u.Rest)
}

// HasSecret reports whether a URL holds a password or another secret, or may hold one.
func HasSecret(text string) bool { return Show(text) != text }

// split returns the URLs in a list.
func split(text string) []string {
	var list []string
	for {
		at := nextURL.FindStringIndex(text)
		if at == nil {
			return append(list, text)
		}
		list, text = append(list, text[:at[0]]), text[at[0]+1:]
	}
}

// cut returns the servers of a URL without its scheme, each with user and password, and what follows them. A comma may also be part
// of the password: then only the last @ precedes a host.
func cut(after string) (users, hosts []string, rest string) {
	end := strings.IndexAny(after, "/?#")
	if end < 0 {
		end = len(after)
	}
	servers, rest := after[:end], after[end:]
	list := strings.Split(servers, ",")
	if user, last, ok := cutLast(servers); ok && strings.Count(servers, "@") != len(list) {
		for host := range strings.SplitSeq(last, ",") {
			users, hosts = append(users, user), append(hosts, host)
		}
		return users, hosts, rest
	}
	for _, server := range list {
		user, host, ok := cutLast(server)
		if !ok {
			user, host = "", server
		}
		users, hosts = append(users, user), append(hosts, host)
	}
	return users, hosts, rest
}

// cutLast splits a text at its last @.
func cutLast(text string) (before, after string, ok bool) {
	at := strings.LastIndexByte(text, '@')
	if at < 0 {
		return "", text, false
	}
	return text[:at], text[at+1:], true
}

// valid reports whether a text is a host with an optional port, or empty: a URL of a socket names no host.
func valid(host string) bool {
	if host == "" {
		return true
	}
	name := host
	if at := strings.LastIndexByte(host, ':'); at >= 0 && !strings.HasSuffix(host, "]") {
		if _, err := strconv.ParseUint(host[at+1:], 10, 16); err != nil {
			return false
		}
		name = host[:at]
	}
	if ip, ok := strings.CutPrefix(name, "["); ok {
		return net.ParseIP(strings.TrimSuffix(ip, "]")) != nil
	}
	return hostName.MatchString(name)
}

// withoutSecrets returns path and options of a URL, without the fragment, and without options if one of them holds a secret.
func withoutSecrets(rest string) string {
	rest, _, _ = strings.Cut(rest, "#")
	path, query, _ := strings.Cut(rest, "?")
	if query == "" {
		return path
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return path
	}
	for name := range options {
		if secretName.MatchString(name) {
			return path
		}
	}
	return path + "?" + query
}

// Local reports whether connections to a host, with or without a port, stay on this machine: a loopback address, localhost, or a
// socket.
func Local(host string) bool {
	if strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "" {
		return true
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}
