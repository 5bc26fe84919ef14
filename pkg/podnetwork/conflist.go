package podnetwork

import (
	"encoding/json"
	"net/netip"
	"path/filepath"
)

// The CNI configuration's file. Its number puts it before what other tools leave.
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

// conflist is the configuration for this node's pods. The ptp plugin gives each
// pod a link of its own to the node and a route to its address. Pods share no
// link, so no neighbour table keeps the hardware address of a deleted pod for
// the next pod with the same address, no pod can answer ARP or NDP for another,
// and every packet of a pod passes the node's routes and rules. Masquerading is
// not the plugins' work: one rule of ours serves all pods.
func (c *Config) conflist(podCIDR netip.Prefix, mtu int) ([]byte, error) {
	everywhere := "0.0.0.0/0"
	if podCIDR.Addr().Is6() {
		everywhere = "::/0"
	}
	data, err := json.MarshalIndent(conflist{
		CNIVersion: "0.4.0",
		Name:       c.Name, // host-local keeps its addresses under this name
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
