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

// Tunnel is this node's end of the VXLAN that joins the nodes. Every node can
// work out every other's end from the Node objects, so nothing is exchanged
// and nothing is learnt from packets.
type Tunnel struct {
	Local   netip.Addr // the node's address: what other nodes send to
	Link    string     // the interface that has it
	MTU     int        // of what is inside
	Address netip.Addr // this end's: the first of the node's range of pods
}

// What the ends of the tunnel agree on. 4789 is VXLAN's port by RFC 7348.
const (
	tunnelName = "podium-vxlan"
	tunnelID   = 4097
	tunnelPort = 4789
)

// overhead is what the outer headers take: Ethernet, VXLAN, UDP and IP.
func overhead(underlay netip.Addr) int {
	if underlay.Is4() {
		return 50
	}
	return 70
}

// mac is the hardware address of the tunnel's end at a node.
func mac(node netip.Addr) net.HardwareAddr {
	sum := sha256.Sum256([]byte("podium-vxlan " + node.String()))
	out := net.HardwareAddr(sum[:6])
	out[0] = out[0]&^1 | 2 // one machine's, and made by nobody who has a prefix
	return out
}

// Entry is something the tunnel's device must know: which hardware address an
// end has (a neighbour), or at which node a hardware address is (a forward).
type Entry struct {
	Forward bool
	IP      netip.Addr // of the end or, for a forward, of the node
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

// entriesFor is what the device must know of the peers, forwards first: who
// knows an end can then reach it.
func entriesFor(peers []peer) []Entry {
	var out []Entry
	for _, p := range peers {
		hardware := mac(p.address).String()
		out = append(out, Entry{true, p.address, hardware}, Entry{false, p.gateway(), hardware})
	}
	slices.SortFunc(out, compareEntries)
	return slices.Compact(out)
}

// tunnel brings the device and what it knows to what the nodes say.
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
		n.cfg.Log.Info("tunnel made", "device", tunnelName, "local", t.Local, "over", t.Link, "mtu", t.MTU)
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
		if !slices.Contains(want, e) && !replaced { // adding replaces
			errs = append(errs, n.cfg.Host.RemoveEntry(e))
		}
	}
	return errors.Join(errs...)
}

// broadcast says that a hardware address stands for everybody: the kernel's own
// entries.
func broadcast(hardware net.HardwareAddr) bool {
	return len(hardware) != 6 || hardware[0]&1 != 0 || bytes.Equal(hardware, make([]byte, 6))
}
