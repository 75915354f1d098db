package postrider

import "strings"

// notURIReference returns the index of the first byte that keeps s from being a URI-reference (RFC 3986, section 4.1), or
// -1 if it is one. It checks the characters, percent-encoding, the scheme and the fragment, but not the authority.
func notURIReference(s string) int {
	const pathEnd = "/?#"
	if colon := strings.IndexByte(s, ':'); colon >= 0 && !strings.ContainsAny(s[:colon], pathEnd) && !isScheme(s[:colon]) {
		return 0
	}
	fragment := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '%':
			if i+2 >= len(s) || !isHex(s[i+1]) || !isHex(s[i+2]) {
				return i
			}
		case c == '#':
			if fragment {
				return i
			}
			fragment = true
		case !isLetter(c) && !isDigit(c) && strings.IndexByte("-._~:/?[]@!$&'()*+,;=", c) < 0:
			return i
		}
	}
	return -1
}

func isScheme(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !isLetter(c) && (i == 0 || !isDigit(c) && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
func isDigit(c byte) bool  { return '0' <= c && c <= '9' }
func isHex(c byte) bool    { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }
