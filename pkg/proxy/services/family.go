package services

import (
	"net/netip"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// Family is the address family of a proxy. The zero value is IPv4.
type Family int

// The address families. A proxy serves one of them.
const (
	IPv4 Family = iota
	IPv6
)

// FamilyOf returns the family of an address.
func FamilyOf(ip netip.Addr) Family {
	if ip.Is4() {
		return IPv4
	}
	return IPv6
}

func (f Family) String() string { return string(f.addressType()) }

func (f Family) addressType() discoveryv1.AddressType {
	if f == IPv6 {
		return discoveryv1.AddressTypeIPv6
	}
	return discoveryv1.AddressTypeIPv4
}

// address parses an address; ok is false if it is not one of the family.
func (f Family) address(text string) (netip.Addr, bool) {
	ip, err := netip.ParseAddr(text)
	return ip, err == nil && ip.Zone() == "" && FamilyOf(ip) == f
}
