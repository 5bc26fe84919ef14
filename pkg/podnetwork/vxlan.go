package podnetwork

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// SetTunnel implements Host.
func (m Machine) SetTunnel(t Tunnel) (bool, error) {
	under, err := netlink.LinkByName(t.Link)
	if err != nil {
		return false, fmt.Errorf("interface %s: %w", t.Link, err)
	}
	want := &netlink.Vxlan{
		LinkAttrs:    netlink.LinkAttrs{Name: tunnelName, MTU: t.MTU, HardwareAddr: mac(t.Local), TxQLen: 1000},
		VxlanId:      tunnelID,
		VtepDevIndex: under.Attrs().Index,
		SrcAddr:      t.Local.AsSlice(),
		Port:         tunnelPort,
		Learning:     false,
	}
	link, changed, err := m.tunnelLink(want)
	if err != nil {
		return false, err
	}
	if link.Attrs().MTU != t.MTU {
		if err := netlink.LinkSetMTU(link, t.MTU); err != nil {
			return false, fmt.Errorf("set the MTU to %d: %w", t.MTU, err)
		}
		changed = true
	}
	readdressed, err := setAddress(link, t.Address)
	if err != nil {
		return false, err
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return false, err
		}
		changed = true
	}
	return changed || readdressed, nil
}

// tunnelLink returns the device. It creates a missing device, and replaces one whose
// fixed properties differ.
func (Machine) tunnelLink(want *netlink.Vxlan) (link netlink.Link, changed bool, err error) {
	have, err := netlink.LinkByName(tunnelName)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.As(err, &notFound):
	case err != nil:
		return nil, false, err
	case sameTunnel(have, want):
		return have, false, nil
	default:
		if err := netlink.LinkDel(have); err != nil {
			return nil, false, fmt.Errorf("remove the former device: %w", err)
		}
	}
	if err := netlink.LinkAdd(want); err != nil {
		return nil, false, fmt.Errorf("add a VXLAN device (has the kernel module vxlan?): %w", err)
	}
	link, err = netlink.LinkByName(tunnelName)
	return link, true, err
}

func sameTunnel(have netlink.Link, want *netlink.Vxlan) bool {
	v, ok := have.(*netlink.Vxlan)
	return ok && v.VxlanId == want.VxlanId && v.VtepDevIndex == want.VtepDevIndex && v.SrcAddr.Equal(want.SrcAddr) &&
		v.Port == want.Port && !v.Learning && v.HardwareAddr.String() == want.HardwareAddr.String()
}

// setAddress makes ip the only address of a link, apart from link-local ones.
func setAddress(link netlink.Link, ip netip.Addr) (changed bool, err error) {
	family := netlink.FAMILY_V4
	if ip.Is6() {
		family = netlink.FAMILY_V6
	}
	have, err := netlink.AddrList(link, family)
	if err != nil {
		return false, err
	}
	there := false
	for _, a := range have {
		ones, _ := a.Mask.Size()
		switch {
		case a.IP.Equal(ip.AsSlice()) && ones == ip.BitLen():
			there = true
		case a.IP.IsLinkLocalUnicast():
		default:
			if err := netlink.AddrDel(link, &a); err != nil {
				return false, err
			}
			changed = true
		}
	}
	if there {
		return changed, nil
	}
	add := &netlink.Addr{IPNet: hostNet(ip)}
	if ip.Is6() {
		add.Flags = unix.IFA_F_NODAD // no other machine can have it, and it is needed at once
	}
	if err := netlink.AddrAdd(link, add); err != nil {
		return false, fmt.Errorf("give %s the address %s: %w", link.Attrs().Name, ip, err)
	}
	return true, nil
}

func hostNet(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}
}

// RemoveTunnel implements Host.
func (Machine) RemoveTunnel() error {
	link, err := netlink.LinkByName(tunnelName)
	var notFound netlink.LinkNotFoundError
	if errors.As(err, &notFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return netlink.LinkDel(link)
}

// Entries implements Host.
func (Machine) Entries() ([]Entry, error) {
	link, err := netlink.LinkByName(tunnelName)
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6, unix.AF_BRIDGE} {
		found, err := netlink.NeighList(link.Attrs().Index, family)
		if err != nil {
			return nil, fmt.Errorf("list forwarding entries of the tunnel: %w", err)
		}
		for _, e := range found {
			ip, ok := netip.AddrFromSlice(e.IP)
			if !ok || broadcast(e.HardwareAddr) || e.State&unix.NUD_PERMANENT == 0 {
				continue
			}
			out = append(out, Entry{family == unix.AF_BRIDGE, ip.Unmap(), e.HardwareAddr.String()})
		}
	}
	return out, nil
}

// AddEntry implements Host.
func (Machine) AddEntry(e Entry) error {
	neigh, err := e.netlink()
	if err != nil {
		return err
	}
	if err := netlink.NeighSet(neigh); err != nil {
		return fmt.Errorf("add forwarding entry for %s at %s to the tunnel: %w", e.MAC, e.IP, err)
	}
	return nil
}

// RemoveEntry implements Host.
func (Machine) RemoveEntry(e Entry) error {
	neigh, err := e.netlink()
	if err != nil {
		return err
	}
	if err := netlink.NeighDel(neigh); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("have the tunnel forget %s at %s: %w", e.MAC, e.IP, err)
	}
	return nil
}

func (e Entry) netlink() (*netlink.Neigh, error) {
	link, err := netlink.LinkByName(tunnelName)
	if err != nil {
		return nil, err
	}
	hardware, err := net.ParseMAC(e.MAC)
	if err != nil {
		return nil, err
	}
	n := &netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: e.IP.AsSlice(), HardwareAddr: hardware,
	}
	if e.Forward {
		n.Family, n.Flags = unix.AF_BRIDGE, netlink.NTF_SELF
	}
	return n, nil
}
