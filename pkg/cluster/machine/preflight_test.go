package machine

import (
	"os"
	"strings"
	"testing"
	"time"
)

// TestPreflight checks that every problem of a machine is reported with advice
// before anything is written.
func TestPreflight(t *testing.T) {
	for name, row := range map[string]struct {
		reason string
		spoil  func(t *testing.T, h *fakeHost, c *Config)
		want   []string // parts of the error; empty: the checks pass
	}{
		"AllIsWell": {reason: "a blank Debian with the package", spoil: func(*testing.T, *fakeHost, *Config) {}},
		"NotRoot": {
			reason: "units and certificates are root's",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.notRoot = true },
			want:   []string{"[root]", "sudo"},
		},
		"PortInUse": {
			reason: "another program holds a port of ours",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.taken = []int{6443, 10250} },
			want:   []string{"port 10250 (kubelet)", "port 6443 (kube-apiserver)", "ss -ltnp", "nothing was changed"},
		},
		"OurOwnPort": {
			reason: "the second run finds the daemons of the first",
			spoil: func(_ *testing.T, h *fakeHost, _ *Config) {
				h.taken, h.active = []int{6443, 2379}, []string{"kube-apiserver.service", "etcd.service"}
			},
		},
		"MissingPackage": {
			reason: "a program of another package is not there",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.missing = []string{"runc", "iptables"} },
			want:   []string{"[programs] not installed: iptables, runc", "apt-get install"},
		},
		"MissingPlugins": {
			reason: "pods have no network without them",
			spoil: func(t *testing.T, _ *fakeHost, c *Config) {
				if err := os.Remove(c.at("/usr/lib/cni/ptp")); err != nil {
					t.Fatal(err)
				}
			},
			want: []string{"CNI plugins", "containernetworking-plugins"},
		},
		"MissingUnit": {
			reason: "podium alone was copied to the machine",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.missing = []string{"kubelet.service", "etcd"} },
			want:   []string{"kubelet.service", "etcd", "install Podium's package"},
		},
		"NoForwarding": {
			reason: "pods reach nobody",
			spoil:  func(t *testing.T, _ *fakeHost, c *Config) { write(t, c.at("/proc/sys/net/ipv4/ip_forward"), "0\n") },
			want:   []string{"[forwarding]", "sysctl -w net.ipv4.ip_forward=1"},
		},
		"NoForwardingOfIPv6": {
			reason: "the cluster's addresses say what must be forwarded, and by which programs",
			spoil: func(t *testing.T, h *fakeHost, c *Config) {
				c.NodeIP = "fd00::5"
				write(t, c.at("/proc/sys/net/ipv6/conf/all/forwarding"), "0\n")
				h.missing = []string{"ip6tables"}
			},
			want: []string{"[forwarding] the kernel does not forward IPv6 packets", "net.ipv6.conf.all.forwarding=1", "not installed: ip6tables"},
		},
		"NoOverlay": {
			reason: "images cannot be mounted",
			spoil:  func(t *testing.T, _ *fakeHost, c *Config) { write(t, c.at("/proc/filesystems"), "ext4\n") },
			want:   []string{"[overlay]", "modprobe overlay"},
		},
		"NoMemoryController": {
			reason: "limits would not hold",
			spoil: func(t *testing.T, _ *fakeHost, c *Config) {
				write(t, c.at("/sys/fs/cgroup/cgroup.controllers"), "cpu pids\n")
			},
			want: []string{"[cgroups]", "lacks the cgroup controllers memory"},
		},
		"FullDisk": {
			reason: "etcd needs room",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.free = 100 << 20 },
			want:   []string{"[disk] only 100 MiB are free", "free space"},
		},
		"ClockNeverSet": {
			reason: "certificates would have ended long ago",
			spoil: func(_ *testing.T, _ *fakeHost, c *Config) {
				c.Now = func() time.Time { return time.Unix(0, 0) }
			},
			want: []string{"[clock]", "1970-01-01", "timesyncd"},
		},
		"SwapOnlyWarns": {
			reason: "it works, only worse",
			spoil: func(t *testing.T, _ *fakeHost, c *Config) {
				write(t, c.at("/proc/swaps"), "Filename Type Size Used Priority\n/dev/vda2 partition 1 0 -2\n")
			},
		},
		"Ignored": {
			reason: "the operator knows better",
			spoil: func(_ *testing.T, h *fakeHost, c *Config) {
				h.free, c.IgnorePreflight = 0, []string{"disk"}
			},
		},
		"SeveralAtOnce": {
			reason: "one run tells all",
			spoil:  func(_ *testing.T, h *fakeHost, _ *Config) { h.notRoot, h.free = true, 0 },
			want:   []string{"[root]", "[disk]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, cfg := newHost(t)
			row.spoil(t, host, &cfg)
			m, err := newMachine(cfg, host)
			if err != nil {
				t.Fatal(err)
			}
			err = m.preflight(t.Context(), controlPlaneChecks(cfg.Port))
			if (err != nil) != (len(row.want) > 0) {
				t.Fatalf("%s: got %v, want %v", row.reason, err, row.want)
			}
			for _, part := range row.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q does not say %q", row.reason, err, part)
				}
			}
			if _, err := os.Stat(cfg.at(configDir)); err == nil {
				t.Error("the checks wrote files")
			}
		})
	}
}

