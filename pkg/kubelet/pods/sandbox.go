package pods

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/sysctls"
	"podium/pkg/kubelet/userns"
)

// maxHostname is the kernel's limit for a hostname, without the final NUL.
const maxHostname = 63

// sandboxConfig returns the configuration of the pod's sandbox.
func (m *Manager) sandboxConfig(pod *corev1.Pod, attempt uint32, cgroupParent string) (*runtimeapi.PodSandboxConfig, error) {
	dns, err := m.dnsConfig(pod)
	if err != nil {
		return nil, err
	}
	shared, err := m.namespaces(pod)
	if err != nil {
		return nil, err
	}
	c := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt},
		LogDirectory: m.logDir(pod),
		DnsConfig:    dns,
		Labels:       podLabels(pod),
		Annotations:  maps.Clone(pod.Annotations),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    cgroupParent,
			SecurityContext: sandboxSecurity(pod, shared),
		},
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[cri.AnnotationGracePeriod] = strconv.FormatInt(int64(specGracePeriod(pod).Seconds()), 10)
	if !pod.Spec.HostNetwork {
		c.Hostname = hostname(pod, m.cfg.ClusterDomain)
	}
	for spec := range podspec.Main(pod) {
		for _, p := range spec.Ports {
			if p.HostPort > 0 && !pod.Spec.HostNetwork {
				c.PortMappings = append(c.PortMappings, &runtimeapi.PortMapping{
					Protocol: protocol(p.Protocol), ContainerPort: p.ContainerPort, HostPort: p.HostPort, HostIp: p.HostIP,
				})
			}
		}
	}
	c.Linux.Sysctls = m.sysctls(pod)
	if len(pod.Spec.Overhead) > 0 {
		c.Linux.Overhead = &runtimeapi.LinuxContainerResources{
			CpuShares: resources.Shares(pod.Spec.Overhead.Cpu().MilliValue()), MemoryLimitInBytes: pod.Spec.Overhead.Memory().Value(),
		}
	}
	c.Linux.Resources = m.sandboxResources(pod)
	return c, nil
}

// pingGroups is the sysctl with the groups whose processes may send ICMP echo
// requests without NET_RAW.
const pingGroups = "net.ipv4.ping_group_range"

// sysctls returns the sysctls of the pod's namespaces. If containers lack NET_RAW,
// it allows ping for every group, unless the pod sets the range itself.
func (m *Manager) sysctls(pod *corev1.Pod) map[string]string {
	out := map[string]string{}
	if m.cfg.Host.PingGroups && !m.cfg.AllowNetRaw && !pod.Spec.HostNetwork {
		out[pingGroups] = "0 2147483647"
		if wantsUserNS(pod) {
			out[pingGroups] = fmt.Sprintf("0 %d", userns.Length-1) // the kernel rejects groups that the namespace does not map
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		for _, ctl := range s.Sysctls {
			out[sysctls.Name(ctl.Name)] = ctl.Value
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// podLabels returns the pod's labels and those by which the kubelet identifies it.
func podLabels(pod *corev1.Pod) map[string]string {
	l := maps.Clone(pod.Labels)
	if l == nil {
		l = map[string]string{}
	}
	l[cri.LabelPodName], l[cri.LabelPodNamespace], l[cri.LabelPodUID] = pod.Name, pod.Namespace, string(pod.UID)
	return l
}

// hostname returns the hostname of the pod's containers.
func hostname(pod *corev1.Pod, domain string) string {
	if overridesHostname(pod) {
		return *pod.Spec.HostnameOverride
	}
	name := pod.Name
	if pod.Spec.Hostname != "" {
		name = pod.Spec.Hostname
	}
	if len(name) > maxHostname {
		name = strings.TrimRight(name[:maxHostname], "-.")
	}
	if full := hostDomain(pod, domain); full != "" && pod.Spec.SetHostnameAsFQDN != nil && *pod.Spec.SetHostnameAsFQDN {
		return name + "." + full
	}
	return name
}

func overridesHostname(pod *corev1.Pod) bool {
	return pod.Spec.HostnameOverride != nil && *pod.Spec.HostnameOverride != ""
}

// hostDomain returns the pod's domain in the cluster's DNS. It returns "" for a pod
// without a subdomain, and for one whose hostname is not its name in the DNS.
func hostDomain(pod *corev1.Pod, domain string) string {
	if pod.Spec.Subdomain == "" || overridesHostname(pod) {
		return ""
	}
	return strings.TrimSuffix(pod.Spec.Subdomain+"."+pod.Namespace+".svc."+domain, ".")
}

func protocol(p corev1.Protocol) runtimeapi.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case corev1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}

// namespaces returns how the pod shares kernel namespaces.
func (m *Manager) namespaces(pod *corev1.Pod) (*runtimeapi.NamespaceOption, error) {
	n := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if wantsUserNS(pod) {
		var err error
		if n.UsernsOptions, err = m.cfg.UserNS.Of(pod.UID); err != nil {
			return nil, err
		}
	}
	if pod.Spec.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if pod.Spec.HostIPC {
		n.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case pod.Spec.HostPID:
		n.Pid = runtimeapi.NamespaceMode_NODE
	case pod.Spec.ShareProcessNamespace != nil && *pod.Spec.ShareProcessNamespace:
		n.Pid = runtimeapi.NamespaceMode_POD
	}
	return n, nil
}

func sandboxSecurity(pod *corev1.Pod, shared *runtimeapi.NamespaceOption) *runtimeapi.LinuxSandboxSecurityContext {
	s := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: shared,
		Privileged:       anyPrivileged(pod),
		Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	p := pod.Spec.SecurityContext
	if p == nil {
		return s
	}
	s.RunAsUser, s.RunAsGroup = int64Value(p.RunAsUser), int64Value(p.RunAsGroup)
	if s.RunAsUser == nil {
		s.RunAsGroup = nil // the runtime rejects a group without a user
	}
	s.SupplementalGroups = groups(p)
	if wantsStrictGroups(pod) {
		s.SupplementalGroupsPolicy = runtimeapi.SupplementalGroupsPolicy_Strict
	}
	s.SelinuxOptions = selinux(p.SELinuxOptions)
	return s
}

func anyPrivileged(pod *corev1.Pod) bool {
	return podspec.Find(pod, func(c *corev1.Container) bool {
		return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	}) != nil
}

func groups(p *corev1.PodSecurityContext) []int64 {
	out := slices.Clone(p.SupplementalGroups)
	if p.FSGroup != nil {
		out = append(out, *p.FSGroup)
	}
	return out
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

func selinux(o *corev1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

// podDir returns the directory of the kubelet's files of the pod.
func (m *Manager) podDir(uid types.UID) string {
	return filepath.Join(m.cfg.RootDir, "pods", string(uid))
}

// logDir returns the directory to which the runtime writes the pod's logs.
func (m *Manager) logDir(pod *corev1.Pod) string {
	return filepath.Join(m.cfg.LogsDir, strings.Join([]string{pod.Namespace, pod.Name, string(pod.UID)}, "_"))
}

func makeLogDir(dir string) error { return os.MkdirAll(dir, 0o755) }
