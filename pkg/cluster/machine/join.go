package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/yaml"

	"podium/pkg/client"
	"podium/pkg/client/bootstraptoken"
	"podium/pkg/client/kubeconfig"
	"podium/pkg/cluster/files"
	"podium/pkg/cluster/machine/join"
	"podium/pkg/cluster/machine/upgrade"
	"podium/pkg/cluster/poll"
	"podium/pkg/scheme"
)

// JoinOptions hold how the new machine and the cluster authenticate each other.
type JoinOptions struct {
	Token  string
	Hashes []string // of the cluster CA's public key, as sha256:HEX
	Unsafe bool     // no hash needed: trust any server that has the token

	ControlPlane   bool   // join as a control plane
	CertificateKey string // decrypts the files that podium certs upload has shared
}

// Files of a machine that has joined.
const (
	bootstrapConf = "/etc/podium/bootstrap-kubelet.conf"
	kubeletConf   = "/etc/podium/kubelet.conf"
	kubeletCerts  = "/var/lib/kubelet/pki"
	proxyToken    = "/etc/podium/kube-proxy.token"
)

// validate reports all errors of the options at once, and returns the parsed
// token.
func (o JoinOptions) validate(c *Config) (bootstraptoken.Token, error) {
	t, err := parseToken(o.Token)
	errs := []error{err}
	if len(o.Hashes) == 0 && !o.Unsafe {
		errs = append(errs, errors.New("set --discovery-token-ca-cert-hash, so that no other server can impersonate the control plane (--discovery-token-unsafe-skip-ca-verification accepts that risk)"))
	}
	for _, h := range o.Hashes {
		errs = append(errs, join.CheckHash(h))
	}
	if host, port, err := net.SplitHostPort(c.Endpoint); err != nil || host == "" || !isPort(port) {
		errs = append(errs, fmt.Errorf("%q is not HOST:PORT of a control plane", c.Endpoint))
	}
	if o.ControlPlane {
		_, err := join.ParseKey(o.CertificateKey)
		errs = append(errs, err)
	} else if o.CertificateKey != "" {
		errs = append(errs, errors.New("a certificate key is for --control-plane"))
	}
	return t, errors.Join(errs...)
}

// Join makes this machine a node of the cluster at cfg.Endpoint and blocks
// until the node is Ready. It checks the machine, the token and the cluster
// before it writes anything. It is idempotent: after a failure, call it again.
func Join(ctx context.Context, cfg Config, host Host, o JoinOptions) error {
	token, err := o.validate(&cfg)
	if err != nil {
		return err
	}
	m, err := newMachine(cfg, host)
	if err != nil {
		return err
	}
	m.entry = m.server()
	j := &joining{machine: m, token: token, options: o}
	if o.ControlPlane {
		return j.asControlPlane(ctx)
	}
	return m.do(ctx, "this machine is a node of the cluster",
		step{"preflight checks", plain(func(ctx context.Context) error { return m.preflight(ctx, commonChecks()) })},
		step{"cluster found and trusted", j.discover},
		step{"settings of the cluster read", j.read},
		step{"credentials written", plain(j.write)},
		step{"containerd set up", plain(m.runtime)},
		step{"images loaded", m.images},
		step{"units started", plain(func(ctx context.Context) error { return m.start(ctx, []unit{j.kubelet(), m.proxy()}) })},
		step{"node " + m.Node + " Ready", j.ready},
	)
}

// joining is a machine while it joins a cluster.
type joining struct {
	*machine
	token   bootstraptoken.Token
	options JoinOptions

	found      join.Cluster
	proxyToken []byte
	key        join.Key
	shared     map[string][]byte // content by name, below pkiDir
}

// controllerTimeout is how long to wait for the controllers that act on a new token or
// at the start of a cluster: the one that signs cluster-info, and the one that
// creates kube-proxy's token.
const controllerTimeout = 15 * time.Second

// discover finds the cluster and verifies it. It returns an error if this
// machine belongs to another cluster.
func (j *joining) discover(ctx context.Context, waiting func(string)) (err error) {
	if err := j.retry(ctx, waiting, join.ErrUnsigned, func(ctx context.Context) (err error) {
		j.found, err = join.Discover(ctx, j.server(), j.Now(), j.token, j.options.Hashes)
		return err
	}); err != nil {
		return err
	}
	have, err := os.ReadFile(j.at(pkiDir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && string(have) != string(j.found.CA) {
		err = errors.New("this machine is part of another cluster already: to leave that one, podium reset")
	}
	return err
}

// user returns the token as credentials, which may read what joining machines
// need.
func (j *joining) user() kubeconfig.User { return kubeconfig.User{Token: j.token.String()} }

// retry calls try until it returns nil or an error of another kind, for at most
// controllerTimeout. It returns the last error.
func (j *joining) retry(ctx context.Context, waiting func(string), kind error, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, controllerTimeout)
	defer cancel()
	var last error
	_ = poll.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		err := try(ctx)
		if err != nil && ctx.Err() != nil && last != nil {
			return last // try failed because the time is over: the error before it is more useful
		}
		if last = err; !errors.Is(err, kind) {
			return nil
		}
		waiting(err.Error())
		return err
	})
	return last
}

