package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"podium/api/config/v1alpha1"
)

// container is a node's container, as the engine lists it.
type container struct {
	ID              string `json:"Id"`
	Names           []string
	State           string
	Labels          map[string]string
	NetworkSettings struct {
		Networks map[string]struct {
			IPAddress, GlobalIPv6Address string
			IPAMConfig                   struct{ IPv4Address, IPv6Address string } // the requested addresses
		}
	}
}

// name returns the name of the container and of its node.
func (c *container) name() string {
	for _, n := range c.Names {
		if n = strings.TrimPrefix(n, "/"); !strings.Contains(n, "/") { // others are those of links
			return n
		}
	}
	return ""
}

// runs reports whether the machine is on, possibly paused.
func (c *container) runs() bool {
	return slices.Contains([]string{"running", "paused", "restarting"}, c.State)
}

// addresses returns the container's addresses on the cluster's network. They are static, so a
// container has them while it is stopped, too.
func (c *container) addresses(cluster string) (out []string) {
	n := c.NetworkSettings.Networks[v1alpha1.NetworkName(cluster)]
	for _, a := range []string{cmp.Or(n.IPAddress, n.IPAMConfig.IPv4Address), cmp.Or(n.GlobalIPv6Address, n.IPAMConfig.IPv6Address)} {
		if a != "" {
			out = append(out, a)
		}
	}
	return out
}

// address returns the container's address of a family.
func (c *container) address(cluster string, four bool) (string, bool) {
	for _, text := range c.addresses(cluster) {
		if a, err := netip.ParseAddr(text); err == nil && a.Is4() == four {
			return text, true
		}
	}
	return "", false
}

// nodes returns the cluster's containers, including stopped ones.
func (e *engine) nodes(ctx context.Context, cluster string) ([]container, error) {
	filters, err := json.Marshal(map[string][]string{"label": {v1alpha1.LabelCluster + "=" + cluster, v1alpha1.LabelRole}})
	if err != nil {
		return nil, err
	}
	var out []container
	err = e.call(ctx, http.MethodGet, "/containers/json", url.Values{"all": {"1"}, "filters": {string(filters)}}, nil, &out)
	return out, err
}
