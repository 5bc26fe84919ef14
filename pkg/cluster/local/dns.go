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

// dnsTimeout is the timeout of one DNS query; the next one may reach a ready
// pod.
const dnsTimeout = 500 * time.Millisecond

func (c *Config) dnsAnswers(ctx context.Context, waiting func(string)) error {
	return c.wait(ctx, waiting, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
		defer cancel()
		return c.dns().Answers(ctx)
	}, "kube-apiserver", "kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager")
}
