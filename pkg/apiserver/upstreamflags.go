package apiserver

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"podium/pkg/daemon"
)

// upstreamFlags are flags of upstream's kube-apiserver that tools such as
// envtest, kubeadm and kind pass.
type upstreamFlags struct {
	allowPrivileged bool
	certDir         string
}

func (o *upstreamFlags) flags(f *pflag.FlagSet) {
	f.BoolVar(&o.allowPrivileged, "allow-privileged", true, "allow privileged containers; upstream's default is false, but every tool that brings up a cluster sets true, and Pod Security restricts them by namespace")
	f.StringVar(&o.certDir, "cert-dir", "", "folder of apiserver.crt and apiserver.key when there is no --tls-cert-file; a self-signed certificate is written there if they do not exist")
	for _, only := range fixedFlags() {
		flag := f.VarPF(&only, only.name, "", only.usage)
		if only.value == "true" || only.value == "false" {
			flag.NoOptDefVal = "true"
		}
	}
}

// fixedFlag is a flag that is accepted only with values that match what the
// server does anyway.
type fixedFlag struct {
	name, value, usage string
	also               []string // other values that mean the same
	any                bool     // every value is accepted
}

func (f *fixedFlag) String() string { return f.value }
func (f *fixedFlag) Type() string   { return "string" }

func (f *fixedFlag) Set(text string) error {
	if !f.any && text != f.value && !slices.Contains(f.also, text) {
		return fmt.Errorf("not supported, only %q: %s", f.value, f.usage)
	}
	return nil
}

func fixedFlags() []fixedFlag {
	return []fixedFlag{
		{name: "aggregator-reject-forwarding-redirect", value: "true", usage: "redirects of aggregated API servers are never passed on"},
		{name: "default-not-ready-toleration-seconds", value: "300", usage: "how long pods stay on nodes that are not ready"},
		{name: "default-unreachable-toleration-seconds", value: "300", usage: "how long pods stay on nodes that are unreachable"},
		{name: "enable-garbage-collector", value: "true", usage: "must agree with kube-controller-manager, which always runs the garbage collector"},
		{name: "endpoint-reconciler-type", value: "lease", usage: "API servers find each other by Leases"},
		{name: "etcd-prefix", value: "/registry", usage: "prefix of all keys in etcd"},
		{name: "feature-gates", usage: "no feature is behind a gate"},
		{name: "runtime-config", also: []string{"api/ga=true"}, usage: "all API groups that exist are served"},
		{name: "service-account-lookup", value: "true", usage: "tokens are valid as long as their ServiceAccount exists"},
		{name: "storage-backend", value: "etcd3", also: []string{""}, usage: "objects are stored in etcd v3"},
		{name: "storage-media-type", value: "application/vnd.kubernetes.protobuf", usage: "objects are stored as protobuf"},
		{name: "watch-cache", value: "true", usage: "reads are served from the watch cache"},
	}
}

// flagError returns a clearer error for an upstream flag that does not exist
// here.
func flagError(_ *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && slices.Contains(strings.Fields(missingFlags), unknown.GetSpecifiedName()) {
		return fmt.Errorf("--%s is a flag of upstream's kube-apiserver that Podium does not implement; without it the server does what upstream does by default", unknown.GetSpecifiedName())
	}
	return err
}

const missingFlags = `allow-metric-labels allow-metric-labels-manifest apiserver-count
authentication-config authorization-config authorization-policy-file contention-profiling cors-allowed-origins debug-socket-path
default-watch-cache-size delete-collection-workers disable-http2-serving disabled-metrics egress-selector-config-file emulated-version
emulation-forward-compatible enable-logs-handler etcd-count-metric-poll-period etcd-db-metric-poll-interval
etcd-healthcheck-timeout etcd-readycheck-timeout etcd-servers-overrides external-hostname goaway-chance http2-max-streams-per-connection
kubelet-port kubelet-read-only-port kubernetes-service-node-port lease-reuse-duration-seconds livez-grace-period log-flush-frequency
max-connection-bytes-per-sec min-compatibility-version min-request-timeout peer-advertise-ip peer-advertise-port peer-ca-file
permit-address-sharing permit-port-sharing runtime-config-emulation-forward-compatible service-account-extend-token-expiration
service-account-signing-endpoint show-hidden-metrics-for-version shutdown-send-retry-after shutdown-watch-termination-grace-period
storage-initialization-timeout strict-transport-security-directives tls-sni-cert-key token-auth-file tracing-config-file vmodule watch-cache-sizes`

// servingFiles uses the certificate and key of --cert-dir if no others are
// given, and creates a self-signed pair if they do not exist.
func (o *options) servingFiles() error {
	if o.upstream.certDir == "" || o.serving.CertFile != "" || o.serving.KeyFile != "" {
		return nil
	}
	o.serving.CertFile = filepath.Join(o.upstream.certDir, "apiserver.crt")
	o.serving.KeyFile = filepath.Join(o.upstream.certDir, "apiserver.key")
	var addresses []netip.Addr
	for _, text := range []string{o.bindAddress, o.advertise} {
		if a, err := netip.ParseAddr(text); err == nil && !a.IsUnspecified() {
			addresses = append(addresses, a)
		}
	}
	if err := daemon.EnsureSelfSigned(o.serving.CertFile, o.serving.KeyFile, addresses...); err != nil {
		return fmt.Errorf("--cert-dir: %w", err)
	}
	return nil
}
