package staticpods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"podium/pkg/backoff"
	kubelet "podium/pkg/kubelet/pods"
	"podium/pkg/kubelet/podspec"
)

// Pods runs the pods of the node; *pods.Manager implements it.
type Pods interface {
	Update(old, pod *corev1.Pod)
	StaticPods() []kubelet.StaticPod
	Mirrored(mirror *corev1.Pod, uid types.UID)
}

// API reads and writes pods in the API.
type API interface {
	kubelet.API
	CreatePod(ctx context.Context, pod *corev1.Pod) (*corev1.Pod, error)
}

// Config holds the dependencies of Mirrors.
type Config struct {
	API    API
	Node   func() *corev1.Node // returns nil while the node is not registered
	Synced func() bool         // Update has been called for all pods of the API
	Known  func() bool         // all manifests have been read
	Log    *slog.Logger
}

// Mirrors stands between the pods of the API and the Pods of the node: it keeps a mirror for
// each static pod, and passes on all pods that are none. It is safe for concurrent use.
type Mirrors struct {
	Pods Pods // to be set before Update and Run are called

	cfg  Config
	wake chan struct{}

	mu    sync.Mutex
	known map[types.NamespacedName]*corev1.Pod // the mirrors that the API has
}

// How often Mirrors look whether they can begin, look at everything without a reason, and
// retry.
const (
	startPeriod  = time.Second
	resyncPeriod = time.Minute
	firstRetry   = time.Second
	lastRetry    = 30 * time.Second
)

// NewMirrors returns Mirrors that do nothing until Run.
func NewMirrors(cfg Config) *Mirrors {
	return &Mirrors{cfg: cfg, wake: make(chan struct{}, 1), known: map[types.NamespacedName]*corev1.Pod{}}
}

// Wake makes Run compare static pods and mirrors. It does not block.
func (m *Mirrors) Wake() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Update handles a change of a pod of the API, as an informer reports it.
func (m *Mirrors) Update(old, pod *corev1.Pod) {
	m.observe(old, pod)
	old, pod = ordinary(old), ordinary(pod)
	if old != nil || pod != nil {
		m.Pods.Update(old, pod)
	}
}

// ordinary returns the pod if it is not a mirror, else nil. No pod of the API is static,
// whatever its annotations say.
func ordinary(pod *corev1.Pod) *corev1.Pod {
	switch {
	case pod == nil || isMirror(pod):
		return nil
	case podspec.Static(pod):
		pod = pod.DeepCopy()
		delete(pod.Annotations, podspec.SourceAnnotation)
	}
	return pod
}

func isMirror(pod *corev1.Pod) bool {
	_, is := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return is
}

// observe records a change of a mirror.
func (m *Mirrors) observe(old, pod *corev1.Pod) {
	if old != nil && (pod == nil || pod.UID != old.UID || !isMirror(pod)) {
		m.forget(old)
	}
	if pod != nil && isMirror(pod) {
		m.learn(pod)
	}
}

// learn records a version of a mirror, unless a newer one is known.
func (m *Mirrors) learn(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.known[nameOf(pod)]; has != nil {
		order, err := resourceversion.CompareResourceVersion(pod.ResourceVersion, has.ResourceVersion)
		if err == nil && order <= 0 {
			return
		}
	}
	m.known[nameOf(pod)] = pod
	m.Wake()
}

// forget records that the API does not have the pod any more.
func (m *Mirrors) forget(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if has := m.known[nameOf(pod)]; has != nil && has.UID == pod.UID {
		delete(m.known, nameOf(pod))
		m.Wake()
	}
}

// mirror returns the mirror with the name; nil if there is none.
func (m *Mirrors) mirror(key types.NamespacedName) *corev1.Pod {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.known[key]
}

// Run keeps the mirrors until ctx ends.
func (m *Mirrors) Run(ctx context.Context) error {
	retry := backoff.Backoff{Initial: firstRetry, Max: lastRetry}
	for ctx.Err() == nil {
		wait := resyncPeriod
		if node := m.cfg.Node(); node == nil || !m.cfg.Synced() {
			wait = startPeriod
		} else if err := m.compare(ctx, node); err != nil && ctx.Err() == nil {
			wait = retry.Next()
			m.cfg.Log.Warn("keep mirror pods failed", "error", err, "retry", wait)
		} else {
			retry.Reset()
		}
		_ = backoff.SleepOrWake(ctx, wait, m.wake) // an ended ctx ends the loop
	}
	return nil
}

// compare makes the mirrors of the API those of the static pods.
func (m *Mirrors) compare(ctx context.Context, node *corev1.Node) error {
	static := map[types.NamespacedName]*kubelet.StaticPod{}
	for _, p := range m.Pods.StaticPods() {
		static[nameOf(p.Pod)] = &p
	}
	all := map[types.NamespacedName]*corev1.Pod{}
	for key := range static {
		all[key] = nil
	}
	known := m.cfg.Known()
	m.mu.Lock()
	for key, mirror := range m.known {
		if static[key] != nil || known {
			all[key] = mirror
		}
	}
	m.mu.Unlock()
	var errs []error
	for key, mirror := range all {
		errs = append(errs, m.keep(ctx, static[key], mirror, node))
	}
	return errors.Join(errs...)
}

// keep removes a mirror that is not that of the static pod, and creates one that is missing.
// Either of the two may be nil.
func (m *Mirrors) keep(ctx context.Context, static *kubelet.StaticPod, mirror *corev1.Pod, node *corev1.Node) error {
	if mirror != nil && !fits(static, mirror) {
		if err := m.cfg.API.DeletePod(ctx, mirror.Namespace, mirror.Name, mirror.UID); err != nil {
			return fmt.Errorf("delete mirror pod %s: %w", nameOf(mirror), err)
		}
		m.cfg.Log.Info("mirror pod deleted", "pod", nameOf(mirror), "uid", mirror.UID)
		m.forget(mirror)
		mirror = nil
	}
	if static == nil || static.Ending {
		return nil
	}
	if mirror == nil {
		made, err := m.cfg.API.CreatePod(ctx, newMirror(static.Pod, node))
		if err != nil {
			return fmt.Errorf("create mirror pod %s: %w", nameOf(static.Pod), err)
		}
		m.cfg.Log.Info("mirror pod created", "pod", nameOf(made), "uid", made.UID)
		m.learn(made)
		mirror = made
	}
	m.Pods.Mirrored(mirror, static.UID)
	return nil
}

// fits reports whether the mirror may stay: it is that of the static pod, which may be nil,
// or of an earlier one with its name that is being terminated.
func fits(static *kubelet.StaticPod, mirror *corev1.Pod) bool {
	switch {
	case static == nil:
		return false
	case static.Ending:
		return true
	}
	return mirror.DeletionTimestamp == nil && mirror.Annotations[corev1.MirrorPodAnnotationKey] == static.Annotations[podspec.HashAnnotation]
}

// newMirror returns the mirror of a static pod, to be created.
func newMirror(static *corev1.Pod, node *corev1.Node) *corev1.Pod {
	controller := true
	out := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: static.Name, Namespace: static.Namespace, Labels: static.Labels, Annotations: map[string]string{},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: &controller}},
		},
		Spec: *static.Spec.DeepCopy(),
	}
	for key, value := range static.Annotations {
		out.Annotations[key] = value
	}
	out.Annotations[corev1.MirrorPodAnnotationKey] = static.Annotations[podspec.HashAnnotation]
	return out
}
