package local

import (
	"context"
	"net/netip"
	"time"

	"podium/pkg/cluster/addons"
)

func (c *Config) dns() addons.DNS {
	return addons.DNS{Address: netip.MustParseAddr(c.ranges().dns)}
}

func (c *Config) applyDNS(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	return addons.ApplyDNS(ctx, cl, c.dns())
}

// dnsPatience is how long one question may take: the next may find a server.
const dnsPatience = 500 * time.Millisecond

func (c *Config) dnsAnswers(ctx context.Context, waiting func(string)) error {
	return c.wait(ctx, waiting, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, dnsPatience)
		defer cancel()
		return c.dns().Answers(ctx)
	}, "kube-apiserver", "kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager")
}
