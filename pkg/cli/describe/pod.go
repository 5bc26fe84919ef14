package describe

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func (p *page) pod(pod *corev1.Pod) {
	p.head(&pod.ObjectMeta)
	if pod.Spec.Priority != nil {
		p.line(0, "Priority:\t%d", *pod.Spec.Priority)
	}
	p.field(0, "Priority Class Name", pod.Spec.PriorityClassName)
	p.field(0, "Runtime Class Name", deref(pod.Spec.RuntimeClassName))
	p.field(0, "Service Account", pod.Spec.ServiceAccountName)
	node := orNone(pod.Spec.NodeName)
	if pod.Status.HostIP != "" {
		node += "/" + pod.Status.HostIP
	}
	p.field(0, "Node", node)
	if pod.Status.StartTime != nil {
		p.field(0, "Start Time", when(*pod.Status.StartTime))
	}
	p.pairs(0, "Labels", pod.Labels)
	p.annotations(0, pod.Annotations)
	if pod.DeletionTimestamp != nil {
		p.field(0, "Status", "Terminating (lasts "+p.since(*pod.DeletionTimestamp)+")")
		if pod.DeletionGracePeriodSeconds != nil {
			p.line(0, "Termination Grace Period:\t%ds", *pod.DeletionGracePeriodSeconds)
		}
	} else {
		p.field(0, "Status", string(pod.Status.Phase))
	}
	p.field(0, "Reason", pod.Status.Reason)
	p.field(0, "Message", pod.Status.Message)
	p.field(0, "IP", pod.Status.PodIP)
	if len(pod.Status.PodIPs) == 0 {
		p.field(0, "IPs", "<none>")
	} else {
		p.line(0, "IPs:")
		for _, ip := range pod.Status.PodIPs {
			p.field(1, "IP", ip.IP)
		}
	}
	p.field(0, "Controlled By", controlledBy(&pod.ObjectMeta))
	if len(pod.Spec.InitContainers) > 0 {
		p.containers("", "Init Containers", pod.Spec.InitContainers, pod.Status.InitContainerStatuses)
	}
	p.containers("", "Containers", pod.Spec.Containers, pod.Status.ContainerStatuses)
	if len(pod.Spec.EphemeralContainers) > 0 {
		var specs []corev1.Container
		for _, c := range pod.Spec.EphemeralContainers {
			specs = append(specs, corev1.Container(c.EphemeralContainerCommon))
		}
		p.containers("", "Ephemeral Containers", specs, pod.Status.EphemeralContainerStatuses)
	}
	p.readinessGates(pod)
	if len(pod.Status.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus")
		for _, c := range pod.Status.Conditions {
			p.line(1, "%s\t%s", c.Type, c.Status)
		}
	}
	p.volumes("", pod.Spec.Volumes)
	p.field(0, "QoS Class", string(pod.Status.QOSClass))
	p.pairs(0, "Node-Selectors", pod.Spec.NodeSelector)
	p.list(0, "Tolerations", texts(pod.Spec.Tolerations, toleration))
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func texts[T any](items []T, text func(*T) string) []string {
	var out []string
	for i := range items {
		out = append(out, text(&items[i]))
	}
	return out
}

// list writes values below one name, a line for each.
func (p *page) list(level int, name string, values []string) {
	if len(values) == 0 {
		values = []string{"<none>"}
	}
	lead := name + ":"
	for _, v := range values {
		p.line(level, "%s\t%s", lead, v)
		lead = ""
	}
}

func toleration(t *corev1.Toleration) string {
	out := t.Key
	if t.Value != "" {
		out += "=" + t.Value
	}
	if t.Effect != "" {
		out += ":" + string(t.Effect)
	}
	if t.Operator == corev1.TolerationOpExists && t.Value == "" {
		if t.Key != "" || t.Effect != "" {
			out += " "
		}
		out += "op=Exists"
	}
	if t.TolerationSeconds != nil {
		out += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return out
}

func (p *page) readinessGates(pod *corev1.Pod) {
	if len(pod.Spec.ReadinessGates) == 0 {
		return
	}
	p.line(0, "Readiness Gates:")
	p.line(1, "Type\tStatus")
	for _, g := range pod.Spec.ReadinessGates {
		status := "<none>"
		for _, c := range pod.Status.Conditions {
			if c.Type == g.ConditionType {
				status = string(c.Status)
			}
		}
		p.line(1, "%s\t%s", g.ConditionType, status)
	}
}

// containers writes containers below a heading; space is two spaces in a pod template.
func (p *page) containers(space, name string, all []corev1.Container, statuses []corev1.ContainerStatus) {
	p.line(0, "%s%s:", space, name)
	for i := range all {
		c := &all[i]
		var status *corev1.ContainerStatus
		for j := range statuses {
			if statuses[j].Name == c.Name {
				status = &statuses[j]
			}
		}
		p.line(1, "%s%s:", space[:len(space)/2], c.Name)
		p.container(c, status)
	}
}

func (p *page) container(c *corev1.Container, status *corev1.ContainerStatus) {
	if status != nil {
		p.field(2, "Container ID", status.ContainerID)
	}
	p.field(2, "Image", c.Image)
	if status != nil {
		p.field(2, "Image ID", status.ImageID)
	}
	var ports, hostPorts []string
	for _, port := range c.Ports {
		ports = append(ports, fmt.Sprintf("%d/%s", port.ContainerPort, port.Protocol))
		hostPorts = append(hostPorts, fmt.Sprintf("%d/%s", port.HostPort, port.Protocol))
	}
	p.field(2, "Port", orNone(strings.Join(ports, ", ")))
	p.field(2, "Host Port", orNone(strings.Join(hostPorts, ", ")))
	p.arguments("Command", c.Command)
	p.arguments("Args", c.Args)
	if status != nil {
		p.state("State", status.State)
		if status.LastTerminationState.Terminated != nil {
			p.state("Last State", status.LastTerminationState)
		}
		p.line(2, "Ready:\t%s", title(status.Ready))
		p.line(2, "Restart Count:\t%d", status.RestartCount)
	}
	p.resources("Limits", c.Resources.Limits)
	p.resources("Requests", c.Resources.Requests)
	p.field(2, "Liveness", probe(c.LivenessProbe))
	p.field(2, "Readiness", probe(c.ReadinessProbe))
	p.field(2, "Startup", probe(c.StartupProbe))
	p.environment(c)
	if len(c.VolumeMounts) == 0 {
		p.line(2, "Mounts:\t<none>")
		return
	}
	p.line(2, "Mounts:")
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		if m.SubPath != "" {
			mode += `,path="` + m.SubPath + `"`
		}
		p.line(3, "%s from %s (%s)", m.MountPath, m.Name, mode)
	}
}

func title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func (p *page) arguments(name string, words []string) {
	if len(words) == 0 {
		return
	}
	p.line(2, "%s:", name)
	for _, w := range words {
		for _, line := range strings.Split(w, "\n") {
			p.line(3, "%s", line)
		}
	}
}

func (p *page) state(name string, s corev1.ContainerState) {
	switch {
	case s.Running != nil:
		p.field(2, name, "Running")
		p.field(3, "Started", when(s.Running.StartedAt))
	case s.Terminated != nil:
		t := s.Terminated
		p.field(2, name, "Terminated")
		p.field(3, "Reason", t.Reason)
		p.field(3, "Message", t.Message)
		p.line(3, "Exit Code:\t%d", t.ExitCode)
		if t.Signal > 0 {
			p.line(3, "Signal:\t%d", t.Signal)
		}
		p.field(3, "Started", when(t.StartedAt))
		p.field(3, "Finished", when(t.FinishedAt))
	case s.Waiting != nil:
		p.field(2, name, "Waiting")
		p.field(3, "Reason", s.Waiting.Reason)
		p.field(3, "Message", s.Waiting.Message)
	default:
		p.field(2, name, "Waiting")
	}
}

func (p *page) resources(name string, list corev1.ResourceList) {
	if len(list) == 0 {
		return
	}
	p.line(2, "%s:", name)
	for _, r := range sortedResources(list) {
		q := list[r]
		p.line(3, "%s:\t%s", r, q.String())
	}
}

func sortedResources(list corev1.ResourceList) []corev1.ResourceName {
	var out []corev1.ResourceName
	for r := range list {
		out = append(out, r)
	}
	slices.Sort(out)
	return out
}

func probe(pr *corev1.Probe) string {
	if pr == nil {
		return ""
	}
	what := "unknown"
	switch h := pr.ProbeHandler; {
	case h.Exec != nil:
		what = fmt.Sprintf("exec %v", h.Exec.Command)
	case h.HTTPGet != nil:
		what = fmt.Sprintf("http-get %s://%s:%s%s", strings.ToLower(string(h.HTTPGet.Scheme)), h.HTTPGet.Host, h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		what = fmt.Sprintf("tcp-socket %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		what = fmt.Sprintf("grpc <pod>:%d %s", h.GRPC.Port, deref(h.GRPC.Service))
	}
	seconds := func(n int32) time.Duration { return time.Duration(n) * time.Second }
	return fmt.Sprintf("%s delay=%s timeout=%s period=%s #success=%d #failure=%d", what,
		seconds(pr.InitialDelaySeconds), seconds(pr.TimeoutSeconds), seconds(pr.PeriodSeconds), pr.SuccessThreshold, pr.FailureThreshold)
}

func (p *page) environment(c *corev1.Container) {
	if len(c.EnvFrom) > 0 {
		p.line(2, "Environment Variables from:")
		for _, e := range c.EnvFrom {
			switch {
			case e.ConfigMapRef != nil:
				p.line(3, "%s\tConfigMap\tOptional: %t", e.ConfigMapRef.Name, isTrue(e.ConfigMapRef.Optional))
			case e.SecretRef != nil:
				p.line(3, "%s\tSecret\tOptional: %t", e.SecretRef.Name, isTrue(e.SecretRef.Optional))
			}
		}
	}
	if len(c.Env) == 0 {
		p.line(2, "Environment:\t<none>")
		return
	}
	p.line(2, "Environment:")
	for _, e := range c.Env {
		p.line(3, "%s:\t%s", e.Name, envValue(&e))
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func envValue(e *corev1.EnvVar) string {
	from := e.ValueFrom
	switch {
	case from == nil:
		return e.Value
	case from.FieldRef != nil:
		return fmt.Sprintf("(%s:%s)", from.FieldRef.APIVersion, from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("(%s)", from.ResourceFieldRef.Resource)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' in secret '%s'>\tOptional: %t", from.SecretKeyRef.Key, from.SecretKeyRef.Name, isTrue(from.SecretKeyRef.Optional))
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<set to the key '%s' of config map '%s'>\tOptional: %t", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name, isTrue(from.ConfigMapKeyRef.Optional))
	}
	return ""
}

func (p *page) volumes(space string, all []corev1.Volume) {
	if len(all) == 0 {
		p.line(0, "%sVolumes:\t<none>", space)
		return
	}
	p.line(0, "%sVolumes:", space)
	for i := range all {
		v := &all[i]
		p.line(1, "%s%s:", space[:len(space)/2], v.Name)
		switch {
		case v.EmptyDir != nil:
			p.field(2, "Type", "EmptyDir (a temporary directory that shares a pod's lifetime)")
			p.line(2, "Medium:\t%s", v.EmptyDir.Medium)
			limit := "<unset>"
			if v.EmptyDir.SizeLimit != nil {
				limit = v.EmptyDir.SizeLimit.String()
			}
			p.field(2, "SizeLimit", limit)
		case v.HostPath != nil:
			p.field(2, "Type", "HostPath (bare host directory volume)")
			p.field(2, "Path", v.HostPath.Path)
			if v.HostPath.Type != nil {
				p.line(2, "HostPathType:\t%s", *v.HostPath.Type)
			}
		case v.ConfigMap != nil:
			p.field(2, "Type", "ConfigMap (a volume populated by a ConfigMap)")
			p.field(2, "Name", v.ConfigMap.Name)
			p.line(2, "Optional:\t%t", isTrue(v.ConfigMap.Optional))
		case v.Secret != nil:
			p.field(2, "Type", "Secret (a volume populated by a Secret)")
			p.field(2, "SecretName", v.Secret.SecretName)
			p.line(2, "Optional:\t%t", isTrue(v.Secret.Optional))
		case v.Projected != nil:
			p.field(2, "Type", "Projected (a volume that contains injected data from multiple sources)")
			p.projected(v.Projected)
		case v.Image != nil:
			p.field(2, "Type", "Image (a container image or OCI artifact)")
			p.field(2, "Reference", v.Image.Reference)
			p.line(2, "PullPolicy:\t%s", v.Image.PullPolicy)
		case v.DownwardAPI != nil:
			p.field(2, "Type", "DownwardAPI (a volume populated by information about the pod)")
		default:
			p.field(2, "Type", "<unknown>")
		}
	}
}

func (p *page) projected(v *corev1.ProjectedVolumeSource) {
	for _, s := range v.Sources {
		switch {
		case s.ServiceAccountToken != nil && s.ServiceAccountToken.ExpirationSeconds != nil:
			p.line(2, "TokenExpirationSeconds:\t%d", *s.ServiceAccountToken.ExpirationSeconds)
		case s.ConfigMap != nil:
			p.field(2, "ConfigMapName", s.ConfigMap.Name)
			p.line(2, "Optional:\t%t", isTrue(s.ConfigMap.Optional))
		case s.Secret != nil:
			p.field(2, "SecretName", s.Secret.Name)
			p.line(2, "Optional:\t%t", isTrue(s.Secret.Optional))
		case s.DownwardAPI != nil:
			p.line(2, "DownwardAPI:\ttrue")
		}
	}
}
