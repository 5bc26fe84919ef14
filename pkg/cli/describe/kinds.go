package describe

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

func (p *page) node(n *corev1.Node, pods []corev1.Pod) {
	p.field(0, "Name", n.Name)
	p.field(0, "Roles", orNone(strings.Join(roles(n.Labels), ",")))
	p.meta(&n.ObjectMeta)
	p.field(0, "CreationTimestamp", when(n.CreationTimestamp))
	p.list(0, "Taints", texts(n.Spec.Taints, func(t *corev1.Taint) string { return t.ToString() }))
	p.line(0, "Unschedulable:\t%t", n.Spec.Unschedulable)
	if len(n.Status.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus\tLastHeartbeatTime\tLastTransitionTime\tReason\tMessage")
		p.line(1, "----\t------\t-----------------\t------------------\t------\t-------")
		for _, c := range n.Status.Conditions {
			p.line(1, "%s\t%s\t%s\t%s\t%s\t%s", c.Type, c.Status, when(c.LastHeartbeatTime), when(c.LastTransitionTime), c.Reason, c.Message)
		}
	}
	p.line(0, "Addresses:")
	for _, a := range n.Status.Addresses {
		p.line(1, "%s:\t%s", a.Type, a.Address)
	}
	p.quantities("Capacity", n.Status.Capacity)
	p.quantities("Allocatable", n.Status.Allocatable)
	info := n.Status.NodeInfo
	p.line(0, "System Info:")
	for _, pair := range [][2]string{
		{"Machine ID", info.MachineID}, {"System UUID", info.SystemUUID}, {"Boot ID", info.BootID},
		{"Kernel Version", info.KernelVersion}, {"OS Image", info.OSImage}, {"Operating System", info.OperatingSystem},
		{"Architecture", info.Architecture}, {"Container Runtime Version", info.ContainerRuntimeVersion}, {"Kubelet Version", info.KubeletVersion},
	} {
		p.line(1, "%s:\t%s", pair[0], pair[1])
	}
	p.field(0, "PodCIDR", n.Spec.PodCIDR)
	p.field(0, "PodCIDRs", strings.Join(n.Spec.PodCIDRs, ","))
	p.field(0, "ProviderID", n.Spec.ProviderID)
	if pods == nil {
		p.line(0, "Pods:\tnot authorized")
	} else {
		p.podsOfNode(n, pods)
	}
}

func roles(labels map[string]string) []string {
	var out []string
	for key := range labels {
		if role, ok := strings.CutPrefix(key, "node-role.kubernetes.io/"); ok && role != "" {
			out = append(out, role)
		}
	}
	slices.Sort(out)
	return out
}

func (p *page) quantities(name string, list corev1.ResourceList) {
	if len(list) == 0 {
		return
	}
	p.line(0, "%s:", name)
	for _, r := range sortedResources(list) {
		q := list[r]
		p.line(1, "%s:\t%s", r, q.String())
	}
}

// podsOfNode writes the requests and limits of the node's pods, and their share
// of the allocatable resources.
func (p *page) podsOfNode(n *corev1.Node, pods []corev1.Pod) {
	pods = slices.DeleteFunc(slices.Clone(pods), func(pod corev1.Pod) bool {
		return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	})
	p.line(0, "Non-terminated Pods:\t(%d in total)", len(pods))
	p.line(1, "Namespace\tName\tCPU Requests\tCPU Limits\tMemory Requests\tMemory Limits\tAge")
	p.line(1, "---------\t----\t------------\t----------\t---------------\t-------------\t---")
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for i := range pods {
		req, lim := asks(&pods[i])
		add(requests, req)
		add(limits, lim)
		p.line(1, "%s\t%s\t%s\t%s\t%s\t%s\t%s", pods[i].Namespace, pods[i].Name,
			p.part(n, req, corev1.ResourceCPU), p.part(n, lim, corev1.ResourceCPU),
			p.part(n, req, corev1.ResourceMemory), p.part(n, lim, corev1.ResourceMemory), p.since(pods[i].CreationTimestamp))
	}
	p.line(0, "Allocated resources:")
	p.line(1, "(Total limits may be over 100 percent, i.e., overcommitted.)")
	p.line(1, "Resource\tRequests\tLimits")
	p.line(1, "--------\t--------\t------")
	for _, r := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		p.line(1, "%s\t%s\t%s", r, p.part(n, requests, r), p.part(n, limits, r))
	}
}

func (p *page) part(n *corev1.Node, list corev1.ResourceList, r corev1.ResourceName) string {
	q, total := list[r], n.Status.Allocatable[r]
	percent := int64(0)
	if total.MilliValue() > 0 {
		percent = int64(float64(q.MilliValue()) / float64(total.MilliValue()) * 100)
	}
	return fmt.Sprintf("%s (%d%%)", q.String(), percent)
}

func add(to, from corev1.ResourceList) {
	for r, q := range from {
		sum := to[r].DeepCopy()
		sum.Add(q)
		to[r] = sum
	}
}

