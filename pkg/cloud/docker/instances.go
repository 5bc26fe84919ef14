package docker

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"podium/api/config/v1alpha1"
	"podium/pkg/cloud"
)

// instances are the node containers of a cluster.
type instances struct {
	engine  *engine
	cluster string
}

// instanceType is the instance type of all containers.
const instanceType = "container"

func (i *instances) id(node string) string { return Name + "://" + i.cluster + "/" + node }

// find returns a node's container, or cloud.ErrNotFound.
func (i *instances) find(ctx context.Context, n *corev1.Node) (*container, error) {
	name := n.Name
	if id := n.Spec.ProviderID; id != "" {
		own, ok := strings.CutPrefix(id, i.id(""))
		if !ok || own == "" {
			return nil, fmt.Errorf("provider ID %s is not one of cluster %s: want %s", id, i.cluster, i.id(n.Name))
		}
		name = own
	}
	all, err := i.engine.nodes(ctx, i.cluster)
	if err != nil {
		return nil, err
	}
	for k := range all {
		if all[k].name() == name {
			return &all[k], nil
		}
	}
	return nil, fmt.Errorf("container %s: %w", name, cloud.ErrNotFound)
}

// Metadata implements cloud.Instances.
func (i *instances) Metadata(ctx context.Context, n *corev1.Node) (cloud.Metadata, error) {
	c, err := i.find(ctx, n)
	if err != nil {
		return cloud.Metadata{}, err
	}
	md := cloud.Metadata{ProviderID: i.id(c.name()), Type: instanceType, Zone: c.Labels[v1alpha1.LabelZone]}
	for _, a := range c.addresses(i.cluster) {
		md.Addresses = append(md.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	if len(md.Addresses) > 0 { // without addresses it is on no network: keep those it had
		md.Addresses = append(md.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: c.name()})
	}
	return md, nil
}

// Shutdown implements cloud.Instances: it reports whether the node's container is stopped.
func (i *instances) Shutdown(ctx context.Context, n *corev1.Node) (bool, error) {
	c, err := i.find(ctx, n)
	if err != nil {
		return false, err
	}
	return !c.runs(), nil
}
