package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// ErrAddressNotAllowed is why no connection is made to an address that is not public and not in Config.Allow.
var ErrAddressNotAllowed = errors.New("address is not public; add it to Allow (allow= in the URL) if requests may go there")

// special are the ranges that are not for everybody, from the IANA special-purpose address registries. Of IPv6 only what
// lies inside global is listed: loopback, private, link-local and multicast ranges, and the ways to write an IPv4 address
// as one of IPv6 (::a.b.c.d, ::ffff:0:a.b.c.d), lie outside.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // carriers' shared space
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // public by its number, and a service of the host on one of the clouds
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, the clouds' metadata services among them
	netip.MustParsePrefix("172.16.0.0/12"),    // private
	netip.MustParsePrefix("192.0.0.0/24"),     // protocol assignments
	netip.MustParsePrefix("192.0.2.0/24"),     // documentation
	netip.MustParsePrefix("192.88.99.0/24"),   // 6to4 relays
	netip.MustParsePrefix("192.168.0.0/16"),   // private
	netip.MustParsePrefix("198.18.0.0/15"),    // benchmarks
	netip.MustParsePrefix("198.51.100.0/24"),  // documentation
	netip.MustParsePrefix("203.0.113.0/24"),   // documentation
	netip.MustParsePrefix("224.0.0.0/4"),      // multicast
	netip.MustParsePrefix("240.0.0.0/4"),      // reserved, and broadcast
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
}

var (
	// global is the only part of IPv6 from which public addresses are given out.
	global = netip.MustParsePrefix("2000::/3")
	// nat64 is where a network without IPv4 reaches it: the last four bytes are the address that is meant.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// guard is a net.Dialer.Control: it sees the address that a connection is about to be made to, after name resolution.
func guard(allow []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		target, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("connect to %s: %w", address, err)
		}
		if addr := meant(target.Addr()); !isPublic(addr) && !contains(allow, addr) {
			return fmt.Errorf("connect to %s: %w", addr, ErrAddressNotAllowed)
		}
		return nil
	}
}

// meant is the address behind the ways to write one of IPv4 in IPv6 that a connection really goes to.
func meant(addr netip.Addr) netip.Addr {
	addr = addr.Unmap().WithZone("")
	if nat64.Contains(addr) {
		b := addr.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return addr
}

func isPublic(addr netip.Addr) bool {
	return (addr.Is4() || global.Contains(addr)) && !contains(special, addr)
}

func contains(prefixes []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}
