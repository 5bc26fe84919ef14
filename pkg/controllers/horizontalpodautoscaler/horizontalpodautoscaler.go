package horizontalpodautoscaler

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/client/discovery"
	"podium/pkg/client/informer"
	"podium/pkg/client/scales"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/loop"
)

// Options configure the controller.
type Options struct {
	Workers int // autoscalers reconciled at a time

	SyncPeriod             time.Duration // between two reconciles of an autoscaler
	DownscaleStabilization time.Duration // how long fewer replicas must be recommended, where the autoscaler does not say
	Tolerance              float64       // fraction of a target, where the autoscaler does not say

	CPUInitializationPeriod time.Duration // after a pod's start, while CPU samples are checked for readiness
	InitialReadinessDelay   time.Duration // after a pod's start, while changes of readiness are of its start
}

// Defaults returns upstream's defaults.
func Defaults() Options {
	return Options{
		Workers: 5, SyncPeriod: 15 * time.Second, DownscaleStabilization: 5 * time.Minute, Tolerance: 0.1,
		CPUInitializationPeriod: 5 * time.Minute, InitialReadinessDelay: 30 * time.Second,
	}
}

// Spec describes the horizontal pod autoscaler controller.
func Spec(o Options, m *Metrics) controller.Spec {
	return controller.Spec{
		Name: "horizontal-pod-autoscaler-controller", Account: "horizontal-pod-autoscaler", Workers: o.Workers,
		New: func(c controller.Context) (controller.Runner, error) { return build(c, o, m), nil },
	}
}

type reconciler struct {
	controller.Context
	Options
	*loop.Loop
	metrics     *Metrics
	autoscalers *informer.Informer[*autoscalingv2.HorizontalPodAutoscaler]
	pods        *informer.Informer[*corev1.Pod]
	writer      controller.Writer[*autoscalingv2.HorizontalPodAutoscaler]
	scales      *scales.Client
	sources     *sources
	memory      *memory
}

func build(c controller.Context, o Options, m *Metrics) *reconciler {
	kinds := discovery.NewResolver(discovery.New(c.Client))
	r := &reconciler{
		Context: c, Options: o, metrics: m,
		autoscalers: informers.For[*autoscalingv2.HorizontalPodAutoscaler](c.Informers),
		pods:        informers.For[*corev1.Pod](c.Informers),
		scales:      scales.New(c.Client, kinds),
		sources:     &sources{client: c.Client, kinds: kinds},
		memory:      newMemory(),
	}
	// The pace holds for changes, too: those of metrics cause one at each reconcile.
	r.Loop = c.NewLoop("horizontalpodautoscaler", o.SyncPeriod, r.reconcile, r.autoscalers, r.pods)
	r.writer = controller.NewWriter(c, r.Loop, r.autoscalers)
	loop.WakeOn(r.Loop, r.autoscalers, loop.Self)
	m.autoscalers.Set(0) // of an earlier term as the leader
	r.autoscalers.OnChange(m.changed)
	return r
}

// reconcile follows the metrics of one autoscaler. It comes again after the sync period,
// whether it fails or not.
func (r *reconciler) reconcile(ctx context.Context, key loop.Key) (loop.Result, error) {
	a, ok := r.autoscalers.Get(key.Namespace, key.Name)
	if !ok {
		r.memory.forget(key)
		return loop.Done, nil
	}
	if err := r.follow(ctx, key, a); err != nil && ctx.Err() == nil {
		r.Log.Warn("autoscaling failed", "key", key.String(), "err", err)
	}
	return loop.After(r.SyncPeriod), nil
}

func (r *reconciler) follow(ctx context.Context, key loop.Key, a *autoscalingv2.HorizontalPodAutoscaler) error {
	began := time.Now()
	kind, scale, err := r.scale(ctx, a)
	if err != nil {
		r.metrics.reconciled(key, began, 0, nil, err)
		return r.unscalable(ctx, key, a, "FailedGetScale", "the HPA controller was unable to get the target's current scale: %v", err)
	}
	v := r.look(ctx, key, a, scale)
	o := decide(v)
	r.metrics.computedAll(v, o.proposals)
	for _, e := range o.events {
		r.Events.Event(a, corev1.EventTypeWarning, e.reason, e.message)
	}
	if o.recommended != nil {
		r.memory.recommend(key, entry{v.now, *o.recommended}, max(v.upWindow(), v.downWindow()))
	}
	change, err := r.rescale(ctx, key, kind, v, &o)
	if err == nil {
		err = o.err
	}
	r.metrics.reconciled(key, began, change, &o, err)
	if failed := r.updateStatus(ctx, key, a, o.status); failed != nil {
		return failed
	}
	return err
}

