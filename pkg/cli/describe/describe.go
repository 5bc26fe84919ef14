package describe

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"podium/pkg/cli/output"
)

// Subject is an object with the related objects that its description needs; see
// Wants.
type Subject struct {
	Object *unstructured.Unstructured
	Events []corev1.Event // nil: leave the section out
	Related
	Now time.Time
}

// Related are objects that belong to the one that is described.
type Related struct {
	Pods        []corev1.Pod                // of a node (nil: the user may not see them), of a claim's namespace, or selected by the object
	Slices      []discoveryv1.EndpointSlice // of a Service; of an ingress: of its namespace
	Services    []corev1.Service            // of an ingress: of its namespace
	ReplicaSets []appsv1.ReplicaSet         // of a deployment
}

// Needs says which related objects a description needs.
type Needs struct{ Pods, Slices, Services, ReplicaSets bool }

// Wants returns what the description of a kind needs.
func Wants(group, kind string) Needs {
	switch group + "/" + kind {
	case "/Node", "/ReplicationController", "/PersistentVolumeClaim", "apps/ReplicaSet", "apps/StatefulSet", "apps/DaemonSet":
		return Needs{Pods: true}
	case "/Service":
		return Needs{Slices: true}
	case "networking.k8s.io/Ingress":
		return Needs{Slices: true, Services: true}
	case "apps/Deployment":
		return Needs{ReplicaSets: true}
	}
	return Needs{}
}

// Write writes the description of s to w.
func Write(w io.Writer, s Subject) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	p := &page{w: tw, now: s.Now}
	if err := p.body(s); err != nil {
		return err
	}
	if s.Events != nil && !slices.Contains(withoutEvents, kindOf(s.Object)) {
		p.events(s.Events)
	}
	return tw.Flush()
}

// withoutEvents are the kinds about which there are no events.
var withoutEvents = []string{
	"/LimitRange", "/ResourceQuota", "/Secret", "networking.k8s.io/NetworkPolicy", "rbac.authorization.k8s.io/Role", "rbac.authorization.k8s.io/ClusterRole",
	"rbac.authorization.k8s.io/RoleBinding", "rbac.authorization.k8s.io/ClusterRoleBinding",
}

// kindOf returns group and kind: "apps/Deployment", "/Pod".
func kindOf(o *unstructured.Unstructured) string {
	gvk := o.GroupVersionKind()
	return gvk.Group + "/" + gvk.Kind
}

// body describes the object: by its kind, else by all its fields.
func (p *page) body(s Subject) error {
	for _, known := range []func(string, Subject) (bool, error){p.workloads, p.core, p.storage, p.network, p.policy} {
		if ok, err := known(kindOf(s.Object), s); ok {
			return err
		}
	}
	p.generic(s.Object)
	return nil
}

func (p *page) workloads(kind string, s Subject) (bool, error) {
	switch kind {
	case "/Pod":
		return typed(s, p.pod)
	case "/ReplicationController":
		return typed(s, func(rc *corev1.ReplicationController) { p.replicaSet(asReplicaSet(rc), s.Pods) })
	case "apps/Deployment":
		return typed(s, func(d *appsv1.Deployment) { p.deployment(d, s.ReplicaSets) })
	case "apps/ReplicaSet":
		return typed(s, func(rs *appsv1.ReplicaSet) { p.replicaSet(rs, s.Pods) })
	case "apps/StatefulSet":
		return typed(s, func(set *appsv1.StatefulSet) { p.statefulSet(set, s.Pods) })
	case "apps/DaemonSet":
		return typed(s, func(d *appsv1.DaemonSet) { p.daemonSet(d, s.Pods) })
	case "batch/Job":
		return typed(s, p.job)
	case "batch/CronJob":
		return typed(s, p.cronJob)
	}
	return false, nil
}

