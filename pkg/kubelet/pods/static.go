package pods

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/podspec"
)

// Statics is the place of static pods outside of the Manager: their manifests and their
// mirrors. Its functions must not call the Manager.
type Statics struct {
	Known   func() bool         // all manifests have been read
	Changed func()              // a static pod has begun or ended
	Draft   func() *corev1.Node // the Node as it will be registered
}

// A StaticPod is a static pod that the node has.
type StaticPod struct {
	*corev1.Pod
	Ending bool // it, or what has its name or uid, is being terminated
}

// statics are the static pods that have no worker yet, or none any more. Manager.mu guards it.
type statics struct {
	// queued are pods that wait for the end of another one with their name, which may be
	// an earlier version.
	queued map[types.NamespacedName]*corev1.Pod
	// former are the pods that the runtime had when Run began, until their manifests are
	// found.
	former map[types.UID]*corev1.Pod
}

func newStatics() statics {
	return statics{queued: map[types.NamespacedName]*corev1.Pod{}, former: map[types.UID]*corev1.Pod{}}
}

// StaticPods returns the static pods of the node, also those that are being terminated. If
// one waits for the end of another with its name, that comes later in the list.
func (m *Manager) StaticPods() []StaticPod {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []StaticPod
	for _, pod := range m.wanted {
		if podspec.Static(pod) {
			out = append(out, StaticPod{Pod: pod})
		}
	}
	for _, pod := range m.queued {
		out = append(out, StaticPod{Pod: pod, Ending: true})
	}
	for _, w := range m.workers {
		if pod, removed := w.wants(); podspec.Static(pod) {
			out = append(out, StaticPod{Pod: pod, Ending: removed})
		}
	}
	return out
}

// Mirrored takes a version of the mirror of the static pod with the uid: it is what the API
// has of the static pod, and gets its status.
func (m *Manager) Mirrored(mirror *corev1.Pod, uid types.UID) { m.writer.mirrored(mirror, uid) }

// startStaticLocked starts a worker for a static pod, at once or when the pod that has its
// name has ended. m.mu is held.
func (m *Manager) startStaticLocked(pod *corev1.Pod) {
	for uid, f := range m.former {
		switch {
		case uid == pod.UID:
			delete(m.former, uid)
		case nameOf(f) == nameOf(pod):
			delete(m.former, uid)
			m.endOrphanLocked(f)
		}
	}
	m.queued[nameOf(pod)] = pod
	m.startQueuedLocked()
}

// startQueuedLocked starts the queued pods whose names are free. m.mu is held.
func (m *Manager) startQueuedLocked() {
	for key, pod := range m.queued {
		if m.workers[pod.UID] == nil && !m.staticLocked(key) {
			delete(m.queued, key)
			m.workLocked(pod)
		}
	}
}

// staticLocked reports whether a static pod with the name has a worker. m.mu is held.
func (m *Manager) staticLocked(key types.NamespacedName) bool {
	for _, w := range m.workers {
		if pod, _ := w.wants(); podspec.Static(pod) && nameOf(pod) == key {
			return true
		}
	}
	return false
}

// dequeueLocked drops a pod that has not started. m.mu is held.
func (m *Manager) dequeueLocked(pod *corev1.Pod) {
	if q := m.queued[nameOf(pod)]; q != nil && q.UID == pod.UID {
		delete(m.queued, nameOf(pod))
	}
}

// endFormer terminates the static pods that have no manifest any more, once all manifests
// are known. It does not need the API. It reports whether they are known.
func (m *Manager) endFormer() bool {
	if s := m.cfg.Statics; s != nil && !s.Known() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, pod := range m.former {
		m.endOrphanLocked(pod)
	}
	clear(m.former)
	return true
}

// staticsOf returns the static pods of sandboxes, by uid.
func staticsOf(boxes []*runtimeapi.PodSandbox) map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for _, box := range boxes {
		if pod := orphan(box); pod.UID != "" && podspec.Static(pod) {
			out[pod.UID] = pod
		}
	}
	return out
}

// staticChanged tells the keeper of the mirrors that a static pod has begun or ended.
func (m *Manager) staticChanged(pod *corev1.Pod) {
	if m.cfg.Statics != nil && podspec.Static(pod) {
		m.cfg.Statics.Changed()
	}
}

// nodeFor returns the Node on which to run the pod. A static pod does not wait for its
// registration.
func (m *Manager) nodeFor(pod *corev1.Pod) *corev1.Node {
	node := m.cfg.Node()
	if node == nil && m.cfg.Statics != nil && podspec.Static(pod) {
		return m.cfg.Statics.Draft()
	}
	return node
}

// wants returns the newest version of the pod, and whether it is to be terminated since
// it was removed. Any goroutine may call it.
func (i *inbox) wants() (pod *corev1.Pod, removed bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.desired, i.removed
}

// mirrored handles a version of the mirror of a static pod. If it is another mirror than
// before, the status is written to it at once.
func (w *writer) mirrored(mirror *corev1.Pod, uid types.UID) {
	pod := *mirror
	pod.UID = uid
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.entries[uid]; e != nil && e.mirror == mirror.UID {
		w.observeLocked(&pod)
		return
	}
	e := w.entryLocked(&pod)
	e.mirror = mirror.UID
	if e.want != nil {
		e.version++
		w.startLocked(uid, e)
	}
}

// unmirrored reports whether the entry is that of a static pod whose mirror is not known
// yet: its status is written, and completed by what the mirror has, when it is.
func (e *entry) unmirrored() bool { return e.mirror == "" && podspec.Static(e.base) }

// reopen makes the status of a static pod one that may still change: its mirror may show
// the end of the same pod before the node was restarted. It modifies the status.
func reopen(pod *corev1.Pod) {
	if podspec.Static(pod) && finalPhase(pod.Status.Phase) {
		pod.Status.Phase, pod.Status.Reason, pod.Status.Message = corev1.PodPending, "", ""
	}
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}

// sourceOf returns the annotation by which the pod of a sandbox is known as static.
func sourceOf(box *runtimeapi.PodSandbox) map[string]string {
	if !podspec.StaticSource(box.Annotations) {
		return nil
	}
	return map[string]string{podspec.SourceAnnotation: box.Annotations[podspec.SourceAnnotation]}
}
