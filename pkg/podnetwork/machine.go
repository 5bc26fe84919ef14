package podnetwork

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// routeProtocol marks the routes of this package in the kernel's table, so that a
// restarted process recognizes them. The number is not assigned:
// https://www.iana.org/assignments/rt-protocols
const routeProtocol = 77

// ownMetric ranks the route for this node's own pods below that of a bridge.
const ownMetric = 4096

// Machine implements Host on this machine.
type Machine struct{}

// WriteFile implements Host.
func (Machine) WriteFile(path string, data []byte) (bool, error) {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, data) {
		return false, nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	tmp, err := os.CreateTemp(dir, ".podium-*.tmp") // CNI reads *.conf, *.conflist and *.json
	if err != nil {
		return false, err
	}
	defer os.Remove(tmp.Name()) // does nothing after the rename
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err != nil {
		return false, fmt.Errorf("write %s: %w", tmp.Name(), err)
	}
	return true, os.Rename(tmp.Name(), path)
}

// Sysctl implements Host.
func (Machine) Sysctl(path, value string) error {
	file := filepath.Join("/proc/sys", path)
	have, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if string(bytes.TrimSpace(have)) == value {
		return nil // also where /proc/sys is read-only
	}
	return os.WriteFile(file, []byte(value), 0o644)
}

// Routes implements Host.
func (Machine) Routes() ([]Route, error) {
	found, err := netlink.RouteListFiltered(netlink.FAMILY_ALL,
		&netlink.Route{Protocol: routeProtocol, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	tunnel := -1
	if link, err := netlink.LinkByName(tunnelName); err == nil {
		tunnel = link.Attrs().Index
	}
	var out []Route
	for _, r := range found {
		if r.Dst == nil {
			continue
		}
		ip, _ := netip.AddrFromSlice(r.Dst.IP)
		via, _ := netip.AddrFromSlice(r.Gw)
		ones, _ := r.Dst.Mask.Size()
		out = append(out, Route{netip.PrefixFrom(ip.Unmap(), ones), via.Unmap(), r.LinkIndex == tunnel})
	}
	return out, nil
}

func (r Route) netlink() (*netlink.Route, error) {
	bits := r.Pods.Addr().BitLen()
	out := &netlink.Route{
		Dst: &net.IPNet{IP: r.Pods.Addr().AsSlice(), Mask: net.CIDRMask(r.Pods.Bits(), bits)},
		Gw:  r.Via.AsSlice(), Protocol: routeProtocol,
	}
	if !r.Via.IsValid() {
		out.Type, out.Priority = unix.RTN_UNREACHABLE, ownMetric
	}
	if r.Tunnel {
		link, err := netlink.LinkByName(tunnelName)
		if err != nil {
			return nil, err
		}
		out.LinkIndex = link.Attrs().Index
		out.Flags = int(netlink.FLAG_ONLINK) // the other end is in none of this node's networks
	}
	return out, nil
}

// AddRoute implements Host.
func (Machine) AddRoute(r Route) error {
	route, err := r.netlink()
	if err == nil {
		err = netlink.RouteReplace(route)
	}
	if r.Tunnel && errors.Is(err, unix.EINVAL) {
		// IPv6 rejects the gateway if it is covered by the route to be replaced.
		if err = netlink.RouteDel(&netlink.Route{Dst: route.Dst, Protocol: routeProtocol}); err == nil {
			err = netlink.RouteAdd(route)
		}
	}
	if err != nil {
		return fmt.Errorf("add route to %s via %s: %w", r.Pods, r.Via, err)
	}
	return nil
}

// RemoveRoute implements Host.
func (Machine) RemoveRoute(r Route) error {
	route, err := r.netlink()
	if err == nil {
		err = netlink.RouteDel(route)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to %s via %s: %w", r.Pods, r.Via, err)
	}
	return nil
}

// OnLink implements Host. For an address of this machine it returns the interface
// that has the address.
func (m Machine) OnLink(a netip.Addr) (Link, error) {
	routes, err := netlink.RouteGet(a.AsSlice())
	if err != nil {
		return Link{}, err
	}
	if len(routes) == 0 {
		return Link{}, fmt.Errorf("no route to %s", a)
	}
	r := routes[0]
	if r.Type == unix.RTN_LOCAL {
		return m.owner(a)
	}
	l, err := netlink.LinkByIndex(r.LinkIndex)
	if err != nil {
		return Link{}, err
	}
	return Link{Direct: len(r.Gw) == 0, Name: l.Attrs().Name, MTU: l.Attrs().MTU}, nil
}

func (Machine) owner(a netip.Addr) (Link, error) {
	addrs, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return Link{}, err
	}
	for _, have := range addrs {
		if have.IP.Equal(a.AsSlice()) {
			l, err := netlink.LinkByIndex(have.LinkIndex)
			if err != nil {
				return Link{}, err
			}
			return Link{Direct: true, Name: l.Attrs().Name, MTU: l.Attrs().MTU}, nil
		}
	}
	return Link{}, fmt.Errorf("no interface has %s", a)
}

// Cleanup removes what a pod network leaves on a machine: routes, the tunnel, the CNI
// configuration, the bridge of an earlier version and host-local's allocations. The
// proxy removes the rules. Empty arguments mean the defaults. Call it when no pod is
// left.
func Cleanup(confDir, dataDir, name string) error {
	if confDir == "" {
		confDir = DefaultConfDir
	}
	if dataDir == "" {
		dataDir = DefaultDataDir
	}
	if name == "" {
		name = DefaultName
	}
	var m Machine
	var errs []error
	c := Config{ConfDir: confDir}
	if err := os.Remove(c.confPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, err)
	}
	have, err := m.Routes()
	errs = append(errs, err)
	for _, r := range have {
		errs = append(errs, m.RemoveRoute(r))
	}
	errs = append(errs, m.RemoveTunnel())
	link, err := bridgeNamed(name)
	errs = append(errs, err)
	if link != nil {
		errs = append(errs, netlink.LinkDel(link))
	}
	return errors.Join(append(errs, os.RemoveAll(filepath.Join(dataDir, name)))...)
}

// bridgeNamed returns the bridge with the name; nil if there is none.
func bridgeNamed(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	var notFound netlink.LinkNotFoundError
	switch {
	case errors.As(err, &notFound):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("find bridge %s: %w", name, err)
	case link.Type() != "bridge":
		return nil, nil
	}
	return link, nil
}

// RetireBridge implements Host.
func (m Machine) RetireBridge(name string) error {
	bridge, err := bridgeNamed(name)
	if bridge == nil {
		return err
	}
	links, err := netlink.LinkList()
	if err != nil {
		return fmt.Errorf("list the ports of bridge %s: %w", name, err)
	}
	for _, l := range links {
		if l.Attrs().MasterIndex == bridge.Attrs().Index {
			return m.Sysctl("net/ipv4/conf/"+name+"/proxy_arp", "1")
		}
	}
	return netlink.LinkDel(bridge)
}

// PluginDir returns the directory of the CNI plugins; "" if there is none.
func PluginDir() string {
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "ptp")); err == nil {
			return dir
		}
	}
	return ""
}
