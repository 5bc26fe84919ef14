package podnetwork

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/proxy/rules"
)

// machine is a Host in memory.
type machine struct {
	files    map[string]string
	sysctls  map[string]string
	routes   []Route
	bridging bool // has br_netfilter
	far      netip.Addr
	log      []string
}

func (m *machine) WriteFile(path string, data []byte) (bool, error) {
	if m.files[path] == string(data) {
		return false, nil
	}
	m.files[path] = string(data)
	m.log = append(m.log, "write "+path)
	return true, nil
}

func (m *machine) Sysctl(path, value string) error {
	if strings.HasPrefix(path, "net/bridge") && !m.bridging {
		return errors.New("no such file")
	}
	m.sysctls[path] = value
	return nil
}

func (m *machine) Routes() ([]Route, error) { return m.routes, nil }

func (m *machine) AddRoute(r Route) error {
	m.log = append(m.log, "add "+r.Pods.String()+" via "+r.Via.String())
	m.routes = slices.DeleteFunc(m.routes, func(o Route) bool { return o.Pods == r.Pods })
	m.routes = append(m.routes, r)
	return nil
}

func (m *machine) RemoveRoute(r Route) error {
	m.log = append(m.log, "remove "+r.Pods.String()+" via "+r.Via.String())
	m.routes = slices.DeleteFunc(m.routes, func(o Route) bool { return o == r })
	return nil
}

func (m *machine) OnLink(a netip.Addr) (Link, error) {
	return Link{Direct: a != m.far, Name: "eth0", MTU: 1450}, nil
}

func node(name, cidr, ip string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.NodeSpec{PodCIDR: cidr},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}},
	}
}

func TestRoutesFollowTheNodes(t *testing.T) {
	all := []*corev1.Node{node("a", "10.244.0.0/24", "192.0.2.1"), node("b", "10.244.1.0/24", "192.0.2.2"),
		node("c", "10.244.2.0/24", "192.0.2.3"), node("no-cidr", "", "192.0.2.4"), node("six", "fd00::/64", "192.0.2.5")}
	r := func(cidr, via string) Route { return Route{netip.MustParsePrefix(cidr), netip.MustParseAddr(via)} }
	b, c := r("10.244.1.0/24", "192.0.2.2"), r("10.244.2.0/24", "192.0.2.3")
	for name, tc := range map[string]struct {
		reason      string
		have        []Route
		add, remove []Route
	}{
		"Fresh":      {"a route to each other node that has pods", nil, []Route{b, c}, nil},
		"Settled":    {"nothing to do twice", []Route{c, b}, nil, nil},
		"NodeGone":   {"a route of an earlier life leads nowhere", []Route{b, c, r("10.244.9.0/24", "192.0.2.9")}, nil, []Route{r("10.244.9.0/24", "192.0.2.9")}},
		"NewAddress": {"the new route replaces the old one: no moment without", []Route{r("10.244.1.0/24", "192.0.2.7"), c}, []Route{b}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			add, remove := diff(tc.have, wanted(all, "a"))
			if d := cmp.Diff([][]Route{tc.add, tc.remove}, [][]Route{add, remove}, cmp.Comparer(func(a, b Route) bool { return a == b })); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
		})
	}
}

func TestLocal(t *testing.T) {
	const conf = `{
  "cniVersion": "0.4.0",
  "name": "podium0",
  "plugins": [
    {
      "type": "bridge",
      "bridge": "podium0",
      "isGateway": true,
      "ipMasq": false,
      "hairpinMode": true,
      "mtu": 1450,
      "ipam": {
        "type": "host-local",
        "dataDir": "",
        "ranges": [
          [
            {
              "subnet": "10.244.1.0/24"
            }
          ]
        ],
        "routes": [
          {
            "dst": "0.0.0.0/0"
          }
        ]
      }
    },
    {
      "type": "portmap",
      "capabilities": {
        "portMappings": true
      }
    }
  ]
}
`
	self := node("b", "10.244.1.0/24", "192.0.2.2")
	for name, tc := range map[string]struct {
		reason   string
		bridging bool
		egress   []string
	}{
		"Ordinary": {"one rule hides all pods, but only towards the world", true, []string{
			"-s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN",
			"-s 10.244.1.0/24 -d 224.0.0.0/4 -j RETURN",
			"-s 10.244.1.0/24 -j MASQUERADE",
		}},
		"NoBridgeFilter": {"answers inside the bridge would not be translated back", false, []string{
			"-s 10.244.1.0/24 -d 10.244.1.0/24 -m conntrack --ctstate DNAT -j MASQUERADE",
			"-s 10.244.1.0/24 -d 10.244.0.0/16 -j RETURN",
			"-s 10.244.1.0/24 -d 224.0.0.0/4 -j RETURN",
			"-s 10.244.1.0/24 -j MASQUERADE",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &machine{files: map[string]string{}, sysctls: map[string]string{}, bridging: tc.bridging}
			set := rules.NewSet()
			n := &Network{cfg: Config{
				Log: slog.New(slog.DiscardHandler), Host: m, ConfDir: "/etc/cni/net.d", Bridge: "podium0",
				ClusterCIDR: netip.MustParsePrefix("10.244.0.0/16"),
				SetRules:    func(f rules.Fragment) { set.Put("pods", f) },
			}}
			for range 2 {
				if err := n.local(podCIDR(self), self); err != nil {
					t.Fatal(err)
				}
			}
			if d := cmp.Diff([]string{"write /etc/cni/net.d/10-podium.conflist"}, m.log); d != "" {
				t.Errorf("written once (-want +got):\n%s", d)
			}
			if d := cmp.Diff(conf, m.files["/etc/cni/net.d/10-podium.conflist"]); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			got, _ := set.Rules(egress)
			if d := cmp.Diff(tc.egress, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, d)
			}
			if m.sysctls["net/ipv4/ip_forward"] != "1" {
				t.Error("the node does not forward")
			}
		})
	}
}
