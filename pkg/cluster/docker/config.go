package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"podium/api/config/v1alpha1"
)

// DefaultImage is the node image that `make node-image` builds.
const DefaultImage = "localhost/podium/node:v1"

// Options describe the cluster to create, and how to report progress.
type Options struct {
	Cluster    *v1alpha1.Cluster // with defaults applied, and valid
	Image      string            // image of nodes that do not name one; default DefaultImage
	Kubeconfig string            // file to add the cluster's context to; default: as kubectl chooses
	Wait       time.Duration     // timeout for each node, and then for all nodes to be Ready and cluster DNS to be available; 0: do not wait for the latter
	Retain     bool              // keep the containers, volumes and network if the creation fails
	Verbose    bool              // print each docker command with its duration
	Out        io.Writer         // receives progress; nil: discard it
	Engine     Engine

	remote string // host of the engine if it is remote, else ""
	socket string // path of the engine's socket on its machine, to mount into control planes; "": do not mount it
}

// node is a node to create.
type node struct {
	v1alpha1.Node
	name    string
	address string // at which other nodes reach it
	ipv4    string // every container has one, also in IPv6 clusters
	image   string
	apiPort int // port of the host that forwards to a control plane's apiserver
}

func (n *node) controlPlane() bool { return n.Role == v1alpha1.ControlPlane }

// nodes returns the cluster's nodes, control planes first, with names and ports
// but without addresses: createNetwork assigns those.
func (o *Options) nodes() ([]*node, error) {
	var planes, workers []*node
	for _, spec := range o.Cluster.Nodes {
		n := &node{Node: spec, image: spec.Image}
		if n.image == "" {
			n.image = o.Image
		}
		for i := range n.ExtraMounts {
			full, err := filepath.Abs(n.ExtraMounts[i].HostPath)
			if err != nil {
				return nil, err
			}
			if _, err := os.Stat(full); err != nil {
				return nil, fmt.Errorf("a folder for nodes to see: %w", err)
			}
			n.ExtraMounts[i].HostPath = full
		}
		if n.controlPlane() {
			planes = append(planes, n)
			n.name = nodeName(o.Cluster.Metadata.Name, n.Role, len(planes))
		} else {
			workers = append(workers, n)
			n.name = nodeName(o.Cluster.Metadata.Name, n.Role, len(workers))
		}
	}
	return append(planes, workers...), o.choosePorts(planes)
}

// choosePorts assigns a free port of the host to each control plane. The engine
// could choose one itself, but would change it on a restart. The listeners stay
// open until all ports are chosen, so that they differ.
func (o *Options) choosePorts(planes []*node) error {
	address := o.Cluster.Networking.APIServerAddress
	for i, n := range planes {
		if i == 0 && o.Cluster.Networking.APIServerPort != 0 {
			n.apiPort = int(o.Cluster.Networking.APIServerPort)
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
		if err != nil {
			return fmt.Errorf("choose a port for the apiserver (networking.apiServerAddress must be this machine's): %w", err)
		}
		defer l.Close()
		n.apiPort = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// check does the preflight checks and reports all failures at once. It also
// detects where the engine runs.
func (o *Options) check(ctx context.Context, nodes []*node) error {
	if _, err := o.Engine.output(ctx, "version", "--format", "{{.Server.Version}}"); err != nil {
		return err
	}
	errs := []error{o.findEngine(ctx)}
	found, err := o.Engine.nodes(ctx, o.Cluster.Metadata.Name)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		errs = append(errs, fmt.Errorf("there is a cluster %s already\n    → choose another name, or remove it: podium cluster delete %[1]s", o.Cluster.Metadata.Name))
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		if seen[n.image] {
			continue
		}
		seen[n.image] = true
		if _, err := o.Engine.output(ctx, "image", "inspect", "--format", "{{.Id}}", n.image); err != nil {
			errs = append(errs, fmt.Errorf("the engine has no node image %s\n    → build it (make node-image), or name another with --image", n.image))
		}
	}
	return errors.Join(errs...)
}
