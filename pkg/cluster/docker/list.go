package docker

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"podium/api/config/v1alpha1"
)

// NodeState is a node container as the engine reports it.
type NodeState struct {
	Name, Cluster string
	Role          v1alpha1.Role
	State         string // running, exited, paused, created, ...
	Image         string
}

// Found is a cluster that exists in the engine. Nodes is empty if only its
// network is left.
type Found struct {
	Name  string
	Nodes []NodeState
}

// Running returns the number of running nodes.
func (f Found) Running() (n int) {
	for _, node := range f.Nodes {
		if node.State == "running" {
			n++
		}
	}
	return n
}

// nodes returns the node containers of a cluster, or of all clusters for "",
// sorted by cluster, control planes first.
func (e *Engine) nodes(ctx context.Context, cluster string) ([]NodeState, error) {
	filter := "label=" + v1alpha1.LabelCluster
	if cluster != "" {
		filter = "label=" + labelled(cluster)
	}
	format := fmt.Sprintf(`{{.Names}}|{{.Label %q}}|{{.Label %q}}|{{.State}}|{{.Image}}`, v1alpha1.LabelCluster, v1alpha1.LabelRole)
	lines, err := e.lines(ctx, "ps", "--all", "--no-trunc", "--filter", filter, "--format", format)
	if err != nil {
		return nil, err
	}
	var out []NodeState
	for _, line := range lines {
		f := strings.Split(line, "|")
		if len(f) != 5 {
			return nil, fmt.Errorf("docker ps printed %q: want 5 fields", line)
		}
		out = append(out, NodeState{Name: f[0], Cluster: f[1], Role: v1alpha1.Role(f[2]), State: f[3], Image: f[4]})
	}
	slices.SortFunc(out, func(a, b NodeState) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Role, b.Role), cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}

// node returns the node with that name. The error for an unknown name lists the
// nodes.
func (e *Engine) node(ctx context.Context, name string) (NodeState, error) {
	all, err := e.nodes(ctx, "")
	if err != nil {
		return NodeState{}, err
	}
	names := make([]string, len(all))
	for i, n := range all {
		if n.Name == name {
			return n, nil
		}
		names[i] = n.Name
	}
	if len(names) == 0 {
		return NodeState{}, fmt.Errorf("there is no node %s: this engine has no clusters", name)
	}
	return NodeState{}, fmt.Errorf("there is no node %s; there are %s", name, strings.Join(names, ", "))
}

// List returns all clusters of the engine, sorted by name, including the
// remains of an interrupted creation.
func (e *Engine) List(ctx context.Context) ([]Found, error) {
	nodes, err := e.nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	byName := map[string]*Found{}
	for _, n := range nodes {
		if byName[n.Cluster] == nil {
			byName[n.Cluster] = &Found{Name: n.Cluster}
		}
		byName[n.Cluster].Nodes = append(byName[n.Cluster].Nodes, n)
	}
	networks, err := e.lines(ctx, "network", "ls", "--filter", "label="+v1alpha1.LabelCluster, "--format", fmt.Sprintf("{{.Label %q}}", v1alpha1.LabelCluster))
	if err != nil {
		return nil, err
	}
	for _, name := range networks {
		if byName[name] == nil {
			byName[name] = &Found{Name: name}
		}
	}
	out := make([]Found, 0, len(byName))
	for _, f := range byName {
		out = append(out, *f)
	}
	slices.SortFunc(out, func(a, b Found) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// existing is nodes, but returns an error if the cluster does not exist.
func (e *Engine) existing(ctx context.Context, cluster string) ([]NodeState, error) {
	nodes, err := e.nodes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if len(nodes) > 0 {
		return nodes, nil
	}
	found, err := e.List(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range found {
		names = append(names, f.Name)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("there is no cluster %s: this engine has none", cluster)
	}
	return nil, fmt.Errorf("there is no cluster %s; there are: %s", cluster, strings.Join(names, ", "))
}