func TestConfigValidationReportsAllErrors(t *testing.T) {
	host, cfg := newHost(t)
	cfg.Node, cfg.NodeIP = "Has Space", "127.0.0.1"
	cfg.PodCIDR, cfg.ServiceCIDR = "10.96.0.0/16", "10.96.1.0/16"
	cfg.Endpoint, cfg.DNSDomain, cfg.Port = "nowhere", "-bad-", 0
	cfg.ControlPlane, cfg.CgroupDriver, cfg.IgnorePreflight = "both", "none", []string{"weather"}
	_, err := newMachine(cfg, host)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, part := range []string{"--node-name", "--node-ip", "did you mean 10.96.0.0/16", "overlap", "--control-plane-endpoint",
		"--service-dns-domain", "--apiserver-bind-port", "--control-plane-placement", "--cgroup-driver", `no check "weather"`} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in:\n%v", part, err)
		}
	}
}

// The address family of the machine decides which ranges are valid.
func TestRangesAreOfTheMachinesFamily(t *testing.T) {
	for name, row := range map[string]struct{ ip, pods, services, want string }{
		"Six":        {"fd00::5", "fd00:10:244::/56", "fd00:10:96::/112", ""},
		"SixUnsaid":  {"fd00::5", "", "", ""},
		"Four":       {"10.0.0.5", "10.244.0.0/16", "10.96.0.0/16", ""},
		"FourPods":   {"fd00::5", "10.244.0.0/16", "fd00:10:96::/112", "--pod-network-cidr 10.244.0.0/16 is of another address family than this machine's address fd00::5 (--node-ip): use a range like fd00:10:244::/56"},
		"SixService": {"10.0.0.5", "10.244.0.0/16", "fd00:10:96::/112", "--service-cidr fd00:10:96::/112 is of another address family than this machine's address 10.0.0.5 (--node-ip): use a range like 10.96.0.0/16"},
		"TooMany":    {"fd00::5", "fd00::/32", "fd01::/112", "--pod-network-cidr fd00::/32: use a range from /48 to /64"},
		"Mapped":     {"::ffff:10.0.0.5", "10.244.0.0/16", "10.96.0.0/16", "is not an address that other machines could reach"},
		"Zone":       {"fe80::1%eth0", "fd00:10:244::/56", "fd00:10:96::/112", "is not an address that other machines could reach"},
	} {
		t.Run(name, func(t *testing.T) {
			host, cfg := newHost(t)
			cfg.NodeIP, cfg.PodCIDR, cfg.ServiceCIDR = row.ip, row.pods, row.services
			_, err := newMachine(cfg, host)
			if (err != nil) != (row.want != "") || err != nil && !strings.Contains(err.Error(), row.want) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}