// read reads the cluster's settings into the Config and, on a worker,
// kube-proxy's token.
func (j *joining) read(ctx context.Context, waiting func(string)) error {
	cl, err := j.tokenClient()
	if err != nil {
		return err
	}
	defer cl.CloseIdle()
	if err := j.checkName(ctx, cl); apierrors.IsUnauthorized(err) {
		return fmt.Errorf("the token %s has ended: make another on a control plane's machine: podium token create --print-join-command", j.token.ID)
	} else if err != nil {
		return err
	}
	config, err := client.For[*corev1.ConfigMap](cl).In(systemNamespace).Get(ctx, setupName)
	if err != nil {
		return fmt.Errorf("read how the cluster is set up: %w", err)
	}
	var s setup
	if err := yaml.UnmarshalStrict([]byte(config.Data[setupKey]), &s); err != nil {
		return fmt.Errorf("ConfigMap %s: %w", setupName, err)
	}
	j.Cluster, j.Endpoint, j.PodCIDR, j.ServiceCIDR, j.DNSDomain, j.PodNetwork, j.Cloud, j.PodSecurity = s.Cluster, s.Endpoint, s.PodCIDR, s.ServiceCIDR, s.DNSDomain, s.PodNetwork, s.Cloud, s.PodSecurity
	if err := j.Validate(); err != nil || j.options.ControlPlane {
		return err // a control plane signs kube-proxy's certificate itself
	}
	return j.retry(ctx, waiting, errNoToken, func(ctx context.Context) error { return j.readProxyToken(ctx, cl) })
}

// tokenClient returns a client with the token's credentials. It tries the
// server that join was called with first: the endpoint that the cluster names
// may be down.
func (j *joining) tokenClient() (*client.Client, error) {
	cfg, _, err := kubeconfig.New(j.Cluster, j.cluster(j.found.CA, j.entry, j.found.Server), j.user()).Client("")
	if err != nil {
		return nil, err
	}
	return client.New(scheme.New(), cfg)
}

// errNoToken means that the controller has not created kube-proxy's token yet.
var errNoToken = fmt.Errorf("the Secret %s/%s has no token: does kube-controller-manager run?", systemNamespace, proxySecret)

func (j *joining) readProxyToken(ctx context.Context, cl *client.Client) error {
	secret, err := client.For[*corev1.Secret](cl).In(systemNamespace).Get(ctx, proxySecret)
	if err != nil {
		return fmt.Errorf("read kube-proxy's credentials: %w", err)
	}
	if j.proxyToken = secret.Data[corev1.ServiceAccountTokenKey]; len(j.proxyToken) == 0 {
		return errNoToken
	}
	return nil
}

// checkName returns an error if another machine has registered a node with our
// name. A node that an unfinished run on this machine has registered does not
// count.
func (j *joining) checkName(ctx context.Context, cl *client.Client) error {
	node, err := client.For[*corev1.Node](cl).Get(ctx, j.Node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("check whether the name %s is free: %w", j.Node, err)
	}
	if _, err := os.Stat(j.at(kubeletConf)); err == nil {
		return nil
	}
	return fmt.Errorf("the cluster has a node %s already (it is %s): give this machine another name (--node-name), or if that one is gone for good: podium delete node %s",
		j.Node, upgrade.Readiness(node), j.Node)
}

// write writes the CA and the credentials of the kubelet and kube-proxy.
func (j *joining) write(context.Context) error {
	if err := os.MkdirAll(j.at(pkiDir), 0o700); err != nil {
		return err
	}
	if err := j.saveConfig(); err != nil {
		return err
	}
	if _, err := files.Write(j.at(pkiDir, "ca.crt"), j.found.CA, 0o644); err != nil {
		return err
	}
	if !j.hasCredential() {
		if err := j.saveKubeconfig(filepath.Base(bootstrapConf), j.cluster(j.found.CA, j.server()), j.user()); err != nil {
			return err
		}
	}
	changed, err := files.Write(j.at(proxyToken), j.proxyToken, 0o600)
	if err != nil {
		return err
	}
	j.renewed = j.renewed || changed
	return j.saveKubeconfig(kubeconfigs+"/kube-proxy.conf", j.cluster(j.found.CA, j.server()), kubeconfig.User{TokenFile: proxyToken})
}

// hasCredential reports whether the kubelet has a valid client certificate from
// an earlier run, so that it does not need the token.
func (j *joining) hasCredential() bool {
	if _, err := os.Stat(j.at(kubeletConf)); err != nil {
		return false
	}
	cert := readHeld("", j.at(kubeletCerts, "kubelet-client-current.pem"))
	return cert.problem == "" && j.Now().Before(cert.until)
}

// kubelet returns the kubelet's unit for a worker, which gets its certificates
// from the cluster and renews them there.
func (j *joining) kubelet() unit {
	u := j.machine.kubelet()
	delete(u.conf, "tlsCertFile")
	delete(u.conf, "tlsPrivateKeyFile")
	u.conf["bootstrapKubeconfig"] = bootstrapConf
	u.conf["certDir"] = kubeletCerts
	u.conf["rotateCertificates"] = true
	u.conf["rotateServerCertificates"] = true
	return u
}

// ready waits with the kubelet's credentials until the node is Ready, and then
// removes the bootstrap kubeconfig: the kubelet no longer needs the token.
func (j *joining) ready(ctx context.Context, waiting func(string)) error {
	err := j.wait(ctx, waiting, func(ctx context.Context) error {
		config, err := kubeconfig.Load(j.at(kubeletConf))
		if errors.Is(err, fs.ErrNotExist) {
			return errors.New("the kubelet waits for its certificate")
		}
		if err != nil {
			return err
		}
		cfg, _, err := config.Client("")
		if err != nil {
			return err
		}
		cl, err := client.New(scheme.New(), cfg)
		if err != nil {
			return err
		}
		defer cl.CloseIdle()
		return poll.Node(cl, j.Node, j.up)(ctx)
	}, "kubelet", "kube-proxy")
	if err != nil {
		return err
	}
	if err := os.Remove(j.at(bootstrapConf)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
