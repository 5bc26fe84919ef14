package machine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/cluster/files"
)

// Paths on every machine.
const (
	configDir    = "/etc/podium"
	pkiDir       = "/etc/podium/pki"
	etcdPKI      = "etcd"        // below pkiDir
	kubeconfigs  = "kubeconfigs" // below configDir: a directory that daemons may write to, since they record the addresses of the API servers
	adminConf    = "/etc/podium/admin.conf"
	dataDir      = "/var/lib/podium"
	etcdData     = "/var/lib/podium/etcd"
	machineFile  = "/etc/podium/machine.yaml" // the Config that init and join worked with
	imagesDir    = "/usr/share/podium/images"
	manifestsDir = "/usr/share/podium/manifests"
)

// Config describes the cluster and this machine's part in it. Flags fill it.
// Default sets the defaults that do not depend on the machine; the commands set
// the others.
type Config struct {
	Root string `json:"-"` // prefix of every path that is read or written, for tests. Default: ""

	Cluster      string    `json:"clusterName"`             // name of the cluster in kubeconfigs; default "podium"
	Endpoint     string    `json:"controlPlaneEndpoint"`    // HOST:PORT of an apiserver that every machine can reach; default: this machine's address and Port
	PodCIDR      string    `json:"podSubnet"`               // IP range of pods; default 10.244.0.0/16, or fd00:10:244::/56 if the machine's address is IPv6
	ServiceCIDR  string    `json:"serviceSubnet"`           // IP range of Services; default 10.96.0.0/16, or fd00:10:96::/112
	DNSDomain    string    `json:"dnsDomain"`               // default cluster.local
	PodNetwork   string    `json:"podNetwork"`              // routes, vxlan, cloud (the cloud provider sets up routes) or none (an add-on provides the network); default routes
	CertSANs     []string  `json:"certSANs,omitempty"`      // additional names and addresses in the apiserver's certificate
	Port         int       `json:"bindPort"`                // port of this machine's apiserver; default 6443
	Cloud        string    `json:"cloudProvider,omitempty"` // cloud provider; control planes then run the cloud-controller-manager. Default: ""
	ControlPlane Placement `json:"controlPlanePlacement"`
	PodSecurity  string    `json:"podSecurity,omitempty"` // Pod Security level of namespaces without a label for it; default privileged

	Node           string            `json:"nodeName"`                     // name of the node; default: the host name in lower case
	NodeIP         string            `json:"nodeIP"`                       // address of the node; default: the one of the default route
	EtcdMembers    string            `json:"etcdInitialCluster,omitempty"` // NAME=PEER-URL,... of the etcd cluster that this machine joined; empty if it started a new one
	NodeLabels     map[string]string `json:"nodeLabels,omitempty"`         // labels the kubelet registers with
	NodeTaints     []string          `json:"nodeTaints,omitempty"`         // taints the kubelet registers with, key=value:effect
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`       // resources reserved for the daemons, as cpu=200m,memory=300Mi
	SystemReserved map[string]string `json:"systemReserved,omitempty"`     // resources reserved for the rest of the system
	CgroupDriver   string            `json:"cgroupDriver"`                 // systemd or cgroupfs; default: systemd with cgroup v2
	Runtime        string            `json:"criSocket,omitempty"`          // socket of a CRI runtime that is set up already; default: Debian's containerd, which Podium configures

	CloudConfig string `json:"-"` // file for the cloud provider, copied to pki/cloud.yaml; default: keep the present one, or use an empty one

	IgnorePreflight []string         `json:"-"` // names of preflight checks that only warn; "all" selects each of them
	Wait            time.Duration    `json:"-"` // how long to wait for daemons and the node; default 4 minutes
	Out             io.Writer        `json:"-"` // receives progress and results; default io.Discard
	Now             func() time.Time `json:"-"`
}

// Placement selects whether a control plane's machine runs ordinary pods.
type Placement string

// The values of Placement.
const (
	Dedicated Placement = "dedicated" // tainted node-role.kubernetes.io/control-plane:NoSchedule
	Shared    Placement = "shared"
)

// networkCloud is the PodNetwork of clusters whose cloud provider routes
// traffic to pods.
const networkCloud = "cloud"

// networkNone is the PodNetwork of clusters whose nodes stay NotReady until an
// add-on provides a pod network.
const networkNone = "none"

// Default returns a Config with the defaults that do not depend on the machine.
func Default() Config {
	return Config{
		Cluster: "podium", DNSDomain: "cluster.local", PodNetwork: "routes",
		Port: 6443, ControlPlane: Dedicated, Wait: 4 * time.Minute,
		Out: io.Discard, Now: time.Now,
	}
}

// complete fills empty fields with values that depend on the machine: its name,
// addresses, IP family and cgroup version.
func (c *Config) complete(host Host) error {
	var errs []error
	if c.Node == "" {
		name, err := host.Name()
		if err != nil {
			errs = append(errs, fmt.Errorf("read the host's name: %w", err))
		}
		c.Node = strings.ToLower(name)
	}
	if c.NodeIP == "" {
		ip, err := host.Address()
		if err != nil {
			errs = append(errs, fmt.Errorf("find this machine's address (has it a default route? else give --node-ip): %w", err))
		}
		c.NodeIP = ip
	}
	pods, services := "10.244.0.0/16", "10.96.0.0/16"
	if c.six() {
		pods, services = "fd00:10:244::/56", "fd00:10:96::/112"
	}
	c.PodCIDR, c.ServiceCIDR = cmp.Or(c.PodCIDR, pods), cmp.Or(c.ServiceCIDR, services)
	if c.CgroupDriver == "" {
		c.CgroupDriver = "cgroupfs"
		if _, err := os.Stat(c.at("/sys/fs/cgroup/cgroup.controllers")); err == nil {
			c.CgroupDriver = "systemd" // cgroup v2 requires one manager of the hierarchy
		}
	}
	if c.Endpoint == "" {
		c.Endpoint = net.JoinHostPort(c.NodeIP, strconv.Itoa(c.Port))
	}
	return errors.Join(errs...)
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// Validate reports all errors at once. Call it on a completed Config.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !clusterName.MatchString(c.Cluster) {
		bad("--cluster-name %q: use lower case letters, digits, '-' and '.'", c.Cluster)
	}
	for _, problem := range validation.IsDNS1123Subdomain(c.Node) {
		bad("--node-name %q: %s", c.Node, problem)
	}
	if ip, err := netip.ParseAddr(c.NodeIP); err != nil || ip.Is4In6() || ip.Zone() != "" || ip.IsLoopback() || ip.IsUnspecified() {
		bad("--node-ip %q is not an address that other machines could reach", c.NodeIP)
	}
	if host, port, err := net.SplitHostPort(c.Endpoint); err != nil || host == "" || !isPort(port) {
		bad("--control-plane-endpoint %q is not HOST:PORT", c.Endpoint)
	}
	if c.Port < 1 || c.Port > 65535 {
		bad("--apiserver-bind-port %d is not a port", c.Port)
	}
	errs = append(errs, c.validateRanges()...)
	for _, problem := range validation.IsDNS1123Subdomain(c.DNSDomain) {
		bad("--service-dns-domain %q: %s", c.DNSDomain, problem)
	}
	if !slices.Contains([]string{"routes", "vxlan", networkCloud, networkNone}, c.PodNetwork) {
		bad("--pod-network %q: use routes, vxlan, cloud or none", c.PodNetwork)
	}
	errs = append(errs, c.validateCloud()...)
	if err := admissionconfig.Check(c.PodSecurity); err != nil {
		bad("--pod-security: %w", err)
	}
	if c.ControlPlane != Dedicated && c.ControlPlane != Shared {
		bad("--control-plane-placement %q: use %s or %s", c.ControlPlane, Dedicated, Shared)
	}
	if c.CgroupDriver != "systemd" && c.CgroupDriver != "cgroupfs" {
		bad("--cgroup-driver %q: use systemd or cgroupfs", c.CgroupDriver)
	}
	for _, name := range c.IgnorePreflight {
		if !knownCheck(name) {
			bad("--ignore-preflight-errors: there is no check %q (there are %s)", name, strings.Join(checkNames(), ", "))
		}
	}
	return errors.Join(errs...)
}

// fit holds the bounds of a range's prefix length, and an example of a valid
// range.
type fit struct {
	shortest, longest int
	example           string
}

// validateRanges checks that the ranges are of the machine's IP family and
// overlap neither each other nor the machine's address.
func (c *Config) validateRanges() (errs []error) {
	var ranges []netip.Prefix
	for _, r := range []struct {
		flag, text string
		four, six  fit
	}{
		{"--pod-network-cidr", c.PodCIDR, fit{8, 24, "10.244.0.0/16"}, fit{48, 64, "fd00:10:244::/56"}},
		{"--service-cidr", c.ServiceCIDR, fit{12, 24, "10.96.0.0/16"}, fit{64, 120, "fd00:10:96::/112"}},
	} {
		want := r.four
		if c.six() {
			want = r.six
		}
		p, err := netip.ParsePrefix(r.text)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", r.flag, err))
			continue
		case p.Addr().Is6() != c.six():
			errs = append(errs, fmt.Errorf("%s %s is of another address family than this machine's address %s (--node-ip): use a range like %s", r.flag, r.text, c.NodeIP, want.example))
		case p != p.Masked():
			errs = append(errs, fmt.Errorf("%s %s has bits set behind its length: did you mean %s?", r.flag, r.text, p.Masked()))
		case p.Bits() < want.shortest || p.Bits() > want.longest:
			errs = append(errs, fmt.Errorf("%s %s: use a range from /%d to /%d", r.flag, r.text, want.shortest, want.longest))
		}
		ranges = append(ranges, p)
	}
	if len(ranges) == 2 && ranges[0].Overlaps(ranges[1]) {
		errs = append(errs, fmt.Errorf("--pod-network-cidr %s and --service-cidr %s overlap", c.PodCIDR, c.ServiceCIDR))
	}
	if node, err := netip.ParseAddr(c.NodeIP); err == nil {
		for _, r := range ranges {
			if r.Contains(node) {
				errs = append(errs, fmt.Errorf("the range %s holds this machine's own address %s: choose another", r, node))
			}
		}
	}
	return errs
}

// six reports whether the cluster uses IPv6: the machine's address decides.
func (c *Config) six() bool {
	ip, err := netip.ParseAddr(c.NodeIP)
	return err == nil && ip.Is6()
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// at returns a path of the machine as seen by this process, which is below
// Root.
func (c *Config) at(path ...string) string {
	return filepath.Join(append([]string{"/", c.Root}, path...)...)
}

// server returns the URL of the cluster's control plane endpoint.
func (c *Config) server() string { return "https://" + c.Endpoint }

// localServer returns the URL of this machine's own apiserver, whether or not
// it has one.
func (c *Config) localServer() string {
	return "https://" + net.JoinHostPort(c.NodeIP, strconv.Itoa(c.Port))
}

// nth returns the n-th address of the Service range: 1 is the apiserver's, 10
// the cluster DNS's. It returns "" if the range is invalid.
func (c *Config) nth(n int) string {
	p, err := netip.ParsePrefix(c.ServiceCIDR)
	if err != nil {
		return ""
	}
	a := p.Masked().Addr()
	for range n {
		a = a.Next()
	}
	return a.String()
}

// runtimeSocket returns the CRI endpoint in the form that the kubelet expects.
func (c *Config) runtimeSocket() string {
	if c.Runtime == "" {
		return "unix:///run/containerd/containerd.sock"
	}
	return c.Runtime
}

// saveConfig writes the Config to machineFile, for later commands.
func (m *machine) saveConfig() error {
	data, err := yaml.Marshal(m.Config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", machineFile, err)
	}
	_, err = files.Write(m.at(machineFile), data, 0o600)
	return err
}

// loadMachine reads the Config that init or join wrote to machineFile over cfg. It
// returns an error if this machine is in no cluster.
func loadMachine(cfg Config, host Host) (*machine, error) {
	data, err := os.ReadFile(cfg.at(machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s: this machine is in no cluster (podium init, podium join)", machineFile)
	}
	if err != nil {
		return nil, err
	}
	if err := yaml.UnmarshalStrict(data, &cfg); err != nil {
		return nil, fmt.Errorf("%s: %w", machineFile, err)
	}
	return newMachine(cfg, host)
}
