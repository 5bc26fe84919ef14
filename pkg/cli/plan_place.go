package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/cli/plan"
	"podium/pkg/cli/rest"
	"podium/pkg/client"
	"podium/pkg/quota"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// place places the pods of all objects, in their order.
func (p *planner) place(ctx context.Context, objects []*planned) error {
	cluster, unread, devices, err := readCluster(ctx, p.c)
	if err != nil {
		return err
	}
	workloads, err := p.workloads(ctx, objects, cluster)
	if err != nil {
		return err
	}
	l := &landing{cluster: cluster, unread: unread, devices: devices, sim: plan.New(cluster), quotas: newQuotas(ctx, p.c)}
	for i, r := range objects {
		if w := workloads[i]; w != nil && r.PodsRefused == "" {
			l.land(r, w)
		}
	}
	return nil
}

// workloads returns what pods each object would create, nil for none, and adds
// the objects to the cluster.
func (p *planner) workloads(ctx context.Context, objects []*planned, cluster *plan.Cluster) ([]*plan.Workload, error) {
	out := make([]*plan.Workload, len(objects))
	for i, r := range objects {
		if r.Change == "refused" {
			continue
		}
		if r.Change != "unchanged" {
			out[i] = workloadPlanned(r, cluster)
		}
		if w := out[i]; w != nil && (w.New > 0 || w.PerNode) {
			if err := p.model(ctx, r, w); err != nil {
				return nil, err
			}
		}
		foresee(cluster, r.after)
	}
	return out, nil
}

// landing places pods on the cluster as it would be.
type landing struct {
	cluster *plan.Cluster
	unread  []string // what the user may not list
	devices []string // the same, of what only pods need that may use devices
	sim     *plan.Simulation
	quotas  *quotas
}

// land places the pods of one object.
func (l *landing) land(r *planned, w *plan.Workload) {
	note := func(format string, args ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, args...)) }
	unread := l.unread
	if plan.MayUseDevices(w.Pod) {
		unread = slices.Concat(unread, l.devices)
	}
	if len(unread) > 0 {
		note("where its pods land is not known without reading %s", strings.Join(unread, ", "))
		return
	}
	if w.Old == nil && !w.PerNode {
		w.New, r.PodsRefused = l.quotas.admit(w.Pod, w.New)
	}
	if name := w.Pod.Spec.SchedulerName; name != "" && name != corev1.DefaultSchedulerName {
		note("its pods are placed by the scheduler %q, which plan does not know", name)
		return
	}
	for _, claim := range withoutUnbound(l.cluster, w.Pod) {
		note("the claim %s is not bound yet: its volume may restrict the nodes", claim)
	}
	if r.Pods = l.sim.PlaceWorkload(w); w.Claims && len(r.Pods) > 0 {
		note("the volumes of its volumeClaimTemplates are not planned: they may restrict the nodes")
	}
}

// workloadPlanned returns the pods that the change of an object creates; nil if
// it has none.
func workloadPlanned(r *planned, c *plan.Cluster) *plan.Workload {
	if r.after == nil {
		return nil
	}
	new := typedWorkload(r.after)
	if new == nil {
		return nil
	}
	var old any
	var owned []*corev1.Pod
	if r.before != nil {
		old = typedWorkload(r.before)
		owned = ownedBy(c, r.before.GetUID())
	}
	return plan.Of(old, new, owned)
}

// typedWorkload decodes an object that has pods; nil for others.
func typedWorkload(o *rest.Object) any {
	var out any
	switch o.GroupVersionKind().GroupKind().String() {
	case "Pod":
		out = &corev1.Pod{}
	case "Deployment.apps":
		out = &appsv1.Deployment{}
	case "ReplicaSet.apps":
		out = &appsv1.ReplicaSet{}
	case "StatefulSet.apps":
		out = &appsv1.StatefulSet{}
	case "DaemonSet.apps":
		out = &appsv1.DaemonSet{}
	case "Job.batch":
		out = &batchv1.Job{}
	default:
		return nil
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out) != nil {
		return nil
	}
	return out
}

// ownedBy returns the pods that an object controls, itself or through a
// ReplicaSet.
func ownedBy(c *plan.Cluster, uid types.UID) (out []*corev1.Pod) {
	owners := map[types.UID]bool{uid: true}
	for _, s := range c.ReplicaSets {
		if ref := metav1.GetControllerOfNoCopy(s); ref != nil && ref.UID == uid {
			owners[s.UID] = true
		}
	}
	for _, p := range c.Pods {
		if ref := metav1.GetControllerOfNoCopy(p); ref != nil && owners[ref.UID] && p.DeletionTimestamp == nil && !plan.Ended(p) {
			out = append(out, p)
		}
	}
	return out
}

