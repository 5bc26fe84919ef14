package l2announce

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
)

// Announce implements Network. It sends a gratuitous ARP or an unsolicited neighbour
// advertisement.
func (Kernel) Announce(a netip.Addr) error {
	link, _, err := place(a)
	if err != nil {
		return err
	}
	if link == nil {
		return errors.New("there is no interface for it any more")
	}
	at := link.Attrs()
	if len(at.HardwareAddr) != 6 {
		return nil // not Ethernet: there is no address resolution
	}
	if a.Is4() {
		err = sendARP(a, at)
	} else {
		err = sendNDP(a, at)
	}
	if err != nil {
		return fmt.Errorf("announce on %s that it has %s: %w", at.Name, a, err)
	}
	return nil
}

// The operations of ARP. Some neighbours learn from requests and some from replies
// (RFC 5227, section 3).
const (
	arpRequest = 1
	arpReply   = 2
)

func sendARP(a netip.Addr, at *netlink.LinkAttrs) error {
	const protocol = unix.ETH_P_ARP<<8&0xff00 | unix.ETH_P_ARP>>8 // in network byte order
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	to := &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: at.Index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	return errors.Join(
		unix.Sendto(s, arpPacket(arpRequest, a, at.HardwareAddr), 0, to),
		unix.Sendto(s, arpPacket(arpReply, a, at.HardwareAddr), 0, to))
}

// arpPacket returns an ARP packet whose sender and target are both a at at.
func arpPacket(operation uint16, a netip.Addr, at net.HardwareAddr) []byte {
	b := binary.BigEndian.AppendUint16(nil, 1)          // Ethernet
	b = binary.BigEndian.AppendUint16(b, unix.ETH_P_IP) // IPv4
	b = append(b, 6, 4)                                 // their lengths
	b = binary.BigEndian.AppendUint16(b, operation)     //
	b = append(append(b, at...), a.AsSlice()...)        // sender
	return append(append(b, at...), a.AsSlice()...)     // target
}

// sendNDP sends an unsolicited neighbour advertisement to all nodes of the link
// (RFC 4861, section 4.4). The kernel fills in the checksum.
func sendNDP(a netip.Addr, at *netlink.LinkAttrs) error {
	conn, err := net.ListenIP("ip6:ipv6-icmp", &net.IPAddr{IP: a.AsSlice()})
	if err != nil {
		return err
	}
	defer conn.Close()
	p := ipv6.NewPacketConn(conn)
	_, err = p.WriteTo(advertisement(a, at.HardwareAddr), &ipv6.ControlMessage{HopLimit: 255, IfIndex: at.Index},
		&net.IPAddr{IP: net.IPv6linklocalallnodes, Zone: at.Name})
	return err
}

func advertisement(a netip.Addr, at net.HardwareAddr) []byte {
	const (
		neighbourAdvertisement = 136
		override               = 0x20 // replace the cached entry
		router                 = 0x80 // this machine forwards packets
		targetLinkLayer        = 2
	)
	b := []byte{neighbourAdvertisement, 0, 0, 0, override | router, 0, 0, 0}
	b = append(b, a.AsSlice()...)
	return append(append(b, targetLinkLayer, 1), at...)
}
