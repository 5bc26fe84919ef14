package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"podium/pkg/client"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/admissionconfig"
	"podium/pkg/cluster/auditpolicy"
	"podium/pkg/cluster/pki"
	"podium/pkg/scheme"
)

// certificate describes one of the machine's certificates: its file below
// pkiDir without extension, the CA that signs it, its subject, and the
// kubeconfig in configDir that uses it, if any.
type certificate struct {
	name       string
	authority  string
	id         pki.Identity
	kubeconfig string
}

// The CAs, by their files below pkiDir.
const (
	clusterCA = "ca"
	etcdCA    = "etcd/ca"
	kubeletCA = "kubelet-ca" // of kubelets' serving certificates

	// frontProxyCA signs the certificates of proxies that authenticate users for
	// the API server. Its key derives from the cluster CA's, so that every
	// control plane has the same without exchanging it.
	frontProxyCA = "front-proxy-ca"

	// frontProxyClient is the certificate of such a proxy: the API server, in front of
	// extension API servers.
	frontProxyClient = "front-proxy-client"
)

// encryptionFile is the configuration, below pkiDir, of the encryption of
// Secrets at rest. All control planes of a cluster share it.
const encryptionFile = "encryption.yaml"

// The apiserver's audit policy and audit log.
const (
	auditPolicy = configDir + "/audit-policy.yaml"
	auditLog    = logDir + "/audit.log"
	logDir      = "/var/log/podium" // created by its unit
)

// admissionConfig returns the path of the apiserver's admission configuration;
// each Pod Security level has its own file.
func (c *Config) admissionConfig() string { return configDir + "/admission-" + c.PodSecurity + ".yaml" }

// controlPlaneCertificates returns the certificates that a control plane signs
// for itself.
func (c *Config) controlPlaneCertificates() []certificate {
	local := []string{"localhost", "127.0.0.1", c.Node, c.NodeIP}
	all := []certificate{
		// etcd's gateway connects to its own server with the server's certificate.
		{name: "etcd/server", authority: etcdCA, id: pki.Identity{Name: c.Node, Hosts: local, Both: true}},
		{name: "etcd/peer", authority: etcdCA, id: pki.Identity{Name: c.Node, Hosts: local, Both: true}},
		{name: "apiserver-etcd-client", authority: etcdCA, id: pki.Identity{Name: "kube-apiserver-etcd-client"}},
		{name: "apiserver", authority: clusterCA, id: pki.Identity{Name: "kube-apiserver", Hosts: c.apiserverHosts()}},
		{name: "apiserver-kubelet-client", authority: clusterCA, id: pki.Identity{Name: "kube-apiserver-kubelet-client"}},
		{name: frontProxyClient, authority: frontProxyCA, id: pki.Identity{Name: frontProxyClient}},
		{name: "admin", authority: clusterCA, kubeconfig: "admin.conf", id: pki.Identity{Name: "kubernetes-admin", Groups: []string{"system:masters"}}},
		{name: "kube-controller-manager", authority: clusterCA, kubeconfig: kubeconfigs + "/kube-controller-manager.conf", id: pki.Identity{Name: "system:kube-controller-manager"}},
		{name: "kube-scheduler", authority: clusterCA, kubeconfig: kubeconfigs + "/kube-scheduler.conf", id: pki.Identity{Name: "system:kube-scheduler"}},
		{name: "kubelet", authority: clusterCA, kubeconfig: "kubelet.conf", id: pki.Identity{Name: "system:node:" + c.Node, Groups: []string{"system:nodes"}}},
		{name: kubeletServing, authority: kubeletCA, id: pki.Identity{Name: "system:node:" + c.Node, Groups: []string{"system:nodes"}, Hosts: []string{c.Node, c.NodeIP}}},
		{name: "kube-proxy", authority: clusterCA, kubeconfig: kubeconfigs + "/kube-proxy.conf", id: pki.Identity{Name: "system:kube-proxy"}},
	}
	if c.Cloud != "" {
		all = append(all, certificate{name: cloudManager, authority: clusterCA, kubeconfig: kubeconfigs + "/" + cloudManager + ".conf", id: pki.Identity{Name: "system:" + cloudManager}})
	}
	return all
}

// apiserverHosts returns the names and addresses in the apiserver's
// certificate.
func (c *Config) apiserverHosts() []string {
	hosts := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + c.DNSDomain,
		"localhost", "127.0.0.1", c.nth(1), c.NodeIP, c.Node}
	if host, _, err := net.SplitHostPort(c.Endpoint); err == nil {
		hosts = append(hosts, host)
	}
	return append(hosts, c.CertSANs...)
}