// asks returns a pod's requests and limits: its own or the sum of its containers and
// sidecars, or those of an init container if that is more; plus its overhead.
func asks(pod *corev1.Pod) (requests, limits corev1.ResourceList) {
	opts := resourcehelper.PodResourcesOptions{}
	return resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts)
}

func (p *page) service(s *corev1.Service, sl []discoveryv1.EndpointSlice) {
	p.head(&s.ObjectMeta)
	p.meta(&s.ObjectMeta)
	p.pairs(0, "Selector", s.Spec.Selector)
	p.field(0, "Type", string(s.Spec.Type))
	if s.Spec.IPFamilyPolicy != nil {
		p.field(0, "IP Family Policy", string(*s.Spec.IPFamilyPolicy))
	}
	var families []string
	for _, f := range s.Spec.IPFamilies {
		families = append(families, string(f))
	}
	p.field(0, "IP Families", strings.Join(families, ","))
	p.field(0, "IP", s.Spec.ClusterIP)
	p.field(0, "IPs", strings.Join(s.Spec.ClusterIPs, ","))
	p.field(0, "External IPs", strings.Join(s.Spec.ExternalIPs, ","))
	p.field(0, "External Name", s.Spec.ExternalName)
	for _, in := range s.Status.LoadBalancer.Ingress {
		p.field(0, "LoadBalancer Ingress", in.IP+in.Hostname)
	}
	for _, sp := range s.Spec.Ports {
		name := sp.Name
		if name == "" {
			name = "<unset>"
		}
		p.line(0, "Port:\t%s\t%d/%s", name, sp.Port, sp.Protocol)
		p.line(0, "TargetPort:\t%s/%s", sp.TargetPort.String(), sp.Protocol)
		if sp.NodePort != 0 {
			p.line(0, "NodePort:\t%s\t%d/%s", name, sp.NodePort, sp.Protocol)
		}
		p.field(0, "Endpoints", endpoints(sl, sp.Name))
	}
	p.field(0, "Session Affinity", string(s.Spec.SessionAffinity))
	p.field(0, "External Traffic Policy", string(s.Spec.ExternalTrafficPolicy))
	if s.Spec.InternalTrafficPolicy != nil {
		p.field(0, "Internal Traffic Policy", string(*s.Spec.InternalTrafficPolicy))
	}
	if s.Spec.HealthCheckNodePort != 0 {
		p.line(0, "HealthCheck NodePort:\t%d", s.Spec.HealthCheckNodePort)
	}
}

// endpoints lists the ready addresses of a port: three of them, and the number
// of others.
func endpoints(sl []discoveryv1.EndpointSlice, port string) string {
	var all []string
	for _, s := range sl {
		for _, sp := range s.Ports {
			if sp.Name != nil && *sp.Name != port || sp.Port == nil {
				continue
			}
			for _, e := range s.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				for _, a := range e.Addresses {
					all = append(all, net.JoinHostPort(a, strconv.Itoa(int(*sp.Port))))
				}
			}
		}
	}
	const shown = 3
	switch {
	case len(all) == 0:
		return "<none>"
	case len(all) > shown:
		return strings.Join(all[:shown], ",") + fmt.Sprintf(" + %d more...", len(all)-shown)
	}
	return strings.Join(all, ",")
}

func (p *page) namespace(n *corev1.Namespace) {
	p.field(0, "Name", n.Name)
	p.meta(&n.ObjectMeta)
	p.field(0, "Status", string(n.Status.Phase))
	if len(n.Status.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus\tReason\tMessage")
		for _, c := range n.Status.Conditions {
			p.line(1, "%s\t%s\t%s\t%s", c.Type, c.Status, c.Reason, c.Message)
		}
	}
}

func (p *page) configMap(c *corev1.ConfigMap) {
	p.head(&c.ObjectMeta)
	p.meta(&c.ObjectMeta)
	p.line(0, "\nData\n====")
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		p.line(0, "%s:\n----\n%s\n", key, c.Data[key])
	}
	p.line(0, "\nBinaryData\n====")
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		p.line(0, "%s: %d bytes", key, len(c.BinaryData[key]))
	}
	p.line(0, "")
}

// secret writes the sizes of the values, never the values.
func (p *page) secret(s *corev1.Secret) {
	p.head(&s.ObjectMeta)
	p.meta(&s.ObjectMeta)
	p.line(0, "\nType:\t%s", s.Type)
	p.line(0, "\nData\n====")
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		p.line(0, "%s:\t%d bytes", key, len(s.Data[key]))
	}
}

func (p *page) serviceAccount(s *corev1.ServiceAccount) {
	p.head(&s.ObjectMeta)
	p.meta(&s.ObjectMeta)
	p.list(0, "Image pull secrets", texts(s.ImagePullSecrets, func(r *corev1.LocalObjectReference) string { return r.Name }))
}

