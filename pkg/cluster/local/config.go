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

// Config says what the cluster is like and where it lives.
type Config struct {
	Name   string        // of the cluster and of its kubeconfig context; default "podium"
	Dir    string        // everything of the cluster is in here; default "_run"
	Bin    string        // folder of the daemons' binaries; default: that of the running program
	Images []string      // image archives to load; those named pause.tar and cluster-dns.tar are needed
	Node   string        // name of the node; default the host's name in lower case
	NodeIP string        // default: the address of the default route; an IPv6 address makes an IPv6 cluster
	Port   int           // of the apiserver; default 6443
	Wait   time.Duration // for the node to be Ready; default 60 s
	Out    io.Writer     // progress; nil: none

	PodSecurity string // Pod Security level of namespaces whose labels name none; default privileged
}

// ranges are the cluster's own addresses.
type ranges struct {
	pods, services string
	api            string // the first of services
	dns            string
}

// ranges are of the family that the node's address has.
func (c *Config) ranges() ranges {
	if ip, err := netip.ParseAddr(c.NodeIP); err == nil && ip.Is6() {
		return ranges{"fd00:10:244::/56", "fd00:10:96::/112", "fd00:10:96::1", "fd00:10:96::a"}
	}
	return ranges{"10.244.0.0/16", "10.96.0.0/16", "10.96.0.1", "10.96.0.10"}
}

const (
	bridge       = "podium0"
	sandboxImage = "localhost/podium/pause:v1"
)

// complete fills in the defaults and makes paths absolute.
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
	return errors.Join(errs...)
}

// defaultAddress is the address this host would speak to the world from, by
// IPv4 where it can. It sends nothing.
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

// id tells clusters in different folders apart: in cgroups, and under /run.
func (c *Config) id() string {
	sum := sha256.Sum256([]byte(c.Dir))
	return "podium-" + hex.EncodeToString(sum[:4])
}

// runDir holds containerd's state and socket: on a tmpfs, and with a short
// name, since a socket's path has at most 107 bytes.
func (c *Config) runDir() string { return filepath.Join("/run", c.id()) }

func (c *Config) containerdSocket() string { return filepath.Join(c.runDir(), "containerd.sock") }

func (c *Config) server() string { return fmt.Sprintf("https://127.0.0.1:%d", c.Port) }

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Config) Kubeconfig() string { return c.path("kubeconfig") }