// identities creates the CAs if they are missing, and every certificate and
// kubeconfig that is missing, does not match the configuration or is about to
// expire. It also creates the other files of the PKI: signing key, encryption
// configuration, audit policy, admission configuration and revocation list.
func (m *machine) identities() error {
	dir := m.at(pkiDir)
	if err := os.MkdirAll(filepath.Join(dir, etcdPKI), 0o700); err != nil {
		return err
	}
	if err := pki.SigningKey(dir, "sa"); err != nil {
		return err
	}
	if err := pki.EncryptionConfig(filepath.Join(dir, encryptionFile)); err != nil {
		return err
	}
	if err := auditpolicy.Write(m.at(auditPolicy)); err != nil {
		return err
	}
	if err := admissionconfig.Write(m.at(m.admissionConfig()), m.PodSecurity); err != nil {
		return err
	}
	ca, err := m.authority(clusterCA)
	if err != nil {
		return err
	}
	if _, err := ca.Revoke(filepath.Join(dir, revokedFile)); err != nil {
		return err
	}
	if err := m.makeKubeletCA(); err != nil {
		return err
	}
	if _, err := ca.Derive(dir, frontProxyCA); err != nil {
		return err
	}
	for _, c := range m.controlPlaneCertificates() {
		ca, err := m.authorityOf(c)
		if err != nil {
			return err
		}
		if err := ca.Issue(dir, c.name, c.id); err != nil {
			return err
		}
		if c.kubeconfig == "" {
			continue
		}
		if err := m.writeKubeconfig(c); err != nil {
			return err
		}
	}
	return nil
}

// authority opens the CA with that name, or creates it if it is missing.
func (m *machine) authority(name string) (*pki.Authority, error) {
	return pki.OpenAuthority(m.at(pkiDir, filepath.Dir(name)), filepath.Base(name), m.Now)
}

// writeKubeconfig writes the kubeconfig of a certificate. A daemon's kubeconfig
// refers to the certificate's files, which the daemon reloads after a renewal;
// the administrator's contains copies, since it is copied to other machines.
func (m *machine) writeKubeconfig(c certificate) error {
	ca, err := os.ReadFile(m.at(pkiDir, "ca.crt"))
	if err != nil {
		return err
	}
	certFile, keyFile := pki.Files(pkiDir, c.name)
	cluster, user := m.cluster(ca, m.localServer(), m.server()), kubeconfig.User{ClientCertificate: certFile, ClientKey: keyFile}
	if c.kubeconfig == filepath.Base(adminConf) {
		cert, errCert := os.ReadFile(m.at(certFile))
		key, errKey := os.ReadFile(m.at(keyFile))
		if err := errors.Join(errCert, errKey); err != nil {
			return err
		}
		cluster, user = m.cluster(ca, m.server(), m.localServer()), kubeconfig.User{ClientCertificateData: cert, ClientKeyData: key}
	}
	return m.saveKubeconfig(c.kubeconfig, cluster, user)
}

// cluster returns a kubeconfig's cluster with these servers, in the order in
// which clients try them, without duplicates. The daemons of a control plane
// try their own apiserver first: it fails only together with their machine.
func (m *machine) cluster(ca []byte, servers ...string) kubeconfig.Cluster {
	if m.entry != "" {
		servers = append(servers, m.entry)
	}
	out := kubeconfig.Cluster{Server: servers[0], CertificateAuthorityData: ca}
	var all []string
	for _, s := range servers {
		if !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	if len(all) > 1 {
		out.SetServers(all)
	}
	return out
}

// saveKubeconfig writes a kubeconfig in configDir, unless the present one
// grants the same access: it then keeps what a daemon recorded in it about
// further servers. A change sets m.renewed, so that running daemons are
// restarted when the units are started.
func (m *machine) saveKubeconfig(file string, cluster kubeconfig.Cluster, user kubeconfig.User) error {
	path := m.at(configDir, file)
	want := kubeconfig.New(m.Cluster, cluster, user)
	have, err := kubeconfig.Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && sameAccess(have, want, m.Cluster) {
		return nil
	}
	m.renewed = m.renewed || file != filepath.Base(adminConf)
	return want.Write(path, 0o600)
}

// sameAccess reports whether two kubeconfigs have the same server, CA and user.
// It ignores extensions.
func sameAccess(a, b *kubeconfig.Config, name string) bool {
	clusterA, clusterB, userA, userB := a.Cluster(name), b.Cluster(name), a.User(name), b.User(name)
	if clusterA == nil || userA == nil || a.CurrentContext != b.CurrentContext {
		return false
	}
	one, other := *clusterA, *clusterB
	one.Extensions, other.Extensions = nil, nil
	return reflect.DeepEqual(one, other) && reflect.DeepEqual(*userA, *userB)
}

// admin returns a client with the administrator's kubeconfig, which only
// control planes have.
func (m *machine) admin() (*client.Client, error) {
	config, err := kubeconfig.Load(m.at(adminConf))
	if err != nil {
		return nil, fmt.Errorf("read the administrator's kubeconfig (this is done on a control plane's machine): %w", err)
	}
	cfg, _, err := config.Client("")
	if err != nil {
		return nil, err
	}
	cfg.UserAgent = "podium"
	return client.New(scheme.New(), cfg)
}
