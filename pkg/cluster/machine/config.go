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
)

// Where things are on every machine.
const (
	configDir    = "/etc/podium"
	pkiDir       = "/etc/podium/pki"
	etcdPKI      = "etcd"        // below pkiDir
	kubeconfigs  = "kubeconfigs" // below configDir: where daemons write, since they note the cluster's servers
	adminConf    = "/etc/podium/admin.conf"
	dataDir      = "/var/lib/podium"
	etcdData     = "/var/lib/podium/etcd"
	machineFile  = "/etc/podium/machine.yaml" // the Config that init and join worked with
	imagesDir    = "/usr/share/podium/images"
	manifestsDir = "/usr/share/podium/manifests"
	sandboxImage = "localhost/podium/pause:v1"
)

// Ports that are not asked for.
const (
	etcdClientPort = 2379
	etcdPeerPort   = 2380
)

// Config says what the cluster is like and what this machine is in it. Flags
// fill it; Default has what they do not say.
type Config struct {
	Root string `json:"-"` // put before every path that is read or written; tests use a folder. Default: none

	Cluster      string    `json:"clusterName"`             // name of the cluster in kubeconfigs; default "podium"
	Endpoint     string    `json:"controlPlaneEndpoint"`    // HOST:PORT at which every machine finds an apiserver; default: this machine's address and Port
	PodCIDR      string    `json:"podSubnet"`               // range of the pods' addresses; default 10.244.0.0/16, or fd00:10:244::/56 where the machine's is of IPv6
	ServiceCIDR  string    `json:"serviceSubnet"`           // range of the Services' addresses; default 10.96.0.0/16, or fd00:10:96::/112
	DNSDomain    string    `json:"dnsDomain"`               // default cluster.local
	PodNetwork   string    `json:"podNetwork"`              // routes, vxlan, cloud: the provider of the machines routes, or none: an add-on brings it; default routes
	CertSANs     []string  `json:"certSANs,omitempty"`      // more names and addresses of the apiserver
	Port         int       `json:"bindPort"`                // of this machine's apiserver; default 6443
	Cloud        string    `json:"cloudProvider,omitempty"` // who provides the machines; its cloud-controller-manager then runs on control planes
	ControlPlane Placement `json:"controlPlanePlacement"`
	PodSecurity  string    `json:"podSecurity,omitempty"` // Pod Security level of namespaces whose labels name none; default privileged

	Node           string            `json:"nodeName"`                     // name of the node; default: the host's name in lower case
	NodeIP         string            `json:"nodeIP"`                       // its address; default: that of the default route
	EtcdMembers    string            `json:"etcdInitialCluster,omitempty"` // NAME=PEER-URL,... of the etcd cluster that was joined; empty: founded one
	NodeLabels     map[string]string `json:"nodeLabels,omitempty"`         // labels the kubelet registers with
	NodeTaints     []string          `json:"nodeTaints,omitempty"`         // taints the kubelet registers with, key=value:effect
	KubeReserved   map[string]string `json:"kubeReserved,omitempty"`       // kept for the daemons, as cpu=200m,memory=300Mi
	SystemReserved map[string]string `json:"systemReserved,omitempty"`     // kept for the rest of the system
	CgroupDriver   string            `json:"cgroupDriver"`                 // systemd or cgroupfs; default: systemd where cgroups have version 2
	Runtime        string            `json:"criSocket,omitempty"`          // socket of a CRI runtime that is set up already; default: Debian's containerd, set up by us

	CloudConfig string `json:"-"` // file for the provider, which becomes pki/cloud.yaml; "": what is there, or nothing

	IgnorePreflight []string         `json:"-"` // names of preflight checks that only warn; "all": each of them
	Wait            time.Duration    `json:"-"` // how long to wait for daemons and the node; default 4 minutes
	Out             io.Writer        `json:"-"` // progress
	Now             func() time.Time `json:"-"`
}

// Placement says whether a control plane's machine runs ordinary pods.
type Placement string

// The values of Placement.
const (
	Dedicated Placement = "dedicated" // tainted node-role.kubernetes.io/control-plane:NoSchedule
	Shared    Placement = "shared"
)

// networkCloud is the PodNetwork of clusters whose provider routes to pods.
const networkCloud = "cloud"

// networkNone is the PodNetwork of clusters whose nodes stay unready until an
// add-on has brought them one.
const networkNone = "none"

// Default is what a cluster is like when nobody says otherwise.
func Default() Config {
	return Config{
		Cluster: "podium", DNSDomain: "cluster.local", PodNetwork: "routes",
		Port: 6443, ControlPlane: Dedicated, Wait: 4 * time.Minute,
		Out: io.Discard, Now: time.Now,
	}
}

// complete fills in what this machine says about itself.
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
			c.CgroupDriver = "systemd" // version 2 wants one owner of the tree
		}
	}
	if c.Endpoint == "" {
		c.Endpoint = net.JoinHostPort(c.NodeIP, strconv.Itoa(c.Port))
	}
	return errors.Join(errs...)
}

var clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)

// Validate reports everything that is wrong at once. Call it on a completed Config.
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

// fit is how long a range's prefix may be, and a range that is right.
type fit struct {
	shortest, longest int
	example           string
}

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

// six says whether this is a cluster of IPv6 addresses: the machine's says it.
func (c *Config) six() bool {
	ip, err := netip.ParseAddr(c.NodeIP)
	return err == nil && ip.Is6()
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// at is where a path of the machine is for this process.
func (c *Config) at(path ...string) string {
	return filepath.Join(append([]string{"/", c.Root}, path...)...)
}

// server is the address of the cluster's apiserver.
func (c *Config) server() string { return "https://" + c.Endpoint }

// localServer is that of this machine's own apiserver, if it has one.
func (c *Config) localServer() string {
	return "https://" + net.JoinHostPort(c.NodeIP, strconv.Itoa(c.Port))
}

// nth is the n-th address of the Services' range: 1 is the API's, 10 the name server's.
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

// runtimeSocket is the CRI endpoint in the form the kubelet wants.
func (c *Config) runtimeSocket() string {
	if c.Runtime == "" {
		return "unix:///run/containerd/containerd.sock"
	}
	return c.Runtime
}

// remember keeps the settings for the commands that come later.
func (m *machine) remember() error {
	data, err := yaml.Marshal(m.Config)
	if err != nil {
		return fmt.Errorf("encode %s: %w", machineFile, err)
	}
	_, err = writeFile(m.at(machineFile), data, 0o600)
	return err
}

// recall is the machine as init or join have made it.
func recall(cfg Config, host Host) (*machine, error) {
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
