package l2announce

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Kernel implements Network on this machine. It needs CAP_NET_ADMIN and, for Tell,
// CAP_NET_RAW.
type Kernel struct{}

// marks returns the flags and the scope by which this package recognizes its own
// addresses in the kernel, also those of an earlier process: without a route, and an
// IPv4 one with scope link, an IPv6 one without duplicate address detection.
// Together with a short lifetime and a preferred lifetime of 0, no other program sets
// them.
func marks(four bool) (flags, scope int) {
	if four {
		return unix.IFA_F_NOPREFIXROUTE, unix.RT_SCOPE_LINK
	}
	return unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE
}

// Reach implements Network.
func (Kernel) Reach(a netip.Addr) (Reach, error) {
	_, reach, err := place(a)
	return reach, err
}

// place returns the interface for an address; nil if there is none.
func place(a netip.Addr) (netlink.Link, Reach, error) {
	family := familyOf(a)
	have, err := netlink.AddrList(nil, family)
	if err != nil {
		return nil, Nowhere, fmt.Errorf("list this machine's addresses: %w", err)
	}
	for _, h := range have {
		ones, bits := h.Mask.Size()
		if ones < bits && h.Contains(a.AsSlice()) {
			link, err := usable(h.LinkIndex)
			if err != nil {
				return nil, Nowhere, err
			}
			return link, OnLink, nil
		}
	}
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, Nowhere, fmt.Errorf("list this machine's routes: %w", err)
	}
	for _, r := range routes {
		if ones, _ := mask(r.Dst); ones == 0 && r.LinkIndex > 0 {
			link, err := usable(r.LinkIndex)
			if err != nil {
				return nil, Nowhere, err
			}
			return link, Anywhere, nil
		}
	}
	return nil, Nowhere, nil
}

func mask(n *net.IPNet) (ones, bits int) {
	if n == nil {
		return 0, 0 // the kernel may return the default route like this
	}
	return n.Mask.Size()
}

func usable(index int) (netlink.Link, error) {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("look at interface %d: %w", index, err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		return nil, fmt.Errorf("interface %s is down", link.Attrs().Name)
	}
	return link, nil
}

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// Hold implements Network. The address is never preferred, so that local programs do
// not use it as their source address.
func (Kernel) Hold(a netip.Addr, d time.Duration) error {
	link, _, err := place(a)
	if err != nil {
		return err
	}
	if link == nil {
		return errors.New("there is no interface for it any more")
	}
	addr := whole(a)
	addr.Flags, addr.Scope = marks(a.Is4())
	addr.ValidLft = int(d / time.Second)
	if err := netlink.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("put %s on interface %s: %w", a, link.Attrs().Name, err)
	}
	return nil
}

func whole(a netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}
}

// ours returns the addresses that this package has added.
func ours() ([]netlink.Addr, error) {
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, fmt.Errorf("list this machine's addresses: %w", err)
	}
	var out []netlink.Addr
	for _, a := range all {
		ones, bits := a.Mask.Size()
		flags, scope := marks(bits == 32)
		if ones == bits && a.Flags&flags == flags && a.Scope == scope && a.PreferedLft == 0 && a.ValidLft <= int(Longest/time.Second) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Held implements Network.
func (Kernel) Held() ([]netip.Addr, error) {
	found, err := ours()
	var out []netip.Addr
	for _, f := range found {
		if a, ok := netip.AddrFromSlice(f.IP); ok {
			out = append(out, a.Unmap())
		}
	}
	return out, err
}

// Drop implements Network.
func (Kernel) Drop(a netip.Addr) error {
	found, err := ours()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range found {
		if !f.IP.Equal(a.AsSlice()) {
			continue
		}
		if err := netlink.AddrDel(nil, &f); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			errs = append(errs, fmt.Errorf("take %s from its interface: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// Cleanup removes all addresses that this package has added to this machine.
func Cleanup() error {
	held, err := Kernel{}.Held()
	errs := []error{err}
	for _, a := range held {
		errs = append(errs, Kernel{}.Drop(a))
	}
	return errors.Join(errs...)
}
