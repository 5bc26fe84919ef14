package local

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"podium/pkg/cluster/admissionconfig"
)

// Config describes the cluster and its directory. Create and Delete apply the
// defaults.
type Config struct {
	Name   string        // of the cluster and of its kubeconfig context; default "podium"
	Dir    string        // directory for all files of the cluster
	Bin    string        // directory of the daemons' binaries
	Images []string      // image archives to load; pause.tar, cluster-dns.tar and metrics-server.tar are required
	Node   string        // name of the node; default: the host name in lower case
	NodeIP string        // default: the address of the default route; an IPv6 address makes an IPv6 cluster
	Port   int           // of the apiserver; default 6443
	Wait   time.Duration // timeout of each wait; default 60 s
	Out    io.Writer     // receives progress; nil: discard it

	Extra []string // further flags of daemons, DAEMON.FLAG=VALUE: kube-apiserver.etcd-compaction-interval=1m

	PodSecurity string // Pod Security level of namespaces without a label for it; default privileged
}

// ranges are the IP ranges of the cluster and two addresses in them.
type ranges struct {
	pods, services string
	api            string // first address of services, the apiserver's
	dns            string
}

// ranges returns the ranges in the IP family of the node's address.
func (c *Config) ranges() ranges {
	if ip, err := netip.ParseAddr(c.NodeIP); err == nil && ip.Is6() {
		return ranges{"fd00:10:244::/56", "fd00:10:96::/112", "fd00:10:96::1", "fd00:10:96::a"}
	}
	return ranges{"10.244.0.0/16", "10.96.0.0/16", "10.96.0.1", "10.96.0.10"}
}

const (
	bridge = "podium0"
)

// complete applies the defaults, makes paths absolute and validates the result.
func (c *Config) complete() error {
	var errs []error
	abs := func(p *string, fallback string) {
		if *p == "" {
			*p = fallback
		}
		full, err := filepath.Abs(*p)
		if err != nil {
			errs = append(errs, err)
		}
		*p = full
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the running program: %w", err)
	}
	abs(&c.Dir, "_run")
	abs(&c.Bin, filepath.Dir(self))
	for i := range c.Images {
		abs(&c.Images[i], "")
	}
	if c.Name == "" {
		c.Name = "podium"
	}
	if c.Port == 0 {
		c.Port = 6443
	}
	if c.Wait == 0 {
		c.Wait = time.Minute
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Node == "" {
		host, err := os.Hostname()
		if err != nil {
			errs = append(errs, fmt.Errorf("read the host's name: %w", err))
		}
		c.Node = strings.ToLower(host)
	}
	if c.NodeIP == "" {
		if c.NodeIP, err = defaultAddress(); err != nil {
			errs = append(errs, err)
		}
	}
	if ip, err := netip.ParseAddr(c.NodeIP); err != nil || ip.Zone() != "" {
		errs = append(errs, fmt.Errorf("node IP %q is not an address; give one with --node-ip", c.NodeIP))
	}
	if err := admissionconfig.Check(c.PodSecurity); err != nil {
		errs = append(errs, fmt.Errorf("--pod-security: %w", err))
	}
	errs = append(errs, c.checkExtra()...)
	return errors.Join(errs...)
}

// defaultAddress returns the address of the default route, IPv4 if possible. It
// sends no packet.
func defaultAddress() (string, error) {
	conn, err := net.Dial("udp4", "192.0.2.1:9")
	if err != nil {
		conn, err = net.Dial("udp6", "[2001:db8::1]:9")
	}
	if err != nil {
		return "", fmt.Errorf("find this host's address (has it a default route? else give --node-ip): %w", err)
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

func (c *Config) path(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// id returns a name for cgroups and under /run that differs between clusters in
// different directories.
func (c *Config) id() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return "podium-" + hex.EncodeToString(sum[:4])
}

// runDir returns the directory of containerd's state and socket: on a tmpfs,
// and with a short name, since the path of a socket has at most 107 bytes.
func (c *Config) runDir() string { return filepath.Join("/run", c.id()) }

func (c *Config) containerdSocket() string { return filepath.Join(c.runDir(), "containerd.sock") }

func (c *Config) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Port) }

// Kubeconfig returns the path of the administrator's kubeconfig.
func (c *Config) Kubeconfig() string { return c.path("kubeconfig") }
