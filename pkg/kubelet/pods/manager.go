package pods

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/backoff"
	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/env"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/podspec"
	"podium/pkg/kubelet/probes"
	"podium/pkg/kubelet/resources"
	"podium/pkg/scheme"
)

// Recorder records events about pods.
type Recorder interface {
	EventOn(obj scheme.Object, fieldPath, eventType, reason, message string)
}

// Config holds the dependencies of a Manager.
type Config struct {
	RootDir     string // the kubelet's files
	LogsDir     string // containers' logs
	LogLinksDir string // links to them; "": none

	API         API
	Endpoints   Endpoints // nil: pods are stopped without waiting for proxies
	Runtime     cri.Runtime
	RuntimeName string // the scheme of container ids: containerd
	Images      cri.Images
	Volumes     Volumes
	References  References // nil: volumes show changes of objects within the RefreshPeriod
	Claims      Claims     // nil: pods have no resource claims
	Cgroups     resources.Cgroups
	PIDs        PIDs                  // nil: no PID pressure
	Pressure    NodePressure          // of memory and disk; nil: none
	FreeDisk    func(context.Context) // removes unused images; nil: none
	UserNS      UserNS
	Placement   Placement // of CPUs; nil: containers run on all
	Devices     Devices   // of device plugins; nil: none
	Environment func(context.Context, env.Request) ([]*runtimeapi.KeyValue, error)
	Secret      func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	Handler     func(ctx context.Context, runtimeClass string) (string, error) // how the runtime calls a RuntimeClass

	ImageRecords   *images.Records // of image pulls
	ImageProviders images.Provider // of credentials; nil: only pull secrets

	ShuttingDown func() bool // the node takes no pods; nil: never
	Statics      *Statics    // nil: the node has no static pods

	Services func() (all []*corev1.Service, synced bool)
	Node     func() *corev1.Node // returns nil while the node is not registered
	HostIPs  func() []string
	Probes   probes.Config
	Events   Recorder
	Metrics  *Metrics // nil: no metrics
	Log      *slog.Logger

	Capacity corev1.ResourceList // of the node
	Host     Host                // the security features that it can enforce
	Options
}

// Options are settings of the operator.
type Options struct {
	ClusterDNS     []string
	ClusterDomain  string
	ResolvConf     string // the host's resolv.conf; "": none
	HostsFile      string // the host's /etc/hosts
	SeccompDefault bool   // RuntimeDefault for containers without a profile
	AllowNetRaw    bool   // containers have the capability NET_RAW without adding it
	ParallelPulls  int    // 0: 1
	VerifyImages   images.Verification
	// MaxEvictionGrace is the most that containers get to stop when a soft threshold
	// evicts their pod.
	MaxEvictionGrace time.Duration
	DrainTimeout     time.Duration // how long to wait for the proxies to stop sending traffic to a pod; 0: do not wait
	// MaxRestartDelay limits the crash-loop back-off, which doubles from 10 seconds;
	// 0: 5 minutes.
	MaxRestartDelay time.Duration
	RefreshPeriod   time.Duration // between refreshes of the contents of volumes; 0: 1 minute
	LogMaxSize      int64         // of a container's log in bytes before it is rotated; 0: never
	LogMaxFiles     int
}

// Manager runs the pods of a node. Its methods are safe for concurrent use.
type Manager struct {
	cfg      Config
	writer   *writer
	puller   *images.Puller
	observer *observer

	mu       sync.Mutex
	ctx      context.Context // of Run; nil before Run
	ended    bool            // Run waits for the workers
	workers  map[types.UID]*worker
	wanted   map[types.UID]*corev1.Pod // pods from before Run began and all were known
	synced   bool                      // Update has been called for all pods of the API
	counted  map[types.UID]*corev1.Pod // pods that count against the node's resources
	deferred map[types.UID]deferral    // resizes that wait for resources
	decided  map[types.UID]bool        // pods that have been admitted since Run began
	prior    map[types.UID]bool        // pods that the runtime had when Run began
	statics
	running sync.WaitGroup
}

// statusWrites is the number of concurrent status writes.
const statusWrites = 10

// New returns a Manager. It does nothing until Run.
func New(cfg Config) *Manager {
	if cfg.RefreshPeriod == 0 {
		cfg.RefreshPeriod = time.Minute
	}
	if cfg.MaxRestartDelay == 0 {
		cfg.MaxRestartDelay = maxRestartDelay
	}
	m := &Manager{cfg: cfg, workers: map[types.UID]*worker{}, wanted: map[types.UID]*corev1.Pod{}, counted: map[types.UID]*corev1.Pod{}, deferred: map[types.UID]deferral{}, decided: map[types.UID]bool{}, statics: newStatics()}
	m.writer = newWriter(cfg.API, cfg.Log, statusWrites, m.wake)
	m.puller = images.New(images.Config{
		Images: cfg.Images, Secret: cfg.Secret, Wake: m.wake, Events: cfg.Events, Log: cfg.Log, Parallel: cfg.ParallelPulls,
		Records: cfg.ImageRecords, Verify: cfg.VerifyImages, Provider: cfg.ImageProviders,
	})
	m.observer = newObserver(cfg.Runtime, cfg.Log, m.changed, cfg.Metrics)
	return m
}

