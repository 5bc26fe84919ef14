package kubeconfig

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podium/pkg/client"
	"podium/pkg/client/certfile"
)

// ServersExtension is the name of a cluster extension that lists more servers of the
// same cluster, {"servers": ["https://..."]}: podium's own clients use the next one
// when a server does not answer. Other clients ignore it.
const ServersExtension = "podium.dev/servers"

// Client returns the client configuration of a context, and the context's namespace
// ("default" if it has none). An empty name selects the current context. Certificates
// and tokens referenced by file are reloaded when the files change.
func (c *Config) Client(contextName string) (client.Config, string, error) {
	none := client.Config{}
	if contextName == "" {
		contextName = c.CurrentContext
	}
	if contextName == "" {
		return none, "", errors.New("kubeconfig: no current context is set; choose one with --context")
	}
	ctx := c.Context(contextName)
	if ctx == nil {
		return none, "", fmt.Errorf("kubeconfig: context %q does not exist", contextName)
	}
	cluster := c.Cluster(ctx.Cluster)
	if cluster == nil {
		return none, "", fmt.Errorf("kubeconfig: context %q names cluster %q, which does not exist", contextName, ctx.Cluster)
	}
	user := &User{}
	if ctx.User != "" {
		if user = c.User(ctx.User); user == nil {
			return none, "", fmt.Errorf("kubeconfig: context %q names user %q, which does not exist", contextName, ctx.User)
		}
	}
	cfg, err := clientConfig(cluster, user)
	if err != nil {
		return none, "", fmt.Errorf("kubeconfig: context %q: %w", contextName, err)
	}
	namespace := ctx.Namespace
	if namespace == "" {
		namespace = "default"
	}
	return cfg, namespace, nil
}

func clientConfig(cluster *Cluster, user *User) (client.Config, error) {
	if err := supported(cluster, user); err != nil {
		return client.Config{}, err
	}
	proxy, err := proxyOf(cluster)
	if err != nil {
		return client.Config{}, err
	}
	cfg := client.Config{Servers: []string{cluster.Server}, Proxy: proxy}
	more, err := cluster.moreServers()
	if err != nil {
		return client.Config{}, err
	}
	for _, s := range more {
		if s != cluster.Server {
			cfg.Servers = append(cfg.Servers, s)
		}
	}
	if cfg.TLS, err = tlsConfig(cluster, user); err != nil {
		return client.Config{}, err
	}
	if len(cluster.CertificateAuthorityData) == 0 && cluster.CertificateAuthority != "" {
		pool, err := certfile.NewPool(cluster.CertificateAuthority)
		if err != nil {
			return client.Config{}, err
		}
		cfg.Roots = pool.Get
	}
	switch {
	case user.TokenFile != "":
		cfg.Token, err = tokenFile(user.TokenFile)
	case user.Token != "":
		cfg.Token = func() (string, error) { return user.Token, nil }
	}
	return cfg, err
}

// supported returns an error for settings that would otherwise be silently ignored.
func supported(cluster *Cluster, user *User) error {
	for _, refused := range []struct {
		given bool
		what  string
	}{
		{user.Exec != nil, "an exec credential plugin"},
		{user.AuthProvider != nil, "an auth-provider"},
		{user.Username != "" || user.Password != "", "a user name and password"},
		{user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateExtra) > 0, "impersonation (as)"},
	} {
		if refused.given {
			return fmt.Errorf("%s is not supported; use a client certificate, a token or a tokenFile", refused.what)
		}
	}
	if cluster.Server == "" {
		return errors.New("the cluster has no server")
	}
	return nil
}

// proxyOf returns the URL of the cluster's proxy, nil if it has none.
func proxyOf(c *Cluster) (*url.URL, error) {
	if c.ProxyURL == "" {
		return nil, nil
	}
	u, err := url.Parse(c.ProxyURL)
	if err != nil {
		return nil, fmt.Errorf("proxy-url: %w", err)
	}
	if !slices.Contains([]string{"http", "https", "socks5"}, u.Scheme) {
		return nil, fmt.Errorf("proxy-url: unsupported scheme %q, must be http, https, or socks5", u.Scheme)
	}
	return u, nil
}

