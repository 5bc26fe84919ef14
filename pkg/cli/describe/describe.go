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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Subject is an object with the related objects that its description needs; see
// Wants.
type Subject struct {
	Object      *unstructured.Unstructured
	Events      []corev1.Event // nil: leave the section out
	Pods        []corev1.Pod   // of a node, or selected by the object
	Slices      []discoveryv1.EndpointSlice
	ReplicaSets []appsv1.ReplicaSet // of a deployment
	Now         time.Time
}

// Wants reports which related objects the description of a kind needs.
func Wants(group, kind string) (pods, slices, replicaSets bool) {
	switch group + "/" + kind {
	case "/Node", "/ReplicationController", "apps/ReplicaSet", "apps/StatefulSet":
		return true, false, false
	case "/Service":
		return false, true, false
	case "apps/Deployment":
		return false, false, true
	}
	return false, false, false
}

// Write writes the description of s to w.
func Write(w io.Writer, s Subject) error {
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	p := &page{w: tw, now: s.Now}
	if err := p.body(s); err != nil {
		return err
	}
	if s.Events != nil {
		p.events(s.Events)
	}
	return tw.Flush()
}

func (p *page) body(s Subject) error {
	gvk := s.Object.GroupVersionKind()
	switch gvk.Group + "/" + gvk.Kind {
	case "/Pod":
		return typed(s, p.pod)
	case "/Node":
		return typed(s, func(n *corev1.Node) { p.node(n, s.Pods) })
	case "/Service":
		return typed(s, func(svc *corev1.Service) { p.service(svc, s.Slices) })
	case "/Namespace":
		return typed(s, p.namespace)
	case "/ConfigMap":
		return typed(s, p.configMap)
	case "/Secret":
		return typed(s, p.secret)
	case "/ServiceAccount":
		return typed(s, p.serviceAccount)
	case "/ReplicationController":
		return typed(s, func(rc *corev1.ReplicationController) { p.replicaSet(asReplicaSet(rc), s.Pods) })
	case "apps/Deployment":
		return typed(s, func(d *appsv1.Deployment) { p.deployment(d, s.ReplicaSets) })
	case "apps/ReplicaSet":
		return typed(s, func(rs *appsv1.ReplicaSet) { p.replicaSet(rs, s.Pods) })
	case "apps/StatefulSet":
		return typed(s, func(set *appsv1.StatefulSet) { p.statefulSet(set, s.Pods) })
	case "batch/Job":
		return typed(s, p.job)
	case "batch/CronJob":
		return typed(s, p.cronJob)
	}
	p.generic(s.Object)
	return nil
}

func typed[T any](s Subject, write func(*T)) error {
	var out T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.Object.Object, &out); err != nil {
		return fmt.Errorf("read %s %s: %w", s.Object.GetKind(), s.Object.GetName(), err)
	}
	write(&out)
	return nil
}

// page writes a description: lines with a name, a tab and a value.
type page struct {
	w   io.Writer
	now time.Time
}

// line writes one line, indented by two spaces for each level.
func (p *page) line(level int, format string, args ...any) {
	fmt.Fprintf(p.w, strings.Repeat("  ", level)+format+"\n", args...)
}

// field writes a name and its value, or nothing if the value is empty.
func (p *page) field(level int, name, value string) {
	if value != "" {
		p.line(level, "%s:\t%s", name, value)
	}
}

// pairs writes a map, sorted, with a line for each entry.
func (p *page) pairs(level int, name string, m map[string]string) {
	if len(m) == 0 {
		p.line(level, "%s:\t<none>", name)
		return
	}
	lead := name + ":"
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		if strings.Contains(value, "\n") || len(value) > 200 {
			value = strings.ReplaceAll(value[:min(len(value), 200)], "\n", `\n`)
		}
		p.line(level, "%s\t%s", lead, key+separator(name)+value)
		lead = ""
	}
}

func separator(name string) string {
	if name == "Annotations" {
		return ": "
	}
	return "="
}

func (p *page) head(m *metav1.ObjectMeta) {
	p.field(0, "Name", m.Name)
	p.field(0, "Namespace", m.Namespace)
}

// meta writes labels, annotations and, if the object is being deleted, its
// finalizers.
func (p *page) meta(m *metav1.ObjectMeta) {
	p.pairs(0, "Labels", m.Labels)
	annotations := maps.Clone(m.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	p.pairs(0, "Annotations", annotations)
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
	return t.Time.Format(time.RFC1123Z)
}

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

// generic describes a kind without a description of its own: it lists all
// fields.
func (p *page) generic(o *unstructured.Unstructured) {
	p.field(0, "Name", o.GetName())
	p.field(0, "Namespace", o.GetNamespace())
	p.pairs(0, "Labels", o.GetLabels())
	annotations := maps.Clone(o.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	p.pairs(0, "Annotations", annotations)
	p.field(0, "API Version", o.GetAPIVersion())
	p.field(0, "Kind", o.GetKind())
	rest := maps.Clone(o.Object)
	meta, _ := rest["metadata"].(map[string]any)
	meta = maps.Clone(meta)
	for _, shown := range []string{"name", "namespace", "labels", "annotations", "managedFields"} {
		delete(meta, shown)
	}
	rest["metadata"] = meta
	delete(rest, "apiVersion")
	delete(rest, "kind")
	p.tree(0, rest)
}

// tree writes maps and lists, indented by depth.
func (p *page) tree(level int, m map[string]any) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := words(key)
		switch v := m[key].(type) {
		case map[string]any:
			p.line(level, "%s:", name)
			p.tree(level+1, v)
		case []any:
			p.line(level, "%s:", name)
			for _, item := range v {
				if child, ok := item.(map[string]any); ok {
					p.tree(level+1, child)
					continue
				}
				p.line(level+1, "%v", item)
			}
		default:
			p.line(level, "%s:\t%v", name, v)
		}
	}
}

// words converts leaseDurationSeconds to Lease Duration Seconds.
func words(key string) string {
	var b strings.Builder
	runes := []rune(key)
	for i, r := range runes {
		upper := r >= 'A' && r <= 'Z'
		if i == 0 && r >= 'a' && r <= 'z' {
			r += 'A' - 'a'
		}
		startsWord := upper && i > 0 && (runes[i-1] >= 'a' && runes[i-1] <= 'z' || i+1 < len(runes) && runes[i+1] >= 'a' && runes[i+1] <= 'z')
		if startsWord {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}
