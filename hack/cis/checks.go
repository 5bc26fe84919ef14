package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"sigs.k8s.io/yaml"
)

const (
	api      = "kube-apiserver"
	manager  = "kube-controller-manager"
	schedule = "kube-scheduler"
	agent    = "kubelet"
	network  = "kube-proxy"
)

// checks returns the checks with the numbers of the benchmark.
func checks() []check {
	atAPI, atKubelet := (*cluster).apiserver, (*cluster).kubelet
	return []check{
		{"1.1.1", "processes' records are 600 or stricter, root's", closed("pids", 0o077, "pids")},
		{"1.1.11", "etcd's data is 700 or stricter", closed("etcd", 0o077)},
		{"1.1.13", "the administrator's kubeconfig is 600, root's", closed("kubeconfig", 0o077)},
		{"1.1.15", "the scheduler's kubeconfig is 600, root's", closed("kubeconfigs/kube-scheduler.conf", 0o077)},
		{"1.1.17", "the controllers' kubeconfig is 600, root's", closed("kubeconfigs/kube-controller-manager.conf", 0o077)},
		{"1.1.20", "certificates are 644 or stricter, root's", closed("pki/*.crt", 0o133)},
		{"1.1.21", "keys are 600, root's", closed("pki/*.key", 0o177)},
		{"1.1.21", "the key of the Secrets is 600, root's", closed("pki/encryption.yaml", 0o177)},
		{"1.2.1", "strangers read nothing", both(refuses(atAPI, "/api/v1/namespaces", ""), refuses(atAPI, "/metrics", ""))},
		{"1.2.2", "no file of static tokens", absent(api, "token-auth-file")},
		{"1.2.4", "kubelets know the apiserver by its certificate", set(api, "kubelet-client-certificate", "kubelet-client-key")},
		{"1.2.5", "kubelets' certificates are verified", set(api, "kubelet-certificate-authority")},
		{"1.2.6", "not everything is allowed", lists(api, "authorization-mode", "AlwaysAllow", false)},
		{"1.2.7", "nodes are held to what is theirs", lists(api, "authorization-mode", "Node", true)},
		{"1.2.8", "roles say who may do what", lists(api, "authorization-mode", "RBAC", true)},
		{"1.2.10", "not everything is admitted", lists(api, "enable-admission-plugins", "AlwaysAdmit", false)},
		{"1.2.13", "admission ServiceAccount is on", admits("ServiceAccount")},
		{"1.2.14", "admission NamespaceLifecycle is on", admits("NamespaceLifecycle")},
		{"1.2.15", "admission NodeRestriction is on", admits("NodeRestriction")},
		{"1.2.16", "profiling is off", is(api, "profiling", "false")},
		{"1.2.17", "there is an audit log", set(api, "audit-log-path")},
		{"1.2.18", "it is kept for 30 days or longer", atLeast(api, "audit-log-maxage", 30)},
		{"1.2.19", "10 or more old ones are kept", atLeast(api, "audit-log-maxbackup", 10)},
		{"1.2.20", "it gets 100 MB or larger", atLeast(api, "audit-log-maxsize", 100)},
		{"1.2.21", "requests take no longer than they may", set(api, "request-timeout")},
		{"1.2.23", "tokens are verified by keys of their own", set(api, "service-account-key-file", "service-account-signing-key-file")},
		{"1.2.24", "only the API server reaches etcd", both(absentServers, nothingListens("2379"), nothingListens("2380"))},
		{"1.2.25", "the apiserver has a certificate", set(api, "tls-cert-file", "tls-private-key-file")},
		{"1.2.26", "clients are known by certificates", set(api, "client-ca-file")},
		{"1.2.28", "Secrets are encrypted", set(api, "encryption-provider-config")},
		{"1.2.29", "by a strong provider", encrypted},
		{"1.2.30", "the apiserver speaks modern TLS only", modernTLS(atAPI)},
		{"1.3.2", "the controllers' profiling is off", is(manager, "profiling", "false")},
		{"1.3.3", "each controller has an account of its own", is(manager, "use-service-account-credentials", "true")},
		{"1.3.4", "tokens have a signing key", set(manager, "service-account-private-key-file")},
		{"1.3.5", "pods are told the cluster's authority", set(manager, "root-ca-file")},
		{"1.3.6", "kubelets' serving certificates are rotated", is(agent, "rotate-server-certificates", "true")},
		{"1.3.7", "the controllers answer on this machine only", is(manager, "bind-address", "127.0.0.1")},
		{"1.4.1", "the scheduler's profiling is off", is(schedule, "profiling", "false")},
		{"1.4.2", "the scheduler answers on this machine only", is(schedule, "bind-address", "127.0.0.1")},
		{"3.2.1", "there is an audit policy", set(api, "audit-policy-file")},
		{"3.2.2", "it covers secrets and changes", covers},
		{"3.2.1", "the audit log is 600, root's", closed("logs/audit.log", 0o177)},
		{"4.1.3", "kube-proxy's kubeconfig is 600, root's", closed("kubeconfigs/kube-proxy.conf", 0o077)},
		{"4.1.5", "the kubelet's kubeconfig is 600, root's", closed("kubeconfigs/kubelet.conf", 0o077)},
		{"4.1.7", "the clients' authority is 644 or stricter, root's", closed("pki/ca.crt", 0o133)},
		{"4.2.1", "strangers learn nothing from the kubelet", both(is(agent, "anonymous-auth", "false"), refuses(atKubelet, "/pods", ""))},
		{"4.2.2", "the kubelet asks who may do what", both(is(agent, "authorization-mode", "Webhook"), refuses(atKubelet, "/pods", "kube-proxy"))},
		{"4.2.3", "the kubelet's clients are known by certificates", set(agent, "client-ca-file")},
		{"4.2.4", "the kubelet has no read-only port", nothingListens("10255")},
		{"4.2.10", "the kubelet's certificate is rotated", is(agent, "rotate-certificates", "true")},
		{"4.2.12", "the kubelet speaks modern TLS only", modernTLS(atKubelet)},
		{"4.2.14", "pods have a seccomp profile", is(agent, "seccomp-default", "true")},
		{"4.3.1", "kube-proxy's metrics are for this machine only", local(network, "metrics-bind-address")},
	}
}

