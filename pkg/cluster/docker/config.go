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

// DefaultImage is what `make node-image` builds.
const DefaultImage = "localhost/podium/node:v1"

// Options say what to make, and how to tell of it.
type Options struct {
	Cluster    *v1alpha1.Cluster // defaulted and valid
	Image      string            // of nodes that name none; default DefaultImage
	Kubeconfig string            // file that gets the cluster's context; default: as kubectl chooses
	Wait       time.Duration     // for each node, and then for all to be Ready and names to be served; 0: only for what the next step needs
	Retain     bool              // keep what was made when something fails
	Verbose    bool              // show where the time goes
	Out        io.Writer         // progress; nil: none
	Engine     Engine

	remote string // the engine's machine, if it is not this one
	socket string // the engine's, on its machine, for control planes to see; "": none
}

// node is a machine to be.
type node struct {
	v1alpha1.Node
	name    string
	address string // by which other nodes find it
	ipv4    string // the engine gives each container one
	image   string
	apiPort int // of the host, for a control plane
}

func (n *node) controlPlane() bool { return n.Role == v1alpha1.ControlPlane }

// nodes lays the cluster's machines out, the first control plane first. Their
// addresses follow when the network is known.
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

// choosePorts gives each control plane a port of the host: the same after a
// restart, so it is not left to the engine. Ports of an earlier plane are held
// while the next one's is chosen.
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

// check looks at what must be right before anything is made, all of it.
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
