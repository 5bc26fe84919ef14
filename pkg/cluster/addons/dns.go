package addons

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"podium/deploy/manifests"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// DNS configures the cluster DNS.
type DNS struct {
	Address  netip.Addr // cluster IP of the Service; the kubelets' --cluster-dns
	Domain   string     // default cluster.local
	Replicas int32      // default 2
}

// ApplyDNS creates or updates the cluster DNS. It takes over the fields in its
// manifest and keeps all others. It does not wait for the pods.
func ApplyDNS(ctx context.Context, c *client.Client, d DNS) error {
	objects, err := d.objects(c.Scheme())
	if err != nil {
		return err
	}
	return apply(ctx, c, objects)
}

// objects returns the objects of the manifest with the settings of d.
func (d DNS) objects(s *scheme.Scheme) ([]runtime.Object, error) {
	objects, err := decode(s, manifests.ClusterDNS)
	if err != nil {
		return nil, fmt.Errorf("read the manifest of cluster-dns: %w", err)
	}
	for _, obj := range objects {
		switch o := obj.(type) {
		case *corev1.Service:
			o.Spec.ClusterIP = d.Address.String()
		case *appsv1.Deployment:
			if d.Replicas > 0 {
				o.Spec.Replicas = &d.Replicas
			}
			if d.Domain != "" {
				d.setDomain(o.Spec.Template.Spec.Containers[0].Args)
			}
		}
	}
	return objects, nil
}

func (d DNS) setDomain(args []string) {
	const flag = "--cluster-domain="
	i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, flag) })
	args[i] = flag + d.Domain
}

// Answers returns nil if the cluster DNS resolves the Service
// kubernetes.default. It must run on a node. It makes one query; the caller
// sets the timeout by ctx.
func (d DNS) Answers(ctx context.Context) error {
	domain := d.Domain
	if domain == "" {
		domain = "cluster.local"
	}
	resolver := net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(d.Address.String(), "53"))
		},
	}
	found, err := resolver.LookupNetIP(ctx, "ip", "kubernetes.default.svc."+domain+".")
	if err == nil && len(found) == 0 {
		return errors.New("the answer is empty")
	}
	return err
}
