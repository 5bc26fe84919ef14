package local

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/cluster/auditpolicy"
	"podium/pkg/cluster/pki"
)

// identities creates the cluster's certificates, and a kubeconfig for each
// client of the apiserver.
func (c *Config) identities(context.Context) error {
	dir := c.path("pki")
	ca, err := pki.OpenAuthority(dir, "ca", time.Now)
	if err != nil {
		return err
	}
	if err := c.kubeletCA(); err != nil {
		return err
	}
	proxies, err := ca.Derive(dir, "front-proxy-ca")
	if err != nil {
		return err
	}
	if err := proxies.Issue(dir, "front-proxy-client", pki.Identity{Name: "front-proxy-client"}); err != nil {
		return err
	}
	if err := pki.SigningKey(dir, "sa"); err != nil {
		return err
	}
	if _, err := ca.Revoke(c.path("pki", "ca.crl")); err != nil { // creates an empty list
		return err
	}
	if err := pki.EncryptionConfig(c.encryptionConfig()); err != nil {
		return err
	}
	if err := auditpolicy.Write(c.auditPolicy()); err != nil {
		return err
	}
	if err := admissionconfig.Write(c.admissionConfig(), c.PodSecurity); err != nil {
		return err
	}
	servers := []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"localhost", "127.0.0.1", c.ranges().api, c.NodeIP, c.Node,
	}
	for _, cert := range []struct {
		name string
		id   pki.Identity
	}{
		{"apiserver", pki.Identity{Name: "kube-apiserver", Hosts: servers}},
		{"apiserver-kubelet-client", pki.Identity{Name: "kube-apiserver-kubelet-client"}},
		{"admin", pki.Identity{Name: "kubernetes-admin", Groups: []string{"system:masters"}}},
		{"kubelet", pki.Identity{Name: "system:node:" + c.Node, Groups: []string{"system:nodes"}}},
		{"kube-proxy", pki.Identity{Name: "system:kube-proxy"}},
		{"kube-scheduler", pki.Identity{Name: "system:kube-scheduler"}},
		{"kube-controller-manager", pki.Identity{Name: "system:kube-controller-manager"}},
	} {
		if err := ca.Issue(dir, cert.name, cert.id); err != nil {
			return err
		}
	}
	for _, name := range []string{"kubelet", "kube-proxy", "kube-scheduler", "kube-controller-manager"} {
		if err := c.writeKubeconfig(c.path("kubeconfigs", name+".conf"), name); err != nil {
			return err
		}
	}
	return c.writeKubeconfig(c.Kubeconfig(), "admin")
}

// kubeletPKI is the directory, below Dir, of the kubelet's certificates.
const kubeletPKI = "kubelet-pki"

// kubeletCA creates the CA of the kubelet's serving certificate. It removes a
// serving certificate of another CA, as in clusters of earlier versions: the
// kubelet requests a new one when it starts.
func (c *Config) kubeletCA() error {
	ca, err := pki.OpenAuthority(c.path("pki"), "kubelet-ca", time.Now)
	if err != nil {
		return err
	}
	file := c.path(kubeletPKI, "kubelet-server-current.pem")
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if certs, err := pki.ParseCertificates(data); err == nil && len(certs) > 0 && ca.Signed(certs[0]) {
		return nil
	}
	return os.Remove(file)
}

func (c *Config) auditPolicy() string { return c.path("audit-policy.yaml") }

// admissionConfig returns the path of the apiserver's admission configuration.
// Each level has its own file, so that a change of the level changes the
// apiserver's arguments and thereby restarts it.
func (c *Config) admissionConfig() string { return c.path("admission-" + c.PodSecurity + ".yaml") }

func (c *Config) encryptionConfig() string { return c.path("pki", "encryption.yaml") }

// writeKubeconfig writes a kubeconfig that contains the certificate with that
// name.
func (c *Config) writeKubeconfig(file, name string) error {
	certFile, keyFile := pki.Files(c.path("pki"), name)
	ca, errCA := os.ReadFile(c.path("pki", "ca.crt"))
	cert, errCert := os.ReadFile(certFile)
	key, errKey := os.ReadFile(keyFile)
	if err := errors.Join(errCA, errCert, errKey); err != nil {
		return err
	}
	config := kubeconfig.New(c.Name,
		kubeconfig.Cluster{Server: c.server(), CertificateAuthorityData: ca},
		kubeconfig.User{ClientCertificateData: cert, ClientKeyData: key})
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return config.Write(file, 0o600)
}