// absentServers requires etcd to be embedded in the apiserver.
func absentServers(c *cluster) (string, error) {
	if servers := c.setting(api, "etcd-servers"); servers != "" {
		return "", fmt.Errorf("--etcd-servers=%s: look at how they are protected", servers)
	}
	return "etcd is inside the apiserver", nil
}

func nothingListens(port string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		for _, host := range []string{"127.0.0.1", c.setting(agent, "node-ip")} {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), time.Second)
			if err == nil {
				conn.Close()
				return "", fmt.Errorf("something listens at %s:%s", host, port)
			}
		}
		return "nothing listens at " + port, nil
	}
}

// local requires a flag's address to be a loopback address.
func local(of, flag string) func(*cluster) (string, error) {
	return func(c *cluster) (string, error) {
		got := c.setting(of, flag)
		if host, _, err := net.SplitHostPort(got); err != nil || host != "127.0.0.1" && host != "::1" && host != "localhost" {
			return "", fmt.Errorf("--%s=%s", flag, got)
		}
		return fmt.Sprintf("--%s=%s", flag, got), nil
	}
}

// encrypted requires the provider that writes Secrets to be aescbc, kms or
// secretbox. It prints nothing of the file, which contains the key.
func encrypted(c *cluster) (string, error) {
	data, err := os.ReadFile(c.setting(api, "encryption-provider-config"))
	if err != nil {
		return "", err
	}
	var config struct {
		Resources []struct {
			Resources []string         `json:"resources"`
			Providers []map[string]any `json:"providers"`
		} `json:"resources"`
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return "", errors.New("the configuration cannot be read")
	}
	for _, r := range config.Resources {
		if !slices.Contains(r.Resources, "secrets") || len(r.Providers) == 0 {
			continue
		}
		for name := range r.Providers[0] {
			if slices.Contains([]string{"aescbc", "kms", "secretbox"}, name) {
				return "secrets by " + name, nil
			}
			return "", fmt.Errorf("%s writes secrets", name)
		}
	}
	return "", errors.New("secrets are not encrypted")
}

// policyRule holds the parts of an audit policy's rule that covers inspects.
type policyRule struct {
	Level     string   `json:"level"`
	Users     []string `json:"users"`
	Groups    []string `json:"userGroups"`
	Verbs     []string `json:"verbs"`
	URLs      []string `json:"nonResourceURLs"`
	Resources []struct {
		Resources []string `json:"resources"`
	} `json:"resources"`
}

func (r *policyRule) forAll() bool {
	return len(r.Users)+len(r.Groups)+len(r.Verbs)+len(r.URLs) == 0
}

func (r *policyRule) names(resource string) bool {
	for _, group := range r.Resources {
		if slices.Contains(group.Resources, resource) {
			return true
		}
	}
	return false
}

// covers requires the audit policy to record all access to secrets, before any
// rule that omits something, and to have a rule for all other requests.
func covers(c *cluster) (string, error) {
	data, err := os.ReadFile(c.setting(api, "audit-policy-file"))
	if err != nil {
		return "", err
	}
	var policy struct {
		Rules []policyRule `json:"rules"`
	}
	if err := yaml.Unmarshal(data, &policy); err != nil {
		return "", err
	}
	secrets := false
	for i := range policy.Rules {
		r := &policy.Rules[i]
		switch {
		case r.forAll() && r.Level != "None" && r.names("secrets"):
			secrets = true
		case r.forAll() && r.Level != "None" && len(r.Resources) == 0 && secrets:
			return "secrets, and all that no other rule names", nil
		case r.Level == "None" && !secrets && len(r.URLs) == 0:
			return "", fmt.Errorf("rule %d may leave out what is done to secrets", i)
		}
	}
	return "", errors.New("not all that is done is recorded")
}
