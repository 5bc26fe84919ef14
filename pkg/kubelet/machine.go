package kubelet

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"podium/pkg/kubelet/nodepressure"
	"podium/pkg/kubelet/pods"
	"podium/pkg/version"
)

// thisMachine describes the machine. If nodeIPs is empty, it uses the address of
// the interface with the default route.
func thisMachine(name string, nodeIPs []string, rootDir, runtimeVersion string) (Machine, error) {
	memory, err := meminfo("/proc/meminfo")
	if err != nil {
		return Machine{}, err
	}
	ips, err := addresses(name, nodeIPs)
	if err != nil {
		return Machine{}, err
	}
	m := Machine{Info: systemInfo(runtimeVersion), Capacity: corev1.ResourceList{
		corev1.ResourceCPU:    *quantity(int64(runtime.NumCPU())),
		corev1.ResourceMemory: *resource.NewQuantity(memory["MemTotal"], resource.BinarySI),
	}}
	for _, ip := range ips {
		m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	m.Addresses = append(m.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: name})
	var fs unix.Statfs_t
	if err := unix.Statfs(rootDir, &fs); err != nil {
		return Machine{}, fmt.Errorf("--root-dir %s: %w", rootDir, err)
	}
	m.Capacity[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(int64(fs.Blocks)*fs.Bsize, resource.BinarySI)
	m.Host = pods.Host{
		AppArmor: firstLine("/sys/module/apparmor/parameters/enabled") == "Y", SELinux: exists("/sys/fs/selinux/enforce"),
		PingGroups: exists("/proc/sys/net/ipv4/ping_group_range"),
		UserNS:     exists("/proc/self/ns/user") && firstLine("/proc/sys/user/max_user_namespaces") != "0",
	}
	hugePages(m.Capacity, "/sys/kernel/mm/hugepages")
	return m, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func systemInfo(runtimeVersion string) corev1.NodeSystemInfo {
	info := corev1.NodeSystemInfo{
		MachineID: firstLine("/etc/machine-id"), SystemUUID: firstLine("/sys/class/dmi/id/product_uuid"),
		BootID: firstLine("/proc/sys/kernel/random/boot_id"), KernelVersion: firstLine("/proc/sys/kernel/osrelease"),
		OSImage: osName("/etc/os-release"), ContainerRuntimeVersion: runtimeVersion, KubeletVersion: version.Podium,
		OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if ids := firstLine("/proc/self/uid_map"); ids != "" {
		info.RunningInUserNamespace = new(!isIdentity(ids))
	}
	if info.SystemUUID == "" {
		info.SystemUUID = info.MachineID
	}
	return info
}

// isIdentity reports whether the first line of a uid_map maps all user ids to
// themselves, as outside of a user namespace.
func isIdentity(line string) bool {
	return slices.Equal(strings.Fields(line), []string{"0", "0", "4294967295"})
}

// firstLine returns the first line of a file, "" if the file cannot be read: not
// every machine has every file.
func firstLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(data), "\n")
	return strings.TrimSpace(line)
}

func osName(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return "Linux"
	}
	for _, line := range strings.Split(string(data), "\n") {
		if v, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
			return strings.Trim(v, `"'`)
		}
	}
	return "Linux"
}

// meminfo parses the file and returns the values in bytes.
func meminfo(path string) (map[string]int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]int64{}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		name, rest, _ := strings.Cut(scan.Text(), ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			continue
		}
		if len(fields) > 1 && fields[1] == "kB" {
			n *= 1024
		}
		out[name] = n
	}
	return out, scan.Err()
}

// hugePages adds the huge pages that the kernel has reserved, by size.
func hugePages(capacity corev1.ResourceList, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(e.Name(), "hugepages-"), "kB"), 10, 64)
		if err != nil {
			continue
		}
		count, err := strconv.ParseInt(firstLine(filepath.Join(dir, e.Name(), "nr_hugepages")), 10, 64)
		if err != nil {
			continue
		}
		size := resource.NewQuantity(kb*1024, resource.BinarySI)
		capacity[corev1.ResourceName(corev1.ResourceHugePagesPrefix+size.String())] = *resource.NewQuantity(count*kb*1024, resource.BinarySI)
	}
}

// observe measures the machine's memory, and the file systems of the kubelet's files and
// of the images. It leaves out what it cannot measure.
func observe(rootDir, imageDir string) map[nodepressure.Signal]nodepressure.Observation {
	out := map[nodepressure.Signal]nodepressure.Observation{}
	if m, err := meminfo("/proc/meminfo"); err == nil {
		out[nodepressure.Memory] = nodepressure.Observation{Available: m["MemAvailable"], Capacity: m["MemTotal"]}
	}
	disk := func(dir string, bytes, inodes nodepressure.Signal) {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) != nil || fs.Blocks == 0 {
			return
		}
		out[bytes] = nodepressure.Observation{Available: int64(fs.Bavail) * fs.Bsize, Capacity: int64(fs.Blocks) * fs.Bsize}
		if fs.Files > 0 { // some file systems have no fixed number of inodes
			out[inodes] = nodepressure.Observation{Available: int64(fs.Ffree), Capacity: int64(fs.Files)}
		}
	}
	disk(rootDir, nodepressure.NodeFS, nodepressure.NodeInodes)
	disk(imageDir, nodepressure.ImageFS, nodepressure.ImageInodes)
	return out
}

// readOnly reports whether a directory is in a file system that is mounted read-only, as
// the kernel does after an error of the disk. It does not write, to find that out.
func readOnly(dir string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(dir, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
}

// diskUsage returns the bytes used and the size of dir's file system.
func diskUsage(dir string) (used, capacity uint64, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	size := uint64(fs.Bsize)
	return (fs.Blocks - fs.Bavail) * size, fs.Blocks * size, nil
}

// addresses returns the node's addresses: the given ones, else the name if it is
// an address, else the source address of the default route, else the first IPv4
// address that is not loopback.
func addresses(name string, given []string) ([]string, error) {
	if len(given) > 0 {
		for _, ip := range given {
			if _, err := netip.ParseAddr(ip); err != nil {
				return nil, fmt.Errorf("--node-ip: %w", err)
			}
		}
		return given, nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return []string{name}, nil
	}
	if ip := defaultRouteIP(); ip != "" {
		return []string{ip}, nil
	}
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	for _, a := range found {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.To4() == nil || !n.IP.IsGlobalUnicast() {
			continue
		}
		if ones, bits := n.Mask.Size(); ones < bits { // one without a network may be the temporary address of a load balancer
			return []string{n.IP.String()}, nil
		}
	}
	return nil, errors.New("the node has no address other than loopback: give one with --node-ip")
}

// defaultRouteIP returns the source address of the default route, "" if there is
// none. It sends no packets: connect on UDP only looks up the route. The
// destination is an address reserved for documentation.
func defaultRouteIP() string {
	conn, err := net.Dial("udp", "192.0.2.1:9")
	if err != nil {
		return ""
	}
	defer conn.Close()
	addr, ok := conn.LocalAddr().(*net.UDPAddr)
	if !ok || !addr.IP.IsGlobalUnicast() {
		return ""
	}
	return addr.IP.String()
}
