package pods

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The limits of a resolver; longer lists are truncated.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// dnsConfig returns the content of the pod's resolv.conf.
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-s-dns-policy
func (m *Manager) dnsConfig(pod *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	host, err := readResolvConf(m.cfg.ResolvConf)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.DNSConfig{}
	switch policy := dnsPolicy(pod); {
	case policy == corev1.DNSNone:
	case policy == corev1.DNSClusterFirst && len(m.cfg.ClusterDNS) > 0:
		out.Servers = slices.Clone(m.cfg.ClusterDNS)
		if d := m.cfg.ClusterDomain; d != "" {
			out.Searches = []string{pod.Namespace + ".svc." + d, "svc." + d, d}
		}
		out.Searches = unique(append(out.Searches, host.Searches...))
		out.Options = []string{"ndots:5"}
	case policy == corev1.DNSClusterFirst:
		m.cfg.Events.EventOn(pod, "", corev1.EventTypeWarning, "MissingClusterDNS",
			fmt.Sprintf("pod: %q. kubelet does not have ClusterDNS IP configured and cannot create Pod using %q policy. Falling back to %q policy.", describe(pod), pod.Spec.DNSPolicy, "Default"))
		out = host
	default:
		out = host
	}
	if c := pod.Spec.DNSConfig; c != nil {
		out.Servers = unique(append(out.Servers, c.Nameservers...))
		out.Searches = unique(append(out.Searches, c.Searches...))
		out.Options = mergeOptions(out.Options, c.Options)
	}
	out.Servers = out.Servers[:min(len(out.Servers), maxNameservers)]
	out.Searches = bounded(out.Searches)
	return out, nil
}

// dnsPolicy returns the effective DNS policy: for pods on the host's network,
// ClusterFirst means Default.
func dnsPolicy(pod *corev1.Pod) corev1.DNSPolicy {
	switch p := pod.Spec.DNSPolicy; p {
	case corev1.DNSNone, corev1.DNSDefault:
		return p
	case corev1.DNSClusterFirstWithHostNet:
		return corev1.DNSClusterFirst
	}
	if pod.Spec.HostNetwork {
		return corev1.DNSDefault
	}
	return corev1.DNSClusterFirst
}

func readResolvConf(path string) (*runtimeapi.DNSConfig, error) {
	if path == "" {
		return &runtimeapi.DNSConfig{}, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the host's resolv.conf (--resolv-conf): %w", err)
	}
	return parseResolvConf(data), nil
}

// parseResolvConf parses a resolv.conf(5); the last search line wins.
func parseResolvConf(data []byte) *runtimeapi.DNSConfig {
	out := &runtimeapi.DNSConfig{}
	scan := bufio.NewScanner(bytes.NewReader(data))
	for scan.Scan() {
		line, _, _ := strings.Cut(scan.Text(), "#")
		line, _, _ = strings.Cut(line, ";")
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			out.Servers = append(out.Servers, fields[1])
		case "search":
			out.Searches = nil
			for _, s := range fields[1:] {
				if s != "." {
					s = strings.TrimSuffix(s, ".")
				}
				out.Searches = append(out.Searches, s)
			}
		case "options":
			out.Options = append(out.Options, fields[1:]...)
		}
	}
	return out
}

func unique(in []string) []string {
	seen := map[string]bool{}
	var out []string
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// mergeOptions returns have with the pod's options, which replace those of the
// same name.
func mergeOptions(have []string, more []corev1.PodDNSConfigOption) []string {
	name := func(o string) string { n, _, _ := strings.Cut(o, ":"); return n }
	out := slices.Clone(have)
	for _, o := range more {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		if i := slices.IndexFunc(out, func(s string) bool { return name(s) == o.Name }); i >= 0 {
			out[i] = text
		} else {
			out = append(out, text)
		}
	}
	return out
}

func bounded(searches []string) []string {
	searches = searches[:min(len(searches), maxSearches)]
	for len(strings.Join(searches, " ")) > maxSearchChars {
		searches = searches[:len(searches)-1]
	}
	return searches
}
