package docker

import (
	"fmt"

	"podium/api/config/v1alpha1"
	"podium/pkg/cloud"
)

// Name is the name of the provider.
const Name = "docker"

// New returns the provider of a cluster of node containers. --cloud-config is a
// v1alpha1.DockerCloud, or empty.
func New(s cloud.Setup) (*cloud.Provider, error) {
	c, err := v1alpha1.DecodeDockerCloud(s.Config)
	if err != nil {
		return nil, fmt.Errorf("--cloud-config: %w", err)
	}
	e := newEngine(c.Socket)
	return &cloud.Provider{
		Name:          Name,
		Instances:     &instances{engine: e, cluster: s.ClusterName},
		Routes:        &routes{engine: e, cluster: s.ClusterName},
		LoadBalancers: balancers(e, s),
	}, nil
}
