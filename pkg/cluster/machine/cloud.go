package machine

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"podium/pkg/cluster/files"

	corev1 "k8s.io/api/core/v1"
)

// cloudManager is the daemon that control planes run if the cluster has a cloud
// provider.
const cloudManager = "cloud-controller-manager"

// cloudFile is the configuration of the cloud provider, below pkiDir because it
// may contain keys. All control planes of a cluster share it.
const cloudFile = "cloud.yaml"

// clouds are the names of the cloud providers.
var clouds = []string{"baremetal", "docker"}

// validateCloud returns all errors of the cloud provider's settings.
func (c *Config) validateCloud() (errs []error) {
	if c.Cloud != "" && !slices.Contains(clouds, c.Cloud) {
		errs = append(errs, fmt.Errorf("--cloud-provider %q: use one of %s, or none", c.Cloud, strings.Join(clouds, ", ")))
	}
	if c.PodNetwork == networkCloud && c.Cloud != "docker" {
		errs = append(errs, errors.New("--pod-network cloud: needs a --cloud-provider that has routes: docker"))
	}
	if c.Cloud == "" && c.CloudConfig != "" {
		errs = append(errs, errors.New("--cloud-config is for a --cloud-provider"))
	}
	if c.CloudConfig != "" {
		if _, err := os.Stat(c.CloudConfig); err != nil {
			errs = append(errs, fmt.Errorf("--cloud-config: %w", err))
		}
	}
	return errs
}

// keepCloudConfig copies the file of --cloud-config to cloudFile. Without the
// flag it keeps the present file, or creates an empty one. It marks the machine
// as renewed if the content changed.
func (m *machine) keepCloudConfig() error {
	if m.Cloud == "" {
		return nil
	}
	keep := m.at(pkiDir, cloudFile)
	if m.CloudConfig == "" {
		if _, err := os.Stat(keep); err == nil {
			return nil
		}
	}
	var data []byte
	if m.CloudConfig != "" {
		var err error
		if data, err = os.ReadFile(m.CloudConfig); err != nil {
			return fmt.Errorf("--cloud-config: %w", err)
		}
	}
	changed, err := files.Write(keep, data, 0o600)
	m.renewed = m.renewed || changed
	return err
}

func (m *machine) cloudControllerManager() unit {
	conf := elected(settings{
		"kubeconfig":    kubeconfigFile(cloudManager),
		"clientCaFile":  pkiFile("ca.crt"),
		"cloudProvider": m.Cloud,
		"cloudConfig":   pkiFile(cloudFile),
		"clusterName":   m.Cluster,
		"bindAddress":   "127.0.0.1",
		"profiling":     false,
	})
	if m.PodNetwork == networkCloud {
		conf["configureCloudRoutes"], conf["clusterCidr"] = true, []string{m.PodCIDR}
	}
	return unit{name: cloudManager, file: cloudManager + ".yaml", conf: config("CloudControllerManagerConfiguration", conf)}
}

// nodeNeeds returns the units that must run before a control plane's node can
// become Ready.
func (m *machine) nodeNeeds() []string {
	out := []string{"kube-apiserver", "kubelet", "kube-proxy", "kube-controller-manager"}
	if m.Cloud != "" {
		out = append(out, cloudManager)
	}
	return out
}

// met returns an error while the node has the taint that the
// cloud-controller-manager removes when it initializes the node.
func met(node *corev1.Node) error {
	waits := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == "node.cloudprovider.kubernetes.io/uninitialized" })
	if waits {
		return fmt.Errorf("%s has not identified this machine yet; on a control plane, journalctl -u %[1]s shows why", cloudManager)
	}
	return nil
}