func (c *Cluster) moreServers() ([]string, error) {
	for _, e := range c.Extensions {
		if e.Name != ServersExtension {
			continue
		}
		var x struct {
			Servers []string `json:"servers"`
		}
		if err := json.Unmarshal(e.Extension, &x); err != nil {
			return nil, fmt.Errorf("extension %s: %w", ServersExtension, err)
		}
		return x.Servers, nil
	}
	return nil, nil
}

func tlsConfig(cluster *Cluster, user *User) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cluster.TLSServerName, InsecureSkipVerify: cluster.InsecureSkipTLSVerify}
	if ca := cluster.CertificateAuthorityData; len(ca) > 0 {
		pool, err := certfile.ParsePool(ca, "certificate-authority-data")
		if err != nil {
			return nil, err
		}
		cfg.RootCAs = pool
	}
	return cfg, clientCertificate(cfg, user)
}

func clientCertificate(cfg *tls.Config, user *User) error {
	haveCert := user.ClientCertificate != "" || len(user.ClientCertificateData) > 0
	haveKey := user.ClientKey != "" || len(user.ClientKeyData) > 0
	if haveCert != haveKey {
		return errors.New("a client certificate needs its key, and a key its certificate")
	}
	if !haveCert {
		return nil
	}
	if len(user.ClientCertificateData) == 0 && len(user.ClientKeyData) == 0 {
		pair, err := certfile.NewPair(user.ClientCertificate, user.ClientKey)
		if err != nil {
			return err
		}
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair.Get(), nil }
		return nil
	}
	cert, err := dataOr(user.ClientCertificateData, user.ClientCertificate)
	if err != nil {
		return err
	}
	key, err := dataOr(user.ClientKeyData, user.ClientKey)
	if err != nil {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("client certificate: %w", err)
	}
	cfg.Certificates = []tls.Certificate{pair}
	return nil
}

func dataOr(data []byte, file string) ([]byte, error) {
	if len(data) > 0 {
		return data, nil
	}
	return os.ReadFile(file)
}

func tokenFile(path string) (func() (string, error), error) {
	text, err := certfile.NewText(path)
	if err != nil {
		return nil, err
	}
	return func() (string, error) {
		token := strings.TrimSpace(string(text.Get()))
		if token == "" {
			return "", fmt.Errorf("%s is empty", path)
		}
		return token, nil
	}, nil
}

// serviceAccountDir is where a pod's service account is mounted.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// ErrNotInCluster means that the process does not run in a pod.
var ErrNotInCluster = errors.New("not in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")

// InCluster returns the access of the pod that the process runs in, with its namespace
// (that of POD_NAMESPACE, if it is set), or ErrNotInCluster.
func InCluster() (*Config, error) { return inCluster(serviceAccountDir) }

// inCluster is InCluster with the service account's files in dir.
func inCluster(dir string) (*Config, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, ErrNotInCluster
	}
	namespace := os.Getenv("POD_NAMESPACE")
	if namespace == "" {
		data, err := os.ReadFile(filepath.Join(dir, "namespace"))
		if err != nil {
			return nil, err
		}
		namespace = strings.TrimSpace(string(data))
	}
	cfg := New("in-cluster",
		Cluster{Server: "https://" + net.JoinHostPort(host, port), CertificateAuthority: filepath.Join(dir, "ca.crt")},
		User{TokenFile: filepath.Join(dir, "token")})
	cfg.Contexts[0].Value.Namespace = namespace
	return cfg, nil
}

// ForDaemon returns the client configuration of a daemon: from the kubeconfig at path
// or, if path is empty, from the pod it runs in.
func ForDaemon(path, userAgent string) (client.Config, error) {
	var access *Config
	var err error
	if path == "" {
		access, err = InCluster()
		if errors.Is(err, ErrNotInCluster) {
			err = fmt.Errorf("--kubeconfig is needed: %w", err)
		}
	} else {
		access, err = Load(path)
	}
	if err != nil {
		return client.Config{}, err
	}
	cfg, _, err := access.Client("")
	cfg.UserAgent = userAgent
	return cfg, err
}
