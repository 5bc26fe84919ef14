package cloud

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client"
)

// ErrNotFound says that there is no such machine: not that it cannot be asked
// about, nor that it is off. A Node whose machine is not found is deleted, so a
// provider that is not sure returns another error.
var ErrNotFound = errors.New("no such instance")

// Provider is what provides the machines. All its parts are safe for
// concurrent use, and their calls end when their context does.
type Provider struct {
	Name          string // as --cloud-provider has it, and the scheme of provider IDs: "docker"
	Instances     Instances
	Routes        Routes
	LoadBalancers LoadBalancers
}

// Setup is what a provider is made of. Making one does no I/O: it is done once
// to check the configuration, and again whenever this replica begins to lead.
type Setup struct {
	Config      []byte         // what --cloud-config holds; empty: nothing was given
	ClusterName string         // of several clusters that one provider serves
	Client      *client.Client // speaks as the daemon; nil where only Config is to be checked
	// Services are all Services, as the daemon's informer has them: complete
	// whenever a controller calls the provider, empty before.
	Services interface{ List() []*corev1.Service }
	Log      *slog.Logger
}

// Instances are the machines that nodes run on.
type Instances interface {
	// Metadata is what is known of a node's machine; ErrNotFound when there is
	// none. The machine is found by the node's provider ID, and by the node's
	// name as long as it has none.
	Metadata(ctx context.Context, n *corev1.Node) (Metadata, error)
	// Shutdown says whether the machine is there and off; ErrNotFound as above.
	Shutdown(ctx context.Context, n *corev1.Node) (bool, error)
}

// Metadata is what is known of a machine. What is empty is not known, and
// nothing is written of it, but for the ID.
type Metadata struct {
	ProviderID string // PROVIDER://..., never changed once a node has it
	Addresses  []corev1.NodeAddress
	Type       string // of machine; a label's value
	Zone       string // its failure domain; a label's value
	Region     string // the zone's; a label's value
}

// Routes lead to the pods of nodes, where the pod network itself lays none.
type Routes interface {
	// List is every route of the cluster that the provider has, one for each
	// destination, also those to nodes that are gone. A machine that is off does
	// not keep it from that.
	List(ctx context.Context) ([]Route, error)
	// Create makes a route, or what is lacking of it, in place of others to the
	// same destination.
	Create(ctx context.Context, r Route) error
	// Delete removes a route; none is fine.
	Delete(ctx context.Context, r Route) error
}

// Route leads to the pods of a node.
type Route struct {
	Node        string       // "" in a list: none that is known
	Destination netip.Prefix // the pods' addresses
	// Incomplete says in a list that some machine lacks the route: Create and
	// Delete take it as it is.
	Incomplete bool
}

// LoadBalancers give Services of type LoadBalancer an address to be reached at
// from outside. All calls may be made again at any time.
type LoadBalancers interface {
	// Ensure makes the load balancer what the Service asks for, before these
	// nodes, and says where it is. The status is what becomes the Service's.
	Ensure(ctx context.Context, s *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error)
	// Delete removes the load balancer; none is fine.
	Delete(ctx context.Context, s *corev1.Service) error
}
