package podsecurity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func appArmor(s subject) *Violation {
	var who culprits
	var bad values
	wrong := func(p *corev1.AppArmorProfile) bool {
		if p == nil || p.Type == corev1.AppArmorProfileTypeRuntimeDefault || p.Type == corev1.AppArmorProfileTypeLocalhost {
			return false
		}
		bad.add(string(p.Type))
		return true
	}
	who.pod = wrong(s.pod().AppArmorProfile)
	who.containers = s.with(func(c *corev1.Container) bool { return wrong(security(c).AppArmorProfile) })

	var annotations values
	for key, v := range s.meta.Annotations {
		allowed := v == "" || v == corev1.DeprecatedAppArmorBetaProfileRuntimeDefault || strings.HasPrefix(v, corev1.DeprecatedAppArmorBetaProfileNamePrefix)
		if strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix) && !allowed {
			annotations.add(fmt.Sprintf("%s=%q", key, v))
		}
	}
	if !who.any() && len(annotations) == 0 {
		return nil
	}
	var setters []string
	if who.any() {
		setters = append(setters, who.String())
	}
	if len(annotations) > 0 {
		setters = append(setters, plural("annotation", len(annotations)))
	}
	all := slices.Concat(bad, annotations)
	return violation(plural("forbidden AppArmor profile", len(all)), "%s must not set AppArmor profile type to %s", strings.Join(setters, " and "), quote(all))
}