func (p *page) core(kind string, s Subject) (bool, error) {
	switch kind {
	case "/Node":
		return typed(s, func(n *corev1.Node) { p.node(n, s.Pods) })
	case "/Namespace":
		return typed(s, p.namespace)
	case "/ConfigMap":
		return typed(s, p.configMap)
	case "/Secret":
		return typed(s, p.secret)
	case "/ServiceAccount":
		return typed(s, p.serviceAccount)
	case "/LimitRange":
		return typed(s, p.limitRange)
	case "/ResourceQuota":
		return typed(s, p.resourceQuota)
	case "certificates.k8s.io/CertificateSigningRequest":
		return typed(s, p.certificateRequest)
	}
	return false, nil
}

func (p *page) storage(kind string, s Subject) (bool, error) {
	switch kind {
	case "/PersistentVolume":
		return typed(s, p.volume)
	case "/PersistentVolumeClaim":
		return typed(s, func(c *corev1.PersistentVolumeClaim) { p.claim(c, s.Pods) })
	case "storage.k8s.io/StorageClass":
		return typed(s, p.storageClass)
	case "storage.k8s.io/VolumeAttributesClass":
		return typed(s, p.attributesClass)
	case "storage.k8s.io/CSINode":
		return typed(s, p.csiNode)
	}
	return false, nil
}

func (p *page) network(kind string, s Subject) (bool, error) {
	switch kind {
	case "/Service":
		return typed(s, func(svc *corev1.Service) { p.service(svc, s.Slices) })
	case "/Endpoints":
		return typed(s, p.endpointsObject)
	case "discovery.k8s.io/EndpointSlice":
		return typed(s, p.endpointSlice)
	case "networking.k8s.io/Ingress":
		return typed(s, func(in *networkingv1.Ingress) { p.ingress(in, s) })
	case "networking.k8s.io/IngressClass":
		return typed(s, p.ingressClass)
	case "networking.k8s.io/NetworkPolicy":
		return typed(s, p.networkPolicy)
	case "networking.k8s.io/ServiceCIDR":
		return typed(s, p.serviceCIDR)
	case "networking.k8s.io/IPAddress":
		return typed(s, p.ipAddress)
	}
	return false, nil
}

func (p *page) policy(kind string, s Subject) (bool, error) {
	switch kind {
	case "policy/PodDisruptionBudget":
		return typed(s, p.disruptionBudget)
	case "scheduling.k8s.io/PriorityClass":
		return typed(s, p.priorityClass)
	case "rbac.authorization.k8s.io/Role":
		return typed(s, func(r *rbacv1.Role) { p.role(&r.ObjectMeta, r.Rules) })
	case "rbac.authorization.k8s.io/ClusterRole":
		return typed(s, func(r *rbacv1.ClusterRole) { p.role(&r.ObjectMeta, r.Rules) })
	case "rbac.authorization.k8s.io/RoleBinding":
		return typed(s, func(b *rbacv1.RoleBinding) { p.binding(&b.ObjectMeta, b.RoleRef, b.Subjects) })
	case "rbac.authorization.k8s.io/ClusterRoleBinding":
		return typed(s, func(b *rbacv1.ClusterRoleBinding) { p.binding(&b.ObjectMeta, b.RoleRef, b.Subjects) })
	case "autoscaling/HorizontalPodAutoscaler":
		if s.Object.GroupVersionKind().Version == "v2" {
			return typed(s, p.autoscaler)
		}
	}
	return false, nil
}

// typed converts the object and calls write. It always returns true: the kind is known.
func typed[T any](s Subject, write func(*T)) (bool, error) {
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.Object.Object, &out); err != nil {
		return true, fmt.Errorf("read %s %s: %w", s.Object.GetKind(), s.Object.GetName(), err)
	}
	write(&out)
	return true, nil
}

// page writes a description: lines with a name, a tab and a value.
type page struct {
	w   io.Writer
	now time.Time
}

// line writes one line, indented by two spaces for each level. It escapes control
// characters.
func (p *page) line(level int, format string, args ...any) {
	fmt.Fprint(p.w, strings.Repeat("  ", level), output.Plain(fmt.Sprintf(format, args...)), "\n")
}

// field writes a name and its value, or nothing if the value is empty.
func (p *page) field(level int, name, value string) {
	if value != "" {
		p.line(level, "%s:\t%s", name, value)
	}
}

