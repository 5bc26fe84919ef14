package registry

import (
	"context"
	"net/netip"
	"time"

	"podium/pkg/apiserver/authn"
	"podium/pkg/storage"
)

// Config is what the kinds need from the server that serves them.
type Config struct {
	// Store keeps who owns which Service address and node port.
	Store       storage.Store
	ServiceCIDR netip.Prefix // where cluster IPs come from
	NodePorts   PortRange    // where node ports come from

	Tokens         TokenSigner // signs what serviceaccounts/token hands out
	TokenAudiences []string    // of a token that asks for none, and of a review that asks for none

	MaxTokenLife time.Duration // who asks for more gets this; 0: no limit

	Identify authn.TokenAuthenticator // answers TokenReviews; nil: knows nobody

	Access Access // answers reviews, and limits who writes roles; nil: only system:masters may

	Now func() time.Time

	Streams Streams

	Disabled PluginSet // rules of admission that are off

	DenyPrivileged bool // refuse privileged containers, in templates too
}

// PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last int32 }

// Streams are the subresources that are connections to a node or a pod. One
// that is nil is not served.
type Streams struct {
	PodLog, PodExec, PodAttach, PodPortForward, PodProxy Connect
	NodeProxy, ServiceProxy                              Connect
}

// TokenSigner makes service account tokens.
type TokenSigner interface {
	SignToken(ctx context.Context, c authn.Claims) (string, error)
}
