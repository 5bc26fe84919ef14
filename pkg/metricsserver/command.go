package metricsserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/pkg/client/certfile"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/daemon"
	"podium/pkg/metricsserver/kubelet"
	"podium/pkg/scheme"
)

// options are the flags of metrics-server: cfg's, and those of the process.
type options struct {
	daemon.Options
	cfg                                        Config
	kubelet                                    kubelet.Config
	kubeconfig, bind                           string
	port                                       int
	kubeletCA, kubeletCertFile, kubeletKeyFile string
}

// NewCommand returns the metrics-server command. Its flags have the names of upstream's.
func NewCommand() *cobra.Command {
	o := &options{}
	cmd := o.Command("metrics-server", "Serve the CPU and memory usage of nodes and pods", nil, func(cmd *cobra.Command) error {
		if err := o.complete(); err != nil {
			return err
		}
		return o.run(cmd.Context(), o.Logger(cmd.ErrOrStderr()))
	})
	f, c := cmd.Flags(), &o.cfg
	o.Options.AddFlags(f)
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file for the API server (default: the service account of the pod)")
	f.StringVar(&o.bind, "bind-address", "0.0.0.0", "IP address to serve on")
	f.IntVar(&o.port, "secure-port", 443, "port to serve the API, health and metrics on (HTTPS)")
	daemon.ParsedVar(f, &c.Service, "service", "", parseService, "Service of this server, as NAMESPACE/NAME: a generated serving certificate is valid for it and is published in the APIService; empty: it is not published")
	f.DurationVar(&c.Resolution, "metric-resolution", time.Minute, "interval between two samples of a node; at least 10s")
	f.StringVarP(&c.NodeSelector, "node-selector", "l", "", "labels of the nodes to ask; empty: all nodes")
	f.DurationVar(&c.RequestTimeout, "kubelet-request-timeout", 10*time.Second, "timeout of a request to a kubelet")
	f.StringVar(&o.kubeletCA, "kubelet-certificate-authority", "", "file with the CAs of kubelets' serving certificates; empty: those of the system")
	f.StringVar(&o.kubeletCertFile, "kubelet-client-certificate", "", "file with the client certificate for kubelets; empty: the credentials for the API server")
	f.StringVar(&o.kubeletKeyFile, "kubelet-client-key", "", "file with the key of the client certificate for kubelets")
	f.IntVar(&o.kubelet.Port, "kubelet-port", 10250, "port of kubelets")
	f.BoolVar(&o.kubelet.StatusPort, "kubelet-use-node-status-port", false, "use the port in a node's status, if it has one, instead of --kubelet-port")
	daemon.ParsedSliceVar(f, &o.kubelet.AddressTypes, "kubelet-preferred-address-types", []string{"Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"}, addressType, "types of node addresses to use, in order of preference")
	c.Serving.AddFlags(f)
	c.Access.AddFlags(f)
	return cmd
}

func parseService(text string) (name types.NamespacedName, err error) {
	if text == "" {
		return name, nil
	}
	var ok bool
	name.Namespace, name.Name, ok = strings.Cut(text, "/")
	if !ok || name.Namespace == "" || name.Name == "" || strings.Contains(name.Name, "/") {
		return name, errors.New("use NAMESPACE/NAME")
	}
	return name, nil
}

func addressType(text string) (corev1.NodeAddressType, error) {
	types := []corev1.NodeAddressType{corev1.NodeHostName, corev1.NodeInternalDNS, corev1.NodeInternalIP, corev1.NodeExternalDNS, corev1.NodeExternalIP}
	if t := corev1.NodeAddressType(text); slices.Contains(types, t) {
		return t, nil
	}
	return "", fmt.Errorf("use some of %v", types)
}

// complete validates the flags and returns all errors, joined.
func (o *options) complete() error {
	errs := []error{o.cfg.Validate()}
	if net.ParseIP(o.bind) == nil {
		errs = append(errs, fmt.Errorf("--bind-address %q is not an address", o.bind))
	}
	for flag, port := range map[string]int{"secure-port": o.port, "kubelet-port": o.kubelet.Port} {
		if port < 1 || port > 65535 {
			errs = append(errs, fmt.Errorf("--%s=%d is not a port", flag, port))
		}
	}
	if (o.kubeletCertFile == "") != (o.kubeletKeyFile == "") {
		errs = append(errs, errors.New("--kubelet-client-certificate and --kubelet-client-key need each other"))
	}
	return errors.Join(errs...)
}

// run serves until ctx ends or a part fails.
func (o *options) run(ctx context.Context, log *slog.Logger) error {
	to, err := kubeconfig.ForDaemon(o.kubeconfig, "metrics-server")
	if err != nil {
		return err
	}
	cfg := o.cfg
	cfg.Log, cfg.Registry = log, daemon.Metrics()
	if cfg.Client, err = client.New(scheme.New(), to); err != nil {
		return err
	}
	kubelets, err := o.kubelets(to)
	if err != nil {
		return err
	}
	defer kubelets.Close()
	cfg.Sample = kubelets.Sample
	address := net.JoinHostPort(o.bind, strconv.Itoa(o.port))
	if cfg.Listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address); err != nil {
		return err
	}
	defer cfg.Listener.Close()
	log.Info("serving metrics", "address", address, "resolution", cfg.Resolution)
	return Run(ctx, cfg)
}

// kubelets returns the client of kubelets, with its own certificate or the credentials
// for the API server.
func (o *options) kubelets(to client.Config) (*kubelet.Client, error) {
	cfg := o.kubelet
	cfg.Timeout = o.cfg.RequestTimeout
	if o.kubeletCA != "" {
		pool, err := certfile.NewPool(o.kubeletCA)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-certificate-authority: %w", err)
		}
		cfg.Roots = pool.Get
	}
	if o.kubeletCertFile != "" {
		pair, err := certfile.NewPair(o.kubeletCertFile, o.kubeletKeyFile)
		if err != nil {
			return nil, fmt.Errorf("--kubelet-client-certificate: %w", err)
		}
		cfg.Credentials = &tls.Config{GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Get(), nil }}
		return kubelet.New(cfg), nil
	}
	cfg.Token, cfg.Credentials = to.Token, to.TLS
	return kubelet.New(cfg), nil
}
