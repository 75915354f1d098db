package webhook

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
)

// ErrAddressNotAllowed is the error of a connection to an address that is neither public nor in Config.Allow.
var ErrAddressNotAllowed = errors.New("address is not public; add it to Allow (allow= in the URL) if requests may go there")

// special lists non-public ranges, from the IANA special-purpose address registries. For IPv6 it lists only ranges
// inside global: loopback, private, link-local and multicast ranges, and IPv4 addresses written as IPv6 (::a.b.c.d,
// ::ffff:0:a.b.c.d), are outside.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),        // this network
	netip.MustParsePrefix("10.0.0.0/8"),       // private
	netip.MustParsePrefix("100.64.0.0/10"),    // shared address space (carrier-grade NAT)
	netip.MustParsePrefix("127.0.0.0/8"),      // loopback
	netip.MustParsePrefix("168.63.129.16/32"), // a public number, but a host service of one cloud
	netip.MustParsePrefix("169.254.0.0/16"),   // link-local, including the clouds' metadata services
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
	netip.MustParsePrefix("2001::/23"),        // protocol assignments, including Teredo
	netip.MustParsePrefix("2001:db8::/32"),    // documentation
	netip.MustParsePrefix("2002::/16"),        // 6to4
	netip.MustParsePrefix("3fff::/20"),        // documentation
}

var (
	// global is the only part of IPv6 from which public addresses are assigned.
	global = netip.MustParsePrefix("2000::/3")
	// nat64 is the prefix by which IPv6-only networks reach IPv4: the last four bytes are the IPv4 address.
	nat64 = netip.MustParsePrefix("64:ff9b::/96")
)

// guard returns a net.Dialer.Control, which is called with the address to connect to, after name resolution.
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

// meant returns the address that a connection really goes to: IPv4 if addr is an IPv4 address written as IPv6.
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