// ordinaryCapabilities are those that runtimes give anyway, and so may be
// asked for.
func ordinaryCapabilities() []string {
	return []string{"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
}

func addedCapabilities(s subject) *Violation {
	who, bad := s.adding(ordinaryCapabilities())
	if len(who) == 0 {
		return nil
	}
	return violation("non-default capabilities", "%s must not include %s in securityContext.capabilities.add", named("container", who), quote(bad))
}

// adding lists the containers that add other capabilities than the allowed, and
// these.
func (s subject) adding(allowed []string) (who []string, bad values) {
	who = s.with(func(c *corev1.Container) bool {
		caps := security(c).Capabilities
		if caps == nil {
			return false
		}
		found := false
		for _, name := range caps.Add {
			if !slices.Contains(allowed, string(name)) {
				bad.add(string(name))
				found = true
			}
		}
		return found
	})
	return who, bad
}

func hostNamespaces(s subject) *Violation {
	var shared []string
	for _, ns := range []struct {
		on   bool
		name string
	}{{s.spec.HostNetwork, "hostNetwork=true"}, {s.spec.HostPID, "hostPID=true"}, {s.spec.HostIPC, "hostIPC=true"}} {
		if ns.on {
			shared = append(shared, ns.name)
		}
	}
	if len(shared) == 0 {
		return nil
	}
	return &Violation{"host namespaces", strings.Join(shared, ", ")}
}

func hostPaths(s subject) *Violation {
	var names []string
	for i := range s.spec.Volumes {
		if v := &s.spec.Volumes[i]; v.HostPath != nil {
			names = append(names, v.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return &Violation{"hostPath volumes", named("volume", names)}
}

func hostPorts(s subject) *Violation {
	var ports values
	who := s.with(func(c *corev1.Container) bool {
		found := false
		for _, p := range c.Ports {
			if p.HostPort != 0 {
				ports.add(strconv.Itoa(int(p.HostPort)))
				found = true
			}
		}
		return found
	})
	if len(who) == 0 {
		return nil
	}
	return violation("hostPort", "%s %s %s %s", named("container", who), use(len(who)), plural("hostPort", len(ports)), strings.Join(ports, ", "))
}

// probeHosts: with a host, the kubelet would ask any address for the pod.
func probeHosts(s subject) *Violation {
	var who, hosts values
	for c := range s.containers() {
		for _, host := range askedHosts(c) {
			if host != "" {
				who.add(c.Name)
				hosts.add(host)
			}
		}
	}
	if len(who) == 0 {
		return nil
	}
	return violation("probe or lifecycle host", "%s %s %s %s", named("container", who), use(len(who)), plural("probe or lifecycle host", len(hosts)), quote(hosts))
}

func askedHosts(c *corev1.Container) []string {
	var hosts []string
	add := func(get *corev1.HTTPGetAction, dial *corev1.TCPSocketAction) {
		if get != nil {
			hosts = append(hosts, get.Host)
		}
		if dial != nil {
			hosts = append(hosts, dial.Host)
		}
	}
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p != nil {
			add(p.HTTPGet, p.TCPSocket)
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				add(h.HTTPGet, h.TCPSocket)
			}
		}
	}
	return hosts
}

func privileged(s subject) *Violation {
	who := s.with(func(c *corev1.Container) bool { return isTrue(security(c).Privileged) })
	if len(who) == 0 {
		return nil
	}
	return violation("privileged", "%s must not set securityContext.privileged=true", named("container", who))
}

func procMount(s subject) *Violation {
	var bad values
	who := s.with(func(c *corev1.Container) bool {
		p := security(c).ProcMount
		if p == nil || *p == corev1.DefaultProcMount {
			return false
		}
		bad.add(string(*p))
		return true
	})
	if len(who) == 0 {
		return nil
	}
	return violation("procMount", "%s must not set securityContext.procMount to %s", named("container", who), quote(bad))
}

func seLinuxTypes() []string {
	return []string{"", "container_t", "container_init_t", "container_kvm_t"}
}

func seLinux(types ...string) find {
	return func(s subject) *Violation {
		var who culprits
		var badTypes values
		var user, role bool
		wrong := func(o *corev1.SELinuxOptions) bool {
			if o == nil {
				return false
			}
			badType := !slices.Contains(types, o.Type)
			if badType {
				badTypes.add(o.Type)
			}
			user, role = user || o.User != "", role || o.Role != ""
			return badType || o.User != "" || o.Role != ""
		}
		who.pod = wrong(s.pod().SELinuxOptions)
		who.containers = s.with(func(c *corev1.Container) bool { return wrong(security(c).SELinuxOptions) })
		if !who.any() {
			return nil
		}
		var what []string
		if len(badTypes) > 0 {
			what = append(what, named("type", badTypes))
		}
		if user {
			what = append(what, "user may not be set")
		}
		if role {
			what = append(what, "role may not be set")
		}
		return violation("seLinuxOptions", "%s set forbidden securityContext.seLinuxOptions: %s", who, strings.Join(what, "; "))
	}
}

// The annotations that said seccomp before there was a field.
const (
	seccompPodAnnotation       = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainerAnnotation = "container.seccomp.security.alpha.kubernetes.io/"
)

func seccompAnnotations(s subject) *Violation {
	var bad values
	look := func(key string) {
		v, set := s.meta.Annotations[key]
		allowed := v == corev1.SeccompProfileRuntimeDefault || v == corev1.DeprecatedSeccompProfileDockerDefault || strings.HasPrefix(v, corev1.SeccompLocalhostProfileNamePrefix)
		if set && !allowed {
			bad.add(fmt.Sprintf("%s=%q", key, v))
		}
	}
	look(seccompPodAnnotation)
	for c := range s.containers() {
		look(seccompContainerAnnotation + c.Name)
	}
	if len(bad) == 0 {
		return nil
	}
	return violation("seccompProfile", "forbidden %s %s", plural("annotation", len(bad)), strings.Join(bad, ", "))
}

func confined(p *corev1.SeccompProfile) bool {
	return p.Type == corev1.SeccompProfileTypeLocalhost || p.Type == corev1.SeccompProfileTypeRuntimeDefault
}

func seccompUnconfined(s subject) *Violation {
	var who culprits
	var bad values
	wrong := func(p *corev1.SeccompProfile) bool {
		if p == nil || confined(p) {
			return false
		}
		bad.add(string(p.Type))
		return true
	}
	who.pod = wrong(s.pod().SeccompProfile)
	who.containers = s.with(func(c *corev1.Container) bool { return wrong(security(c).SeccompProfile) })
	if !who.any() {
		return nil
	}
	return violation("seccompProfile", "%s must not set securityContext.seccompProfile.type to %s", who, quote(bad))
}

// sysctlRules: the list of those that concern the pod alone has grown.
func sysctlRules() []rule {
	var rules []rule
	var allowed []string
	for _, step := range []struct {
		since int
		names []string
	}{
		{0, []string{"kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_unprivileged_port_start"}},
		{27, []string{"net.ipv4.ip_local_reserved_ports"}},
		{29, []string{"net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl", "net.ipv4.tcp_keepalive_probes"}},
		{32, []string{"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}},
	} {
		allowed = slices.Concat(allowed, step.names)
		rules = append(rules, rule{step.since, sysctls(allowed)})
	}
	return rules
}

func sysctls(allowed []string) find {
	return func(s subject) *Violation {
		var bad []string
		for _, ctl := range s.pod().Sysctls {
			if !slices.Contains(allowed, ctl.Name) {
				bad = append(bad, ctl.Name)
			}
		}
		if len(bad) == 0 {
			return nil
		}
		return &Violation{"forbidden sysctls", strings.Join(bad, ", ")}
	}
}

func hostProcess(s subject) *Violation {
	on := func(o *corev1.WindowsSecurityContextOptions) bool { return o != nil && isTrue(o.HostProcess) }
	who := culprits{
		pod:        on(s.pod().WindowsOptions),
		containers: s.with(func(c *corev1.Container) bool { return on(security(c).WindowsOptions) }),
	}
	if !who.any() {
		return nil
	}
	return violation("hostProcess", "%s must not set securityContext.windowsOptions.hostProcess=true", who)
}
