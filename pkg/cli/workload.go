package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"podium/pkg/cli/rest"
)

// workload is an object with rollouts.
type workload struct {
	Template *corev1.PodTemplateSpec
	Paused   *bool // nil: the kind cannot be paused
	// State describes the progress of the rollout. An error means that it will not
	// continue. If number is not 0, that revision must be the present one; only
	// Deployments can tell.
	State func(number int64) (text string, done bool, err error)
	// History returns the revisions, the present one last.
	History func(context.Context, *rest.Cluster) ([]revision, error)
}

// revision is a pod template that a workload has or had.
type revision struct {
	Number   int64
	Cause    string // of the change, as its author wrote it
	Template corev1.PodTemplateSpec
	Object   runtime.Object // that keeps it
	Kind     schema.GroupVersionKind
}

var workloads = map[schema.GroupKind]func(*rest.Object) (*workload, error){
	{Group: "apps", Kind: "Deployment"}:  workloadFrom(deploymentWorkload),
	{Group: "apps", Kind: "StatefulSet"}: workloadFrom(statefulSetWorkload),
	{Group: "apps", Kind: "DaemonSet"}:   workloadFrom(daemonSetWorkload),
}

func workloadOf(obj *rest.Object) (*workload, error) {
	decode := workloads[obj.GroupVersionKind().GroupKind()]
	if decode == nil {
		return nil, errors.New("only deployments, daemon sets and stateful sets have rollouts")
	}
	return decode(obj)
}

func workloadFrom[T any](build func(*T) *workload) func(*rest.Object) (*workload, error) {
	return func(obj *rest.Object) (*workload, error) {
		var typed T
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, &typed); err != nil {
			return nil, err
		}
		return build(&typed), nil
	}
}

// Annotations, labels and reasons of deployments and their ReplicaSets.
const (
	annotationRevision = "deployment.kubernetes.io/revision"
	labelTemplateHash  = "pod-template-hash"
	reasonDeadline     = "ProgressDeadlineExceeded"
)

func deploymentWorkload(d *appsv1.Deployment) *workload {
	return &workload{
		Template: &d.Spec.Template, Paused: &d.Spec.Paused,
		State: func(number int64) (string, bool, error) { return deploymentState(d, number) },
		History: func(ctx context.Context, c *rest.Cluster) ([]revision, error) {
			sets, err := replicaSets(ctx, c, d)
			var all []revision
			for i := range sets {
				template := *sets[i].Spec.Template.DeepCopy()
				delete(template.Labels, labelTemplateHash)
				all = append(all, revision{revisionOf(&sets[i].ObjectMeta), sets[i].Annotations[annotationChangeCause], template, &sets[i], appsv1.SchemeGroupVersion.WithKind("ReplicaSet")})
			}
			return all, err
		},
	}
}

func deploymentState(d *appsv1.Deployment, number int64) (text string, done bool, err error) {
	if number > 0 {
		if have := revisionOf(&d.ObjectMeta); have != number {
			return "", false, fmt.Errorf("desired revision (%d) is different from the running revision (%d)", number, have)
		}
	}
	if d.Generation > d.Status.ObservedGeneration {
		return "Waiting for deployment spec update to be observed...", false, nil
	}
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Reason == reasonDeadline {
			return "", false, fmt.Errorf("deployment %q exceeded its progress deadline", d.Name)
		}
	}
	s, want := d.Status, ptr.Deref(d.Spec.Replicas, 1)
	switch {
	case s.UpdatedReplicas < want:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d out of %d new replicas have been updated...", d.Name, s.UpdatedReplicas, want), false, nil
	case s.Replicas > s.UpdatedReplicas:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d old replicas are pending termination...", d.Name, s.Replicas-s.UpdatedReplicas), false, nil
	case s.AvailableReplicas < s.UpdatedReplicas:
		return fmt.Sprintf("Waiting for deployment %q rollout to finish: %d of %d updated replicas are available...", d.Name, s.AvailableReplicas, s.UpdatedReplicas), false, nil
	}
	return fmt.Sprintf("deployment %q successfully rolled out", d.Name), true, nil
}

