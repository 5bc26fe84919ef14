package podnetwork

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// Tunnel is this node's end of the VXLAN between the nodes. Each node derives the
// others' ends from the Node objects, so the nodes exchange nothing and the device
// learns nothing from packets.
type Tunnel struct {
	Local   netip.Addr // the node's address, to which other nodes send
	Link    string     // the interface that has the address
	MTU     int        // of the inner packets
	Address netip.Addr // this end's address in the tunnel: the first of the node's pod CIDR
}

// The constants of the tunnel; they must be the same on all nodes. 4789 is VXLAN's
// port by RFC 7348.
const (
	tunnelName = "podium-vxlan"
	tunnelID   = 4097
	tunnelPort = 4789
)

// overhead returns the size of the outer headers: Ethernet, VXLAN, UDP and IP.
func overhead(underlay netip.Addr) int {
	if underlay.Is4() {
		return 50
	}
	return 70
}

// mac returns the hardware address of the tunnel's device on a node.
func mac(node netip.Addr) net.HardwareAddr {
	sum := sha256.Sum256([]byte("podium-vxlan " + node.String()))
	out := net.HardwareAddr(sum[:6])
	out[0] = out[0]&^1 | 2 // unicast and locally administered
	return out
}

// Entry is an entry of the tunnel's device: the hardware address of another end (a
// neighbour), or the node of a hardware address (a forward).
type Entry struct {
	Forward bool
	IP      netip.Addr // the address in the tunnel or, for a forward, the address of the node
	MAC     string
}

func compareEntries(a, b Entry) int {
	return cmp.Or(cmp.Compare(b2i(!a.Forward), b2i(!b.Forward)), a.IP.Compare(b.IP), cmp.Compare(a.MAC, b.MAC))
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// entriesFor returns the entries for the peers. Forwards come first, so that an end is
// reachable as soon as its neighbour entry exists.
func entriesFor(peers []peer) []Entry {
	var out []Entry
	for _, p := range peers {
		hardware := mac(p.address).String()
		out = append(out, Entry{true, p.address, hardware}, Entry{false, p.gateway(), hardware})
	}
	slices.SortFunc(out, compareEntries)
	return slices.Compact(out)
}

// tunnel configures the device and its entries for the peers.
func (n *Network) tunnel(own netip.Prefix, address netip.Addr, peers []peer) error {
	if !address.IsValid() {
		return fmt.Errorf("no tunnel: this node has no InternalIP of the family of its pods (%s)", own)
	}
	link, err := n.cfg.Host.OnLink(address)
	if err != nil {
		return fmt.Errorf("no tunnel: this node's InternalIP %s is not this machine's: %w", address, err)
	}
	t := Tunnel{Local: address, Link: link.Name, MTU: link.MTU - overhead(address), Address: own.Addr()}
	changed, err := n.cfg.Host.SetTunnel(t)
	if err != nil {
		return fmt.Errorf("make the tunnel: %w", err)
	}
	if changed {
		n.cfg.Log.Info("tunnel created", "device", tunnelName, "local", t.Local, "over", t.Link, "mtu", t.MTU)
	}
	have, err := n.cfg.Host.Entries()
	if err != nil {
		return err
	}
	want := entriesFor(peers)
	var errs []error
	for _, e := range want {
		if !slices.Contains(have, e) {
			errs = append(errs, n.cfg.Host.AddEntry(e))
		}
	}
	for _, e := range have {
		replaced := slices.ContainsFunc(want, func(w Entry) bool { return !e.Forward && !w.Forward && w.IP == e.IP })
		if !slices.Contains(want, e) && !replaced { // adding an entry replaces the old one
			errs = append(errs, n.cfg.Host.RemoveEntry(e))
		}
	}
	return errors.Join(errs...)
}

// broadcast reports whether an entry with this hardware address is one of the
// kernel's own: broadcast, multicast or zero.
func broadcast(hardware net.HardwareAddr) bool {
	return len(hardware) != 6 || hardware[0]&1 != 0 || bytes.Equal(hardware, make([]byte, 6))
}
