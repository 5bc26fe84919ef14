package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/daemon"
	"podium/pkg/metricsserver/usage"
)

// Config holds the dependencies and settings of the server.
type Config struct {
	Client   *client.Client
	Log      *slog.Logger
	Registry *prometheus.Registry
	Listener net.Listener // Run closes it
	// Sample asks the kubelet of a node. It must end soon after ctx.
	Sample func(ctx context.Context, node *corev1.Node) (usage.Sample, error)
	Now    func() time.Time // nil: time.Now

	Resolution     time.Duration // the interval between two samples of a node
	RequestTimeout time.Duration // of one request to a kubelet
	NodeSelector   string        // labels of the nodes to ask; empty: all
	// Service is what clients reach this server by. A generated certificate is valid for
	// it, and is published in the APIService. Empty: it is not published.
	Service types.NamespacedName

	daemon.Serving
	daemon.Access
}

// minResolution is that of upstream: kubelets measure no more often.
const minResolution = 10 * time.Second

// Validate returns all errors of the settings, joined.
func (c *Config) Validate() error {
	var errs []error
	if c.Resolution < minResolution {
		errs = append(errs, fmt.Errorf("--metric-resolution=%s: use %s or more", c.Resolution, minResolution))
	}
	if c.RequestTimeout <= 0 || c.RequestTimeout > c.Resolution {
		errs = append(errs, fmt.Errorf("--kubelet-request-timeout=%s: use more than 0, and no more than --metric-resolution", c.RequestTimeout))
	}
	if _, err := labels.Parse(c.NodeSelector); err != nil {
		errs = append(errs, fmt.Errorf("--node-selector: %w", err))
	}
	return errors.Join(errs...)
}
