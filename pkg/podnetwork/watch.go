package podnetwork

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Watch implements Host. It watches for deletions of our routes and for changes of
// links: a link that goes down loses its routes without notifications for them. It
// ignores changes of the pods' links, except that it prepares the node's end of a new
// link for IPv6.
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

// trustAddresses disables duplicate address detection on the node's end of a pod's
// link: otherwise the gateway would not answer in the pod's first seconds. It ignores
// interfaces without this sysctl.
func (m Machine) trustAddresses(link string) {
	_ = m.Sysctl("net/ipv6/conf/"+link+"/accept_dad", "0")
}
