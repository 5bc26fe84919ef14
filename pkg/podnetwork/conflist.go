package podnetwork

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
)

// confFile is the name of the CNI configuration. Its number sorts it before those of
// other tools.
const confFile = "10-podium.conflist"

func (c *Config) confPath() string { return filepath.Join(c.ConfDir, confFile) }

type conflist struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

type ptpPlugin struct {
	Type   string    `json:"type"`
	IPMasq bool      `json:"ipMasq"`
	MTU    int       `json:"mtu,omitempty"`
	IPAM   hostLocal `json:"ipam"`
}

type hostLocal struct {
	Type    string    `json:"type"`
	DataDir string    `json:"dataDir"`
	Ranges  [][]block `json:"ranges"`
	Routes  []route   `json:"routes"`
}

type block struct {
	Subnet string `json:"subnet"`
}

type route struct {
	Dst string `json:"dst"`
}

type portmapPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
}

// conflist returns the CNI configuration of this node's pods. The ptp plugin gives
// each pod its own link to the node. Pods share no link, so no neighbour table keeps
// the hardware address of a deleted pod for the next pod with the same IP, no pod can
// answer ARP or NDP for another, and every packet of a pod passes the node's routes
// and rules. The plugins do not masquerade: podRules does that for all pods.
func (c *Config) conflist(podCIDR netip.Prefix, mtu int) ([]byte, error) {
	everywhere := "0.0.0.0/0"
	if podCIDR.Addr().Is6() {
		everywhere = "::/0"
	}
	data, err := json.MarshalIndent(conflist{
		CNIVersion: "0.4.0",
		Name:       c.Name, // host-local stores its allocations under this name
		Plugins: []any{
			ptpPlugin{
				Type: "ptp", MTU: mtu,
				IPAM: hostLocal{Type: "host-local", DataDir: c.DataDir, Ranges: [][]block{{{podCIDR.Masked().String()}}}, Routes: []route{{everywhere}}},
			},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}
