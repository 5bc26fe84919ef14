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

type bridgePlugin struct {
	Type        string    `json:"type"`
	Bridge      string    `json:"bridge"`
	IsGateway   bool      `json:"isGateway"`
	IPMasq      bool      `json:"ipMasq"`
	HairpinMode bool      `json:"hairpinMode"`
	MTU         int       `json:"mtu,omitempty"`
	IPAM        hostLocal `json:"ipam"`
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

// conflist is the configuration for this node's pods. Masquerading is not the
// plugins' work: one rule of ours serves all pods.
func (c *Config) conflist(podCIDR netip.Prefix, mtu int) ([]byte, error) {
	everywhere := "0.0.0.0/0"
	if podCIDR.Addr().Is6() {
		everywhere = "::/0"
	}
	data, err := json.MarshalIndent(conflist{
		CNIVersion: "0.4.0",
		Name:       c.Bridge, // host-local keeps its addresses under this name
		Plugins: []any{
			bridgePlugin{
				Type: "bridge", Bridge: c.Bridge, IsGateway: true, HairpinMode: true, MTU: mtu,
				IPAM: hostLocal{Type: "host-local", DataDir: c.DataDir, Ranges: [][]block{{{podCIDR.Masked().String()}}}, Routes: []route{{everywhere}}},
			},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	return append(data, '\n'), err
}
