package pods

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The first lines of the hosts files that the kubelet writes; tests look for them.
const (
	hostsHeader     = "# Kubernetes-managed hosts file.\n"
	hostsHeaderHost = "# Kubernetes-managed hosts file (host network).\n"
)

const hostsDefault = `127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
`

// writeHosts writes the pod's /etc/hosts and returns its path.
func (m *Manager) writeHosts(pod *corev1.Pod, ips []string) (string, error) {
	var host []byte
	if pod.Spec.HostNetwork {
		var err error
		if host, err = os.ReadFile(m.cfg.HostsFile); err != nil {
			return "", err
		}
	}
	path := m.hostsPath(pod.UID)
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	// Write in place: running containers have this file mounted.
	if err := os.WriteFile(path, hostsFile(pod, ips, host, m.cfg.ClusterDomain), 0o644); err != nil {
		return "", err
	}
	return path, nil
}

// hostsPath returns the path of the pod's /etc/hosts on the node.
func (m *Manager) hostsPath(uid types.UID) string { return filepath.Join(m.podDir(uid), "etc-hosts") }

// hostsFile returns the file's content. host is the node's own file, for pods on
// the host's network.
func hostsFile(pod *corev1.Pod, ips []string, host []byte, domain string) []byte {
	var b bytes.Buffer
	if pod.Spec.HostNetwork {
		b.WriteString(hostsHeaderHost)
		b.Write(host)
	} else {
		b.WriteString(hostsHeader)
		b.WriteString(hostsDefault)
		name := hostname(pod, domain)
		if full := hostDomain(pod, domain); full != "" && !strings.HasSuffix(name, "."+full) {
			name = name + "." + full + "\t" + name
		}
		for _, ip := range ips {
			fmt.Fprintf(&b, "%s\t%s\n", ip, name)
		}
	}
	if len(pod.Spec.HostAliases) > 0 {
		b.WriteString("\n# Entries added by HostAliases.\n")
		for _, a := range pod.Spec.HostAliases {
			fmt.Fprintf(&b, "%s\t%s\n", a.IP, strings.Join(a.Hostnames, "\t"))
		}
	}
	return b.Bytes()
}

// writeMessageFile creates the empty termination message file of a container and
// returns its path.
func (m *Manager) writeMessageFile(uid types.UID, name string, attempt int32) (string, error) {
	path := filepath.Join(m.podDir(uid), "containers", name, fmt.Sprintf("%08x", attempt))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return "", err
	}
	// The container may run as any user, so the umask must not apply.
	if err := f.Chmod(0o666); err != nil {
		f.Close()
		return "", err
	}
	return path, f.Close()
}

// identityFile is a file in the pod's directory with its namespace and name, for a
// restarted kubelet that finds nothing else of the pod.
const identityFile = "pod"

func (m *Manager) writeIdentity(pod *corev1.Pod) error {
	dir := m.podDir(pod.UID)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, identityFile), []byte(pod.Namespace+"/"+pod.Name), 0o640)
}

// leftDirs returns the pods that have a directory below RootDir.
func (m *Manager) leftDirs() []*corev1.Pod {
	entries, err := os.ReadDir(filepath.Join(m.cfg.RootDir, "pods"))
	if err != nil {
		return nil // there has been no pod yet
	}
	var out []*corev1.Pod
	for _, e := range entries {
		pod := unknownPod(types.UID(e.Name()))
		if data, err := os.ReadFile(filepath.Join(m.podDir(pod.UID), identityFile)); err == nil {
			if namespace, name, ok := strings.Cut(string(data), "/"); ok && filepath.IsLocal(name) && filepath.IsLocal(namespace) {
				pod.Namespace, pod.Name = namespace, name
			}
		}
		out = append(out, pod)
	}
	return out
}

func unknownPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Name: "unknown", Namespace: "unknown"}}
}