// model replaces the workload's pod by what the server makes of it in a dry run:
// with defaults, and after admission, quota and policies.
func (p *planner) model(ctx context.Context, r *planned, w *plan.Workload) error {
	if w.Kind == "Pod" || p.created[w.Namespace] {
		return nil // the object itself is the pod; or nothing can be asked
	}
	kind, err := p.c.Find(ctx, "pods")
	if err != nil {
		return err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(w.Pod)
	if err != nil {
		return err
	}
	obj := &rest.Object{Object: fields}
	obj.SetAPIVersion("v1")
	obj.SetKind("Pod")
	obj.SetGenerateName(w.Name + "-")
	delete(obj.Object, "status")
	p.warnings = nil
	after, err := p.c.Create(ctx, kind, w.Namespace, obj, rest.WriteQuery(true, manager))
	for _, text := range p.warnings {
		if !slices.Contains(r.Warnings, text) {
			r.Warnings = append(r.Warnings, text)
		}
	}
	switch {
	case refusedByRBAC(err):
		r.Notes = append(r.Notes, "admission of its pods is not checked: you may not create pods")
		return nil
	case err != nil && statusCode(err) == 0:
		return err
	case err != nil:
		r.PodsRefused = err.Error()
		return nil
	}
	pod, err := toPod(after)
	pod.Name, pod.GenerateName = "", ""
	w.Pod = &pod
	return err
}

// statusCode returns the HTTP status of the server's error; 0 for other errors.
func statusCode(err error) int32 {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status().Code
	}
	return 0
}

// readCluster lists what the scheduler reads, and returns which resources the
// user may not list: devices are those that only pods need that may use devices.
func readCluster(ctx context.Context, c *rest.Cluster) (_ *plan.Cluster, unread, devices []string, _ error) {
	out := &plan.Cluster{}
	l := &lists{ctx: ctx, c: c.Client()}
	out.Nodes = all[*corev1.Node](l, "nodes")
	out.Pods = all[*corev1.Pod](l, "pods")
	out.Budgets = all[*policyv1.PodDisruptionBudget](l, "poddisruptionbudgets")
	out.Namespaces = all[*corev1.Namespace](l, "namespaces")
	out.Services = all[*corev1.Service](l, "services")
	out.ReplicaSets = all[*appsv1.ReplicaSet](l, "replicasets")
	out.StatefulSets = all[*appsv1.StatefulSet](l, "statefulsets")
	out.Controllers = all[*corev1.ReplicationController](l, "replicationcontrollers")
	out.Claims = all[*corev1.PersistentVolumeClaim](l, "persistentvolumeclaims")
	out.Volumes = all[*corev1.PersistentVolume](l, "persistentvolumes")
	out.Classes = all[*storagev1.StorageClass](l, "storageclasses")
	out.Drivers = all[*storagev1.CSIDriver](l, "csidrivers")
	out.Capacities = all[*storagev1.CSIStorageCapacity](l, "csistoragecapacities")
	out.CSINodes = all[*storagev1.CSINode](l, "csinodes")
	out.Attachments = all[*storagev1.VolumeAttachment](l, "volumeattachments")
	unread, l.forbidden = l.forbidden, nil
	out.DeviceClaims = all[*resourcev1.ResourceClaim](l, "resourceclaims")
	out.ClaimTemplates = all[*resourcev1.ResourceClaimTemplate](l, "resourceclaimtemplates")
	out.DeviceClasses = all[*resourcev1.DeviceClass](l, "deviceclasses")
	out.Slices = all[*resourcev1.ResourceSlice](l, "resourceslices")
	out.TaintRules = all[*resourcev1.DeviceTaintRule](l, "devicetaintrules")
	return out, unread, l.forbidden, l.err
}

// lists makes list requests until one fails for another reason than a lack of
// rights.
type lists struct {
	ctx       context.Context
	c         *client.Client
	forbidden []string
	err       error
}

func all[T scheme.Object](l *lists, resource string) []T {
	if l.err != nil {
		return nil
	}
	list, err := client.For[T](l.c).List(l.ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsForbidden(err):
		l.forbidden = append(l.forbidden, resource)
	case apierrors.IsNotFound(err): // an older server does not serve the resource: there are none
	case err != nil:
		l.err = fmt.Errorf("list %s: %w", resource, err)
	default:
		return list.Items
	}
	return nil
}