// scale returns the kind of the target, and its scale.
func (r *reconciler) scale(ctx context.Context, a *autoscalingv2.HorizontalPodAutoscaler) (schema.GroupVersionKind, *autoscalingv1.Scale, error) {
	ref := a.Spec.ScaleTargetRef
	gv, err := schema.ParseGroupVersion(ref.APIVersion)
	if err != nil {
		return schema.GroupVersionKind{}, nil, defect{err}
	}
	kind := gv.WithKind(ref.Kind)
	kind.Version = "" // any
	s, err := r.scales.Get(ctx, a.Namespace, kind, ref.Name)
	return kind, s, err
}

// look collects what decide needs. It reads the metrics unless they do not matter now.
func (r *reconciler) look(ctx context.Context, key loop.Key, a *autoscalingv2.HorizontalPodAutoscaler, scale *autoscalingv1.Scale) *view {
	v := &view{HorizontalPodAutoscaler: a, Options: r.Options, now: time.Now(), scale: scale}
	v.history = r.memory.of(key, entry{v.now, scale.Spec.Replicas})
	if fixed, _, _ := v.unavailable(); fixed {
		return v
	}
	selector, refused := r.selector(key, scale)
	if v.selector = refused; refused != nil {
		return v
	}
	v.pods = r.selected(a.Namespace, selector)
	for i := range a.Spec.Metrics {
		v.readings = append(v.readings, r.sources.read(ctx, a.Namespace, selector, &a.Spec.Metrics[i]))
	}
	v.now = time.Now()
	return v
}

// rescale sets the scale of the target if decide wants it. It returns by how many replicas
// the scale has changed.
func (r *reconciler) rescale(ctx context.Context, key loop.Key, kind schema.GroupVersionKind, v *view, o *outcome) (int32, error) {
	change := o.replicas - v.scale.Spec.Replicas
	if change == 0 {
		return 0, nil
	}
	next := *v.scale
	next.Spec.Replicas = o.replicas
	if _, err := r.scales.Update(ctx, kind, &next); err != nil {
		r.Events.Eventf(v.HorizontalPodAutoscaler, corev1.EventTypeWarning, "FailedRescale", "New size: %d; reason: %s; error: %v", o.replicas, o.reason, err)
		o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionFalse, "FailedUpdateScale", fmt.Sprintf("the HPA controller was unable to update the target scale: %v", err))
		o.status.DesiredReplicas = v.Status.DesiredReplicas
		return 0, fmt.Errorf("rescale %s %s: %w", kind.Kind, v.scale.Name, err)
	}
	r.memory.change(key, entry{v.now, change})
	o.set(v.now, autoscalingv2.AbleToScale, corev1.ConditionTrue, "SucceededRescale", fmt.Sprintf("the HPA controller was able to update the target scale to %d", o.replicas))
	o.status.LastScaleTime = new(metav1.NewTime(v.now))
	r.Events.Eventf(v.HorizontalPodAutoscaler, corev1.EventTypeNormal, "SuccessfulRescale", "New size: %d; reason: %s", o.replicas, o.reason)
	return change, nil
}

// unscalable reports that the scale of the target cannot be read.
func (r *reconciler) unscalable(ctx context.Context, key loop.Key, a *autoscalingv2.HorizontalPodAutoscaler, reason, message string, cause error) error {
	r.Events.Event(a, corev1.EventTypeWarning, reason, cause.Error())
	o := outcome{status: *a.Status.DeepCopy()}
	o.status.ObservedGeneration = new(a.Generation)
	o.set(time.Now(), autoscalingv2.AbleToScale, corev1.ConditionFalse, reason, fmt.Sprintf(message, cause))
	if err := r.updateStatus(ctx, key, a, o.status); err != nil {
		return err
	}
	return fmt.Errorf("get the scale of %s %s: %w", a.Spec.ScaleTargetRef.Kind, a.Spec.ScaleTargetRef.Name, cause)
}

// updateStatus writes the status if it differs from the current one.
func (r *reconciler) updateStatus(ctx context.Context, key loop.Key, a *autoscalingv2.HorizontalPodAutoscaler, want autoscalingv2.HorizontalPodAutoscalerStatus) error {
	if equality.Semantic.DeepEqual(want, a.Status) {
		return nil
	}
	next := a.DeepCopy()
	next.Status = want
	_, err := r.writer.UpdateStatus(ctx, key, next)
	return err
}
