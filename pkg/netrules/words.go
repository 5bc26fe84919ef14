package netrules

import (
	"net/netip"
	"strconv"
	"strings"
)

// Functions and constants for the parts of rules. A protocol is tcp, udp or sctp.

// Jump jumps to another chain or to a target.
func Jump(target string) string { return "-j " + target }

// Src matches packets by source, NotSrc all others.
func Src(p netip.Prefix) string    { return "-s " + p.String() }
func NotSrc(p netip.Prefix) string { return "! -s " + p.String() }

// Dst matches packets by destination, NotDst all others.
func Dst(p netip.Prefix) string    { return "-d " + p.String() }
func NotDst(p netip.Prefix) string { return "! -d " + p.String() }

// Host returns the prefix of a single address.
func Host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// Port matches a protocol and a destination port.
func Port(protocol string, port int32) string {
	return "-p " + protocol + " -m " + protocol + " --dport " + strconv.Itoa(int(port))
}

// Protocol matches any port of a protocol.
func Protocol(protocol string) string { return "-p " + protocol + " -m " + protocol }

// LocalDst and LocalSrc match addresses of this machine.
const (
	LocalDst = "-m addrtype --dst-type LOCAL"
	LocalSrc = "-m addrtype --src-type LOCAL"
)

// New matches the first packet of a connection.
const New = "-m conntrack --ctstate NEW"

// Comment adds a comment to the rule. It replaces quotes, backslashes and characters
// outside of printable ASCII, and truncates long texts.
func Comment(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r < ' ' || r == '"' || r == '\\' || r > '~' {
			return '_'
		}
		return r
	}, text)
	if len(clean) > 250 { // the comment match holds at most 255 bytes
		clean = clean[:250]
	}
	return `-m comment --comment "` + clean + `"`
}

// Share matches one packet in n at random. With n counting down over the rules of a
// chain, each rule gets an equal share. For n <= 1 it matches every packet.
func Share(n int) string {
	if n <= 1 {
		return ""
	}
	return "-m statistic --mode random --probability " + strconv.FormatFloat(1/float64(n), 'f', 10, 64)
}

// DNAT redirects the connection to another destination.
func DNAT(to netip.AddrPort) string { return "-j DNAT --to-destination " + to.String() }

// SourceBits matches sources whose lowest bits, at most 8, have the given value: one
// of 2^bits parts of all clients, always the same part for the same client.
func SourceBits(value, bits int, six bool) string {
	mask := 1<<bits - 1
	return "-s " + lowBits(value, six) + "/" + lowBits(mask, six)
}

func lowBits(v int, six bool) string {
	if six {
		return netip.AddrFrom16([16]byte{15: byte(v)}).String()
	}
	return netip.AddrFrom4([4]byte{3: byte(v)}).String()
}