// Run runs the pods until ctx ends and waits for all workers. It leaves the
// containers running. Call it once.
func (m *Manager) Run(ctx context.Context) error {
	prior := m.observer.first(ctx)
	if prior == nil {
		return nil // ctx ended before the runtime answered
	}
	m.puller.Recover(ctx)
	m.mu.Lock()
	m.ctx, m.prior, m.former = ctx, prior, staticsOf(m.observer.boxes)
	m.startLocked()
	m.mu.Unlock()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { m.writer.run(ctx); return nil })
	g.Go(func() error { m.observer.run(ctx); return nil })
	g.Go(func() error { m.removeOrphans(ctx); return nil })
	g.Go(func() error { m.rotateLogs(ctx); return nil })
	g.Go(func() error { m.keepLogLinks(ctx); return nil })
	g.Go(func() error { m.relievePIDs(ctx); return nil })
	g.Go(func() error { m.relieveNode(ctx); return nil })
	err := g.Wait()
	m.mu.Lock()
	m.ended = true // an Update that began before ctx ended starts no more workers
	m.mu.Unlock()
	m.running.Wait()
	m.puller.Wait()
	return err
}

func byAge(pods map[types.UID]*corev1.Pod) []*corev1.Pod {
	var out []*corev1.Pod
	for _, p := range pods {
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b *corev1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return out
}

// Update handles a change from the informer: old is nil for a new pod, pod is nil
// for a deleted one.
func (m *Manager) Update(old, pod *corev1.Pod) {
	if old != nil && (pod == nil || pod.UID != old.UID) {
		m.remove(old)
	}
	if pod == nil {
		return
	}
	m.writer.observe(pod)
	m.mu.Lock()
	defer m.mu.Unlock()
	static := podspec.Static(pod)
	switch w := m.workers[pod.UID]; {
	case m.ctx == nil || !m.synced && !static:
		m.wanted[pod.UID] = pod
	case static:
		m.startStaticLocked(pod)
	case w != nil:
		w.want(pod, false)
	default:
		m.workLocked(pod)
	}
}

func (m *Manager) remove(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.wanted, pod.UID)
	m.dequeueLocked(pod)
	if w := m.workers[pod.UID]; w != nil {
		w.want(pod, true)
	}
}

// Synced reports that Update has been called for every pod of the API. From then on the
// Manager runs them, and may terminate pods that only the runtime has.
func (m *Manager) Synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
	m.startLocked()
}

// startLocked starts a worker for each pod, once Run has begun and all pods are known: a
// pod must not get resources that one of the others has already. Static pods do not wait
// for the API. m.mu is held.
func (m *Manager) startLocked() {
	if m.ctx == nil {
		return
	}
	for _, pod := range byAge(m.wanted) {
		switch {
		case podspec.Static(pod):
			m.startStaticLocked(pod)
		case m.synced:
			m.workLocked(pod)
		default:
			continue
		}
		delete(m.wanted, pod.UID)
	}
}

// workLocked starts a worker for the pod. It returns nil if Run is ending. m.mu is
// held.
func (m *Manager) workLocked(pod *corev1.Pod) *worker {
	if m.ended || m.ctx.Err() != nil {
		return nil
	}
	if m.cfg.References != nil && !finalPhase(pod.Status.Phase) {
		m.cfg.References.Follow(m.ctx, pod)
	}
	w := newWorker(m, m.ctx, pod)
	w.read = !m.prior[pod.UID] // the runtime has nothing of other pods
	m.workers[pod.UID] = w
	m.staticChanged(pod)
	m.running.Go(func() {
		w.run()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ctx.Err() == nil {
			delete(m.workers, pod.UID)
			m.uncountLocked(pod.UID)
			delete(m.decided, pod.UID)
			delete(m.prior, pod.UID)
			m.puller.Forget(pod.UID)
			m.writer.forget(pod.UID)
			m.cfg.Probes.Metrics.Forget(pod)
			m.startQueuedLocked()
			m.staticChanged(pod)
		}
	})
	return w
}

func (m *Manager) wake(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.wake()
	}
}

// Refresh makes the volumes of pods show the present state of objects. It does not wait
// for that.
func (m *Manager) Refresh(pods []types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, uid := range pods {
		if w := m.workers[uid]; w != nil {
			w.outdate()
		}
	}
}

// changed handles a change of a pod in the runtime. The observer calls it.
func (m *Manager) changed(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.changed()
	} else if m.prior != nil {
		m.prior[uid] = true
	}
}