func (p *page) template(t *corev1.PodTemplateSpec) {
	p.line(0, "Pod Template:")
	p.pairs(1, "Labels", t.Labels)
	if len(t.Annotations) > 0 {
		p.annotations(1, t.Annotations)
	}
	p.field(1, "Service Account", t.Spec.ServiceAccountName)
	if len(t.Spec.InitContainers) > 0 {
		p.containers("  ", "Init Containers", t.Spec.InitContainers, nil)
	}
	p.containers("  ", "Containers", t.Spec.Containers, nil)
	p.volumes("  ", t.Spec.Volumes)
	p.field(1, "Priority Class Name", t.Spec.PriorityClassName)
	p.pairs(1, "Node-Selectors", t.Spec.NodeSelector)
	p.list(1, "Tolerations", texts(t.Spec.Tolerations, toleration))
}

func (p *page) deployment(d *appsv1.Deployment, sets []appsv1.ReplicaSet) {
	p.head(&d.ObjectMeta)
	p.field(0, "CreationTimestamp", when(d.CreationTimestamp))
	p.meta(&d.ObjectMeta)
	p.field(0, "Selector", metav1.FormatLabelSelector(d.Spec.Selector))
	wanted := int32(1)
	if d.Spec.Replicas != nil {
		wanted = *d.Spec.Replicas
	}
	s := d.Status
	p.line(0, "Replicas:\t%d desired | %d updated | %d total | %d available | %d unavailable", wanted, s.UpdatedReplicas, s.Replicas, s.AvailableReplicas, s.UnavailableReplicas)
	p.field(0, "StrategyType", string(d.Spec.Strategy.Type))
	p.line(0, "MinReadySeconds:\t%d", d.Spec.MinReadySeconds)
	if d.Spec.Paused {
		p.field(0, "Paused", "true (changes wait for: podium rollout resume)")
	}
	if ru := d.Spec.Strategy.RollingUpdate; ru != nil && ru.MaxUnavailable != nil && ru.MaxSurge != nil {
		p.line(0, "RollingUpdateStrategy:\t%s max unavailable, %s max surge", ru.MaxUnavailable, ru.MaxSurge)
	}
	p.template(&d.Spec.Template)
	if len(s.Conditions) > 0 {
		p.line(0, "Conditions:")
		p.line(1, "Type\tStatus\tReason")
		p.line(1, "----\t------\t------")
		for _, c := range s.Conditions {
			p.line(1, "%s\t%s\t%s", c.Type, c.Status, c.Reason)
		}
	}
	p.replicaSets(d, sets)
}

const revision = "deployment.kubernetes.io/revision"

// replicaSets writes the deployment's new ReplicaSet and the old ones
// separately.
func (p *page) replicaSets(d *appsv1.Deployment, sets []appsv1.ReplicaSet) {
	var old, now []string
	for i := range sets {
		rs := &sets[i]
		if !metav1.IsControlledBy(rs, d) {
			continue
		}
		wanted := int32(0)
		if rs.Spec.Replicas != nil {
			wanted = *rs.Spec.Replicas
		}
		text := fmt.Sprintf("%s (%d/%d replicas created)", rs.Name, rs.Status.Replicas, wanted)
		if rs.Annotations[revision] == d.Annotations[revision] {
			now = append(now, text)
		} else {
			old = append(old, text)
		}
	}
	p.field(0, "OldReplicaSets", orNone(strings.Join(old, ", ")))
	p.field(0, "NewReplicaSet", orNone(strings.Join(now, ", ")))
}

// asReplicaSet returns a ReplicaSet with what the description of rc shows.
func asReplicaSet(rc *corev1.ReplicationController) *appsv1.ReplicaSet {
	rs := &appsv1.ReplicaSet{
		ObjectMeta: rc.ObjectMeta,
		Spec:       appsv1.ReplicaSetSpec{Replicas: rc.Spec.Replicas, Selector: &metav1.LabelSelector{MatchLabels: rc.Spec.Selector}},
		Status:     appsv1.ReplicaSetStatus{Replicas: rc.Status.Replicas},
	}
	if rc.Spec.Template != nil {
		rs.Spec.Template = *rc.Spec.Template
	}
	return rs
}

func (p *page) replicaSet(rs *appsv1.ReplicaSet, pods []corev1.Pod) {
	p.head(&rs.ObjectMeta)
	p.field(0, "Selector", metav1.FormatLabelSelector(rs.Spec.Selector))
	p.meta(&rs.ObjectMeta)
	p.field(0, "Controlled By", controlledBy(&rs.ObjectMeta))
	wanted := int32(1)
	if rs.Spec.Replicas != nil {
		wanted = *rs.Spec.Replicas
	}
	p.line(0, "Replicas:\t%d current / %d desired", rs.Status.Replicas, wanted)
	p.podsOf(rs, pods)
	p.template(&rs.Spec.Template)
}

// podsOf counts the pods that owner controls by their phases.
func (p *page) podsOf(owner metav1.Object, pods []corev1.Pod) {
	count := map[corev1.PodPhase]int{}
	for i := range pods {
		if metav1.IsControlledBy(&pods[i], owner) {
			count[pods[i].Status.Phase]++
		}
	}
	p.line(0, "Pods Status:\t%d Running / %d Waiting / %d Succeeded / %d Failed",
		count[corev1.PodRunning], count[corev1.PodPending], count[corev1.PodSucceeded], count[corev1.PodFailed])
}
