package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// ErrNotFound means that the instance does not exist. A provider must not return it if the
// instance is only off or cannot be queried: the Node of an instance that is not found is
// deleted.
var ErrNotFound = errors.New("no such instance")

// Provider is a cloud provider. Its parts must be safe for concurrent use, and their calls
// must return when their context ends.
type Provider struct {
	Name          string // in --cloud-provider and as the scheme of provider IDs: "docker"
	Instances     Instances
	Routes        Routes
	LoadBalancers LoadBalancers
}

// Setup is the input of a provider's constructor, which must not do I/O: it is called once to
// check the configuration, and again whenever this replica becomes the leader.
type Setup struct {
	Config      []byte         // content of --cloud-config; empty if it is not set
	ClusterName string         // distinguishes clusters that share a provider
	Client      *client.Client // uses the daemon's credentials; nil if only Config is to be checked
	// Services lists all Services from the daemon's informer: complete whenever a
	// controller calls the provider, empty before.
	Services interface{ List() []*corev1.Service }
	Log      *slog.Logger
}

// Instances are the machines that nodes run on.
type Instances interface {
	// Metadata returns the metadata of a node's machine, or ErrNotFound. The machine
	// is found by the node's provider ID or, if it has none, by the node's name.
	Metadata(ctx context.Context, n *corev1.Node) (Metadata, error)
	// Shutdown reports whether the machine exists and is off; ErrNotFound as above.
	Shutdown(ctx context.Context, n *corev1.Node) (bool, error)
}

// Metadata describes a machine. Empty fields are unknown and are not written, except for
// ProviderID, which is required.
type Metadata struct {
	ProviderID string // PROVIDER://..., never changed once a node has it
	Addresses  []corev1.NodeAddress
	Type       string // instance type; a label value
	Zone       string // failure domain; a label value
	Region     string // region of the zone; a label value
}

// Routes manages routes to the nodes' pods, for pod networks that have none themselves.
type Routes interface {
	// List returns all of the cluster's routes at the provider, one for each
	// destination, including those to nodes that no longer exist. Machines that are
	// off must not make it fail.
	List(ctx context.Context) ([]Route, error)
	// Create creates a route, or completes it, and replaces other routes to the same
	// destination.
	Create(ctx context.Context, r Route) error
	// Delete removes a route. It returns nil if there is none.
	Delete(ctx context.Context, r Route) error
}

// Route is a route to the pods of a node.
type Route struct {
	Node        string       // "" in a list if no node is known
	Destination netip.Prefix // the pods' addresses
	// Incomplete is set by List if a machine lacks the route. Create and Delete ignore
	// it.
	Incomplete bool
}

// LoadBalancers gives Services of type LoadBalancer external addresses. All calls must be
// idempotent.
type LoadBalancers interface {
	// Ensure creates or updates the load balancer of the Service in front of the nodes
	// and returns the status to write to the Service.
	Ensure(ctx context.Context, s *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error)
	// Delete removes the load balancer. It returns nil if there is none.
	Delete(ctx context.Context, s *corev1.Service) error
}