// pairs writes a map, sorted, with a line for each entry.
func (p *page) pairs(level int, name string, m map[string]string) {
	p.list(level, name, slices.Sorted(func(yield func(string) bool) {
		for key, value := range m {
			if !yield(key + "=" + value) {
				return
			}
		}
	}))
}

// maxAnnotation is the length from which the value of an annotation gets lines of its
// own, which are cut to it.
const maxAnnotation = 140

// annotations writes annotations, but that of kubectl apply.
func (p *page) annotations(level int, m map[string]string) {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := strings.TrimSuffix(m[key], "\n")
		switch {
		case key == corev1.LastAppliedConfigAnnotation:
		case len(key)+len(value)+2 > maxAnnotation || strings.Contains(value, "\n"):
			lines = append(lines, key+":")
			for _, line := range strings.Split(value, "\n") {
				if len(line) > maxAnnotation-2 {
					line = line[:maxAnnotation-2] + "..."
				}
				lines = append(lines, "  "+line)
			}
		default:
			lines = append(lines, key+": "+value)
		}
	}
	p.list(level, "Annotations", lines)
}

// labels writes labels and annotations.
func (p *page) labels(m *metav1.ObjectMeta) {
	p.pairs(0, "Labels", m.Labels)
	p.annotations(0, m.Annotations)
}

// phase writes a status, or that the object is being deleted.
func (p *page) phase(m *metav1.ObjectMeta, phase string) {
	if m.DeletionTimestamp != nil {
		phase = "Terminating (lasts " + p.since(*m.DeletionTimestamp) + ")"
	}
	p.line(0, "Status:\t%s", phase)
}

func (p *page) head(m *metav1.ObjectMeta) {
	p.field(0, "Name", m.Name)
	p.field(0, "Namespace", m.Namespace)
}

// meta writes labels, annotations and, if the object is being deleted, its
// finalizers.
func (p *page) meta(m *metav1.ObjectMeta) {
	p.labels(m)
	if m.DeletionTimestamp != nil {
		p.field(0, "Status", "Terminating (lasts "+p.since(*m.DeletionTimestamp)+")")
		if len(m.Finalizers) > 0 {
			p.field(0, "Finalizers", strings.Join(m.Finalizers, ", ")+" (each must be removed by its owner before the object goes)")
		}
	}
}

func (p *page) since(t metav1.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(p.now.Sub(t.Time))
}

func when(t metav1.Time) string {
	if t.IsZero() {
		return ""
	}
	return rfc1123(t)
}

func rfc1123(t metav1.Time) string { return t.Time.Format(time.RFC1123Z) }

func orNone(s string) string {
	if s == "" {
		return "<none>"
	}
	return s
}

func controlledBy(m *metav1.ObjectMeta) string {
	if o := metav1.GetControllerOf(m); o != nil {
		return o.Kind + "/" + o.Name
	}
	return ""
}

func (p *page) events(events []corev1.Event) {
	if len(events) == 0 {
		p.line(0, "Events:\t<none>")
		return
	}
	p.line(0, "Events:")
	p.line(1, "Type\tReason\tAge\tFrom\tMessage")
	p.line(1, "----\t------\t----\t----\t-------")
	for i := range events {
		e := &events[i]
		from := e.Source.Component
		if from == "" {
			from = e.ReportingController
		}
		p.line(1, "%s\t%s\t%s\t%s\t%s", e.Type, e.Reason, p.eventAge(e), from, strings.TrimSpace(e.Message))
	}
}

func (p *page) eventAge(e *corev1.Event) string {
	last, first, count := e.LastTimestamp, e.FirstTimestamp, e.Count
	if e.Series != nil {
		last, count = metav1.Time{Time: e.Series.LastObservedTime.Time}, e.Series.Count
	}
	if first.IsZero() {
		first = metav1.Time{Time: e.EventTime.Time}
	}
	if last.IsZero() {
		last = first
	}
	if count > 1 {
		return fmt.Sprintf("%s (x%d over %s)", p.since(last), count, p.since(first))
	}
	return p.since(last)
}