func revisionOf(m *metav1.ObjectMeta) int64 {
	n, err := strconv.ParseInt(m.Annotations[annotationRevision], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// replicaSets returns the ReplicaSets of a deployment, the oldest revision first.
func replicaSets(ctx context.Context, c *rest.Cluster, d *appsv1.Deployment) ([]appsv1.ReplicaSet, error) {
	return controlled(ctx, c, "replicasets.apps", d, d.Spec.Selector, func(rs *appsv1.ReplicaSet) (metav1.Object, int64) {
		return rs, revisionOf(&rs.ObjectMeta)
	})
}

// controlled returns the objects of a kind that owner controls, sorted by their numbers.
func controlled[T any](ctx context.Context, c *rest.Cluster, word string, owner metav1.Object, s *metav1.LabelSelector, number func(*T) (metav1.Object, int64)) ([]T, error) {
	k, err := c.Find(ctx, word)
	if err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return nil, err
	}
	t := target{Kind: k, Namespace: owner.GetNamespace()}
	all, err := related[T](ctx, c, word, t, url.Values{"labelSelector": {selector.String()}})
	all = slices.DeleteFunc(all, func(obj T) bool {
		meta, _ := number(&obj)
		return !metav1.IsControlledBy(meta, owner)
	})
	slices.SortFunc(all, func(a, b T) int {
		_, x := number(&a)
		_, y := number(&b)
		return cmp.Compare(x, y)
	})
	return all, err
}

// controllerRevisions returns the history of a workload that keeps it in
// ControllerRevisions.
func controllerRevisions(owner metav1.Object, s *metav1.LabelSelector) func(context.Context, *rest.Cluster) ([]revision, error) {
	return func(ctx context.Context, c *rest.Cluster) ([]revision, error) {
		found, err := controlled(ctx, c, "controllerrevisions.apps", owner, s, func(r *appsv1.ControllerRevision) (metav1.Object, int64) { return r, r.Revision })
		if err != nil {
			return nil, err
		}
		var all []revision
		for i := range found {
			r := &found[i]
			template, err := templateIn(r)
			if err != nil {
				return nil, fmt.Errorf("controllerrevision %s: %w", r.Name, err)
			}
			all = append(all, revision{r.Revision, r.Annotations[annotationChangeCause], *template, r, appsv1.SchemeGroupVersion.WithKind("ControllerRevision")})
		}
		return all, nil
	}
}

// templateIn returns the pod template in the patch that a ControllerRevision holds.
func templateIn(r *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var patch appsv1.DaemonSet // a StatefulSet has its template in the same field
	err := json.Unmarshal(r.Data.Raw, &patch)
	return &patch.Spec.Template, err
}

func statefulSetWorkload(set *appsv1.StatefulSet) *workload {
	return &workload{
		Template: &set.Spec.Template,
		State:    func(int64) (string, bool, error) { return statefulSetState(set) },
		History:  controllerRevisions(set, set.Spec.Selector),
	}
}

func statefulSetState(set *appsv1.StatefulSet) (text string, done bool, err error) {
	strategy, s, want := set.Spec.UpdateStrategy, set.Status, ptr.Deref(set.Spec.Replicas, 1)
	if err := onlyRolling(string(strategy.Type)); err != nil {
		return "", true, err
	}
	switch {
	case s.ObservedGeneration == 0 || set.Generation > s.ObservedGeneration:
		return "Waiting for statefulset spec update to be observed...", false, nil
	case s.ReadyReplicas < want:
		return fmt.Sprintf("Waiting for %d pods to be ready...", want-s.ReadyReplicas), false, nil
	}
	if r := strategy.RollingUpdate; r != nil { // kubectl calls each of these a partitioned roll out
		if due := want - ptr.Deref(r.Partition, 0); s.UpdatedReplicas < due {
			return fmt.Sprintf("Waiting for partitioned roll out to finish: %d out of %d new pods have been updated...", s.UpdatedReplicas, due), false, nil
		}
		return fmt.Sprintf("partitioned roll out complete: %d new pods have been updated...", s.UpdatedReplicas), true, nil
	}
	if s.UpdateRevision != s.CurrentRevision {
		return fmt.Sprintf("waiting for statefulset rolling update to complete %d pods at revision %s...", s.UpdatedReplicas, s.UpdateRevision), false, nil
	}
	return fmt.Sprintf("statefulset rolling update complete %d pods at revision %s...", s.CurrentReplicas, s.CurrentRevision), true, nil
}

func daemonSetWorkload(set *appsv1.DaemonSet) *workload {
	return &workload{
		Template: &set.Spec.Template,
		State:    func(int64) (string, bool, error) { return daemonSetState(set) },
		History:  controllerRevisions(set, set.Spec.Selector),
	}
}

func daemonSetState(set *appsv1.DaemonSet) (text string, done bool, err error) {
	if err := onlyRolling(string(set.Spec.UpdateStrategy.Type)); err != nil {
		return "", true, err
	}
	s := set.Status
	switch {
	case set.Generation > s.ObservedGeneration:
		return "Waiting for daemon set spec update to be observed...", false, nil
	case s.UpdatedNumberScheduled < s.DesiredNumberScheduled:
		return fmt.Sprintf("Waiting for daemon set %q rollout to finish: %d out of %d new pods have been updated...", set.Name, s.UpdatedNumberScheduled, s.DesiredNumberScheduled), false, nil
	case s.NumberAvailable < s.DesiredNumberScheduled:
		return fmt.Sprintf("Waiting for daemon set %q rollout to finish: %d of %d updated pods are available...", set.Name, s.NumberAvailable, s.DesiredNumberScheduled), false, nil
	}
	return fmt.Sprintf("daemon set %q successfully rolled out", set.Name), true, nil
}

// onlyRolling refuses update strategies without rollouts.
func onlyRolling(strategy string) error {
	if want := string(appsv1.RollingUpdateStatefulSetStrategyType); strategy != want {
		return fmt.Errorf("rollout status is only available for %s strategy type", want)
	}
	return nil
}
