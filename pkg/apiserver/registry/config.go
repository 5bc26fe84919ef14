package registry

import (
	"context"
	"net/netip"
	"time"

	"podium/pkg/apiserver/authn"
	"podium/pkg/storage"
)

// Config configures the kinds. Store, ServiceCIDR, NodePorts, Tokens and Now are
// required.
type Config struct {
	// Store records which Service owns which cluster IP and node port.
	Store       storage.Store
	ServiceCIDR netip.Prefix // range of cluster IPs until there are ServiceCIDRs
	NodePorts   PortRange    // range of node ports

	Tokens         TokenSigner // signs the tokens of serviceaccounts/token
	TokenAudiences []string    // default audiences of tokens and of token reviews

	MaxTokenLife time.Duration // longer requested lifetimes are cut to this; 0: no limit

	Identify authn.TokenAuthenticator // authenticates tokens for TokenReviews; nil: no token is valid

	Access Access // authorizes reviews and changes of roles; nil: only system:masters may change roles

	Now func() time.Time

	Streams Streams

	Components []Component // what ComponentStatuses are about

	DenyPrivileged bool // reject privileged containers, including those in templates

	ranges *serviceRanges // set by Kinds
}

// A Component is a part of the control plane whose health can be asked.
type Component struct {
	Name string

	// Probe returns what the component says of its health. It must return when ctx ends.
	Probe func(ctx context.Context) (message string, err error)
}

// PortRange is the ports from First to Last, both inclusive.
type PortRange struct{ First, Last int32 }

// Streams are the subresources that connect to a node or a pod. A nil one is not
// served.
type Streams struct {
	PodLog, PodExec, PodAttach, PodPortForward, PodProxy Connect
	NodeProxy, ServiceProxy                              Connect
}

// TokenSigner signs service account tokens. It must be safe for concurrent use.
type TokenSigner interface {
	SignToken(ctx context.Context, c authn.Claims) (string, error)
}
