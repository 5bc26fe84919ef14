package podnetwork

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watch implements Host: it looks at routes of ours that go, and at links that
// change. A link that goes down takes its routes with it, without a word about
// them; the pods' own links come and go all the time and say nothing, but the
// node's end of each is made ready for IPv6.
func (m Machine) Watch(ctx context.Context) (<-chan struct{}, error) {
	done := make(chan struct{})
	routes, links := make(chan netlink.RouteUpdate), make(chan netlink.LinkUpdate)
	if err := netlink.RouteSubscribe(routes, done); err != nil {
		close(done)
		return nil, fmt.Errorf("watch the kernel's routes: %w", err)
	}
	if err := netlink.LinkSubscribe(links, done); err != nil {
		close(done)
		return nil, fmt.Errorf("watch the kernel's links: %w", err)
	}
	changed := make(chan struct{}, 1)
	go func() {
		defer close(done)
		for routes != nil || links != nil {
			ours := false
			select {
			case <-ctx.Done():
				return
			case r, open := <-routes:
				if !open {
					routes = nil
				}
				ours = open && r.Type == unix.RTM_DELROUTE && r.Protocol == routeProtocol
			case l, open := <-links:
				if !open {
					links = nil
				}
				link := open && l.Family == unix.AF_UNSPEC // AF_BRIDGE: of a bridge's port
				ours = link && l.Link.Type() != "veth"
				if link && !ours && l.Header.Type == unix.RTM_NEWLINK {
					m.trustAddresses(l.Attrs().Name)
				}
			}
			if ours {
				select {
				case changed <- struct{}{}:
				default:
				}
			}
		}
	}()
	return changed, nil
}

// trustAddresses makes the node's end of a pod's link take IPv6 addresses at
// once: with duplicate address detection the gateway would be silent for the
// pod's first seconds. An interface that has no such parameter is left alone.
func (m Machine) trustAddresses(link string) {
	_ = m.Sysctl("net/ipv6/conf/"+link+"/accept_dad", "0")
}
