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
	"podium/pkg/cluster/poll"
	"podium/pkg/scheme"
)

// JoinOptions say how the new machine and the cluster know each other.
type JoinOptions struct {
	Token  string
	Hashes []string // of the cluster's authority
	Unsafe bool     // no hash: trust whoever knows the token

	ControlPlane   bool   // be one of the control plane, too
	CertificateKey string // opens the keys that podium certs upload has shared
}

// Files of a machine that has joined.
const (
	bootstrapConf = "/etc/podium/bootstrap-kubelet.conf"
	kubeletConf   = "/etc/podium/kubelet.conf"
	kubeletCerts  = "/var/lib/kubelet/pki"
	proxyToken    = "/etc/podium/kube-proxy.token"
)

func (o JoinOptions) validate(c *Config) (bootstraptoken.Token, error) {
	t, err := parseToken(o.Token)
	errs := []error{err}
	if len(o.Hashes) == 0 && !o.Unsafe {
		errs = append(errs, errors.New("give --discovery-token-ca-cert-hash, so that nobody else can pass for the control plane (or, knowing that, --discovery-token-unsafe-skip-ca-verification)"))
	}
	for _, h := range o.Hashes {
		errs = append(errs, checkHash(h))
	}
	if host, port, err := net.SplitHostPort(c.Endpoint); err != nil || host == "" || !isPort(port) {
		errs = append(errs, fmt.Errorf("%q is not HOST:PORT of a control plane", c.Endpoint))
	}
	if o.ControlPlane {
		_, err := parseCertificateKey(o.CertificateKey)
		errs = append(errs, err)
	} else if o.CertificateKey != "" {
		errs = append(errs, errors.New("a certificate key is for --control-plane"))
	}
	return t, errors.Join(errs...)
}

// Join makes this machine a node of the cluster at cfg.Endpoint. What is wrong
// with the machine, the token or the cluster is told before anything is
// written; a run that failed later is simply run again.
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

// joining is a machine on its way into a cluster.
type joining struct {
	*machine
	token   bootstraptoken.Token
	options JoinOptions

	found      found
	proxyToken []byte
	key        certificateKey
	shared     map[string][]byte // by name, below pkiDir
}

// patience is how long a cluster may take to do what follows on a new token,
// or on its first start: sign cluster-info, make kube-proxy's token.
const patience = 15 * time.Second

func (j *joining) discover(ctx context.Context, waiting func(string)) (err error) {
	if err := j.retry(ctx, waiting, errUnsigned, func(ctx context.Context) (err error) {
		j.found, err = j.machine.discover(ctx, j.token, j.options.Hashes)
		return err
	}); err != nil {
		return err
	}
	have, err := os.ReadFile(j.at(pkiDir, "ca.crt"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && string(have) != string(j.found.ca) {
		err = errors.New("this machine is part of another cluster already: to leave that one, podium reset")
	}
	return err
}

// user is the token's: it may read what joining machines need.
func (j *joining) user() kubeconfig.User { return kubeconfig.User{Token: j.token.String()} }

// retry tries again while the error is of that kind.
func (j *joining) retry(ctx context.Context, waiting func(string), kind error, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var last error
	_ = poll.Until(ctx, 200*time.Millisecond, func(ctx context.Context) error {
		err := try(ctx)
		if err != nil && ctx.Err() != nil && last != nil {
			return last // it failed because time ran out: what was wrong before says more
		}
		if last = err; !errors.Is(err, kind) {
			return nil
		}
		waiting(err.Error())
		return err
	})
	return last
}

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
		return err // a control plane makes kube-proxy's credentials itself
	}
	return j.retry(ctx, waiting, errNoToken, func(ctx context.Context) error { return j.readProxyToken(ctx, cl) })
}

// tokenClient speaks to the cluster as the token's user, by the server that
// was named: the one that the cluster names may be down.
func (j *joining) tokenClient() (*client.Client, error) {
	cfg, _, err := kubeconfig.New(j.Cluster, j.cluster(j.found.ca, j.entry, j.found.server), j.user()).Client("")
	if err != nil {
		return nil, err
	}
	return client.New(scheme.New(), cfg)
}

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

// checkName finds another machine of our name. Our own node, from a run that
// did not come to its end, is no clash.
func (j *joining) checkName(ctx context.Context, cl *client.Client) error {
	node, err := client.For[*corev1.Node](cl).Get(ctx, j.Node)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask whether the name %s is free: %w", j.Node, err)
	}
	if _, err := os.Stat(j.at(kubeletConf)); err == nil {
		return nil
	}
	return fmt.Errorf("the cluster has a node %s already (it is %s): give this machine another name (--node-name), or if that one is gone for good: podium delete node %s",
		j.Node, readiness(node), j.Node)
}

func readiness(node *corev1.Node) string {
	if poll.NodeReady(node) == nil {
		return "Ready"
	}
	return "not Ready"
}

func (j *joining) write(context.Context) error {
	if err := os.MkdirAll(j.at(pkiDir), 0o700); err != nil {
		return err
	}
	if err := j.remember(); err != nil {
		return err
	}
	if _, err := writeFile(j.at(pkiDir, "ca.crt"), j.found.ca, 0o644); err != nil {
		return err
	}
	if !j.hasCredential() {
		if err := j.saveKubeconfig(filepath.Base(bootstrapConf), j.cluster(j.found.ca, j.server()), j.user()); err != nil {
			return err
		}
	}
	changed, err := writeFile(j.at(proxyToken), j.proxyToken, 0o600)
	if err != nil {
		return err
	}
	j.renewed = j.renewed || changed
	return j.saveKubeconfig(kubeconfigs+"/kube-proxy.conf", j.cluster(j.found.ca, j.server()), kubeconfig.User{TokenFile: proxyToken})
}

// hasCredential says whether the kubelet can do without the token: a run
// before has brought it a certificate, and that has not ended since.
func (j *joining) hasCredential() bool {
	if _, err := os.Stat(j.at(kubeletConf)); err != nil {
		return false
	}
	cert := readHeld("", j.at(kubeletCerts, "kubelet-client-current.pem"))
	return cert.problem == "" && j.Now().Before(cert.until)
}

// kubelet gets its certificates from the cluster, and renews them there.
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

// ready asks as the kubelet: once it has a certificate, the token is not
// needed any more.
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
		node, err := client.For[*corev1.Node](cl).Get(ctx, j.Node)
		if err != nil {
			return err
		}
		return j.up(node)
	}, "kubelet", "kube-proxy")
	if err != nil {
		return err
	}
	if err := os.Remove(j.at(bootstrapConf)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