// admit checks whether the node can run the pod and, if so, counts it. here means
// that the pod already has containers. decided is false while there is no Node, and
// while only pods that the API no longer has are in the way: they are being stopped,
// and the scheduler cannot count them any more.
func (m *Manager) admit(pod *corev1.Pod, here bool) (r *refusal, decided bool) {
	node := m.nodeFor(pod)
	if node == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !here && pod.Status.StartTime == nil {
		var others, present []*corev1.Pod
		for uid, p := range m.counted {
			if uid == pod.UID {
				continue
			}
			others = append(others, p)
			if w := m.workers[uid]; w != nil && w.inAPI() {
				present = append(present, p)
			}
		}
		if r := admit(pod, others, node); r != nil {
			return r, len(present) == len(others) || admit(pod, present, node) != nil
		}
	}
	m.counted[pod.UID], m.decided[pod.UID] = pod, true
	m.weighLocked()
	m.retryDeferredLocked(node)
	return nil, true
}

// released stops counting a pod against the node's resources.
func (m *Manager) released(uid types.UID) {
	m.unplace(uid) // first: a pod that is admitted instead finds its CPUs free
	m.mu.Lock()
	defer m.mu.Unlock()
	m.uncountLocked(uid)
	m.weighLocked()
}

func (m *Manager) uncountLocked(uid types.UID) {
	delete(m.counted, uid)
	delete(m.deferred, uid)
	if node := m.cfg.Node(); node != nil {
		m.retryDeferredLocked(node)
	}
}

// weighLocked updates the CPU weight of the burstable class. m.mu is held.
func (m *Manager) weighLocked() {
	var all []*corev1.Pod
	for _, p := range m.counted {
		all = append(all, p)
	}
	if err := m.cfg.Cgroups.Weigh(m.ctx, all); err != nil {
		m.cfg.Log.Warn("set cgroup weight of burstable pods failed", "error", err)
	}
}

// Pods returns the pods of the node with their latest status.
func (m *Manager) Pods() []*corev1.Pod {
	m.mu.Lock()
	var list []*corev1.Pod
	for _, w := range m.workers {
		w.mu.Lock()
		if !w.removed {
			list = append(list, w.desired)
		}
		w.mu.Unlock()
	}
	m.mu.Unlock()
	for i, pod := range list {
		list[i] = m.writer.latest(pod)
	}
	return list
}

// removeOrphans removes what deleted pods have left on the node: sandboxes, volumes and
// cgroups of pods that were deleted while no kubelet was running.
func (m *Manager) removeOrphans(ctx context.Context) {
	for wait := time.Second; ; {
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
		m.mu.Lock()
		synced := m.synced
		m.mu.Unlock()
		if !m.endFormer() || !synced {
			continue // soon: pods may wait for what the deleted ones have
		}
		wait = time.Minute
		if err := m.endOrphans(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("remove files of deleted pods failed", "error", err)
		}
	}
}

// endOrphans terminates the pods that have something on this node but no worker.
func (m *Manager) endOrphans(ctx context.Context) error {
	list, err := m.cfg.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	for _, box := range list.Items {
		if uid := box.Labels[cri.LabelPodUID]; uid != "" {
			m.endOrphan(orphan(box))
		}
	}
	for _, pod := range m.leftDirs() {
		m.endOrphan(pod)
	}
	leftovers, err := m.cfg.Volumes.Orphans()
	if err != nil {
		return fmt.Errorf("volumes: %w", err)
	}
	groups, err := m.cfg.Cgroups.Abandoned()
	if err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	var holders []types.UID
	if m.cfg.Devices != nil {
		holders = m.cfg.Devices.Pods()
	}
	if m.cfg.Claims != nil {
		holders = append(holders, m.cfg.Claims.Pods()...)
	}
	for _, uid := range slices.Concat(leftovers, groups, holders) {
		m.endOrphan(unknownPod(uid))
	}
	m.unplaceAbsent()
	return nil
}

// endOrphan starts a worker that terminates a pod which neither the API nor a manifest has.
func (m *Manager) endOrphan(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.endOrphanLocked(pod)
}

// endOrphanLocked is endOrphan; m.mu is held.
func (m *Manager) endOrphanLocked(pod *corev1.Pod) {
	if m.workers[pod.UID] != nil {
		return
	}
	m.cfg.Log.Info("pod no longer exists", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID)
	m.prior[pod.UID] = true
	if w := m.workLocked(pod); w != nil {
		w.want(pod, true)
	}
}

// orphan returns the pod of a sandbox, as far as the labels and annotations
// describe it.
func orphan(box *runtimeapi.PodSandbox) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: box.Labels[cri.LabelPodName], Namespace: box.Labels[cri.LabelPodNamespace], UID: types.UID(box.Labels[cri.LabelPodUID]), Annotations: sourceOf(box),
	}}
	pod.Spec.TerminationGracePeriodSeconds = orphanGracePeriod(box.Annotations)
	return pod
}
