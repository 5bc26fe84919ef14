// Package ephemeralvolume creates the PersistentVolumeClaims of generic ephemeral volumes.
//
// The claim of a volume is named after the pod and the volume, and the pod owns it, so that
// the garbage collector deletes it with the pod. The scheduler and the kubelet wait for the
// claim. A claim of that name that the pod does not own is never used: the controller
// reports it and waits until it is gone.
package ephemeralvolume

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/informer"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
	"podium/pkg/controller/ownership"
	"podium/pkg/controller/pods"
	"podium/pkg/prom"
	"podium/pkg/volumebinding"
)

// Metrics are the controller's metrics, under upstream's names.
type Metrics struct{ created, failed prometheus.Counter }

// NewMetrics creates the metrics and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	f := prom.For(r)
	return &Metrics{
		created: f.Counter("ephemeral_volume_controller_create_total", "Number of requests that create a PersistentVolumeClaim"),
		failed:  f.Counter("ephemeral_volume_controller_create_failures_total", "Number of requests that create a PersistentVolumeClaim and failed"),
	}
}

// Spec describes the controller.
func Spec(workers int, m *Metrics) controller.Spec {
	return controller.Spec{
		Name: "ephemeral-volume-controller", Component: "ephemeral_volume", Workers: workers,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, m), nil },
	}
}

// reconciler reconciles pods.
type reconciler struct {
	*loop.Loop
	controller.Context
	pods    *informer.Informer[*corev1.Pod]
	claims  *informer.Informer[*corev1.PersistentVolumeClaim]
	writer  controller.Writer[*corev1.PersistentVolumeClaim]
	metrics *Metrics
}

func build(c controller.Context, m *Metrics) *reconciler {
	r := &reconciler{
		Context: c, metrics: m,
		pods:   informers.For[*corev1.Pod](c.Informers),
		claims: informers.For[*corev1.PersistentVolumeClaim](c.Informers),
	}
	r.Loop = c.NewLoop("ephemeral_volume", 0, r.reconcile, r.pods, r.claims)
	r.writer = controller.NewWriter(c, r.Loop, r.claims)
	users := informers.Index(r.pods, "ephemeral", func(pod *corev1.Pod) (names []string) {
		for _, v := range volumesOf(pod) {
			names = append(names, pod.Namespace+"/"+volumebinding.ClaimName(pod, v))
		}
		return names
	})
	r.pods.OnChange(func(_, pod *corev1.Pod) {
		if pod != nil && len(volumesOf(pod)) > 0 {
			r.Wake(loop.KeyOf(pod))
		}
	})
	loop.WakeOn(r.Loop, r.claims, func(claim *corev1.PersistentVolumeClaim) (keys []loop.Key) {
		for _, pod := range users(claim.Namespace + "/" + claim.Name) {
			keys = append(keys, loop.KeyOf(pod))
		}
		return keys
	})
	return r
}

// volumesOf returns the ephemeral volumes of a pod.
func volumesOf(pod *corev1.Pod) (out []*corev1.Volume) {
	for i := range pod.Spec.Volumes {
		if v := &pod.Spec.Volumes[i]; v.Ephemeral != nil {
			out = append(out, v)
		}
	}
	return out
}

func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	pod, ok := r.pods.Get(key.Namespace, key.Name)
	if !ok {
		return loop.Done, nil
	}
	claims, err := decide(pod, func(name string) *corev1.PersistentVolumeClaim {
		claim, _ := r.claims.Get(pod.Namespace, name)
		return claim
	})
	errs := []error{err}
	for i := range claims {
		errs = append(errs, r.create(ctx, key, &claims[i]))
	}
	if err = errors.Join(errs...); err != nil && !controller.NamespaceTerminating(err) {
		r.Events.Event(pod, corev1.EventTypeWarning, "FailedBinding", err.Error())
	}
	return loop.Done, err
}

func (r *reconciler) create(ctx context.Context, key loop.Key, m *missing) error {
	r.metrics.created.Inc()
	_, err := r.writer.Create(ctx, key, m.claim)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err): // the response of an earlier request was lost, or the claim has another owner
		r.writer.Exists(key, m.claim.Namespace, m.claim.Name)
		return nil
	}
	r.metrics.failed.Inc()
	return fmt.Errorf("ephemeral volume %s: create PVC %s: %w", m.volume, m.claim.Name, err)
}

// missing is a claim to create for a volume.
type missing struct {
	volume string
	claim  *corev1.PersistentVolumeClaim
}

// decide returns the claims that a pod lacks, and an error for each that exists and that
// the pod does not own. get returns a claim of the pod's namespace, nil if it does not
// exist.
func decide(pod *corev1.Pod, get func(name string) *corev1.PersistentVolumeClaim) (out []missing, err error) {
	if !pods.Active(pod) {
		return nil, nil
	}
	for _, v := range volumesOf(pod) {
		claim := get(volumebinding.ClaimName(pod, v))
		if claim == nil {
			out = append(out, missing{v.Name, newClaim(pod, v)})
		} else if foreign := volumebinding.CheckOwner(pod, v, claim); foreign != nil {
			err = errors.Join(err, fmt.Errorf("ephemeral volume %s: %w", v.Name, foreign))
		}
	}
	return out, err
}

func newClaim(pod *corev1.Pod, v *corev1.Volume) *corev1.PersistentVolumeClaim {
	t := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: volumebinding.ClaimName(pod, v), Labels: t.Labels, Annotations: t.Annotations,
			OwnerReferences: []metav1.OwnerReference{ownership.Reference(pod, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: t.Spec,
	}
}