// foresee adds an object of the plan to the cluster, or replaces it there, as
// far as it matters to the scheduler.
func foresee(c *plan.Cluster, o *rest.Object) {
	switch o.GroupVersionKind().GroupKind().String() {
	case "Node":
		c.Nodes = put(c.Nodes, &corev1.Node{}, o)
	case "Namespace":
		c.Namespaces = put(c.Namespaces, &corev1.Namespace{}, o)
	case "Service":
		c.Services = put(c.Services, &corev1.Service{}, o)
	case "PodDisruptionBudget.policy":
		c.Budgets = put(c.Budgets, &policyv1.PodDisruptionBudget{}, o)
	case "PersistentVolumeClaim":
		c.Claims = put(c.Claims, &corev1.PersistentVolumeClaim{}, o)
	case "PersistentVolume":
		c.Volumes = put(c.Volumes, &corev1.PersistentVolume{}, o)
	case "StorageClass.storage.k8s.io":
		c.Classes = put(c.Classes, &storagev1.StorageClass{}, o)
	case "ResourceClaim.resource.k8s.io":
		c.DeviceClaims = put(c.DeviceClaims, &resourcev1.ResourceClaim{}, o)
	case "ResourceClaimTemplate.resource.k8s.io":
		c.ClaimTemplates = put(c.ClaimTemplates, &resourcev1.ResourceClaimTemplate{}, o)
	case "DeviceClass.resource.k8s.io":
		c.DeviceClasses = put(c.DeviceClasses, &resourcev1.DeviceClass{}, o)
	case "ResourceSlice.resource.k8s.io":
		c.Slices = put(c.Slices, &resourcev1.ResourceSlice{}, o)
	case "DeviceTaintRule.resource.k8s.io":
		c.TaintRules = put(c.TaintRules, &resourcev1.DeviceTaintRule{}, o)
	}
}

func put[T scheme.Object](list []T, into T, o *rest.Object) []T {
	if runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, into) != nil {
		return list
	}
	for i, have := range list {
		if have.GetNamespace() == into.GetNamespace() && have.GetName() == into.GetName() {
			list[i] = into
			return list
		}
	}
	return append(list, into)
}

// withoutUnbound removes the volumes of a pod that a provisioner is about to
// make: where they will be is not known. It returns the names of their claims.
func withoutUnbound(c *plan.Cluster, pod *corev1.Pod) (claims []string) {
	var keep []corev1.Volume
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && provisioned(c, pod.Namespace, v.PersistentVolumeClaim.ClaimName) {
			claims = append(claims, v.PersistentVolumeClaim.ClaimName)
			continue
		}
		keep = append(keep, v)
	}
	pod.Spec.Volumes = keep
	return claims
}

// provisioned reports whether a claim waits for a provisioner that does not wait
// for the pod.
func provisioned(c *plan.Cluster, namespace, name string) bool {
	for _, claim := range c.Claims {
		if claim.Namespace != namespace || claim.Name != name || volumebinding.Bound(claim) {
			continue
		}
		for _, class := range c.Classes {
			if class.Name == volumebinding.ClassOf(claim) && !volumebinding.Delayed(class) && class.Provisioner != volumebinding.NoProvisioner {
				return true
			}
		}
	}
	return false
}

// quotas count what the plan's pods add to each ResourceQuota.
type quotas struct {
	all  []*corev1.ResourceQuota // with the plan's pods in status.used
	eval quota.Evaluator
}

// newQuotas reads the quotas; without the right to, there are none to check.
func newQuotas(ctx context.Context, c *rest.Cluster) *quotas {
	q := &quotas{eval: quota.For(corev1.Resource("pods"))}
	if list, err := client.For[*corev1.ResourceQuota](c.Client()).List(ctx, metav1.ListOptions{}); err == nil {
		q.all = list.Items
	}
	return q
}

// admit counts n pods and returns how many the quotas admit, with the reason if
// these are fewer.
func (q *quotas) admit(pod *corev1.Pod, n int) (int, string) {
	for i := range n {
		for _, one := range q.all {
			if one.Namespace != pod.Namespace || !q.eval.Matches(one, pod) {
				continue
			}
			more := quota.Select(q.eval.Usage(pod, time.Now()), q.eval.Limiting(one.Status.Hard))
			if names := quota.Exceeded(one.Status.Used, more, one.Status.Hard); len(names) > 0 {
				return i, fmt.Sprintf("the ResourceQuota %q admits %d of %d: %s would exceed it", one.Name, i, n, quota.NamesText(names))
			}
		}
		for _, one := range q.all {
			if one.Namespace == pod.Namespace && q.eval.Matches(one, pod) {
				if one.Status.Used == nil {
					one.Status.Used = corev1.ResourceList{}
				}
				quota.Add(one.Status.Used, quota.Select(q.eval.Usage(pod, time.Now()), q.eval.Limiting(one.Status.Hard)))
			}
		}
	}
	return n, ""
}
