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

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/env"
	"podium/pkg/kubelet/images"
	"podium/pkg/kubelet/probes"
	"podium/pkg/kubelet/resources"
	"podium/pkg/kubelet/volumes"
	"podium/pkg/scheme"
)

// Recorder is told what happens to pods.
type Recorder interface {
	EventOn(obj scheme.Object, fieldPath, eventType, reason, message string)
}

// Volumes makes what pods mount.
type Volumes interface {
	SetUp(ctx context.Context, pod *corev1.Pod) (map[string]volumes.Mount, error)
	Refresh(ctx context.Context, pod *corev1.Pod) error
	TearDown(ctx context.Context, uid types.UID) error
	Orphans() ([]types.UID, error)
	SubPath(ctx context.Context, mount volumes.Mount, subPath string) (hostPath string, err error)
	Usage(ctx context.Context, pod *corev1.Pod) (map[string]int64, error)
}

// Config is what a Manager works with. Everything outside Go's memory that it
// touches is in here.
type Config struct {
	RootDir string // the kubelet's files
	LogsDir string // containers' logs

	API         API
	Endpoints   Endpoints // nil: pods are stopped without waiting for proxies
	Runtime     cri.Runtime
	RuntimeName string // the scheme of container ids: containerd
	Images      cri.Images
	Volumes     Volumes
	Cgroups     resources.Cgroups
	PIDs        PIDs // nil: the node never has too few process ids
	UserNS      UserNS
	Environment func(context.Context, env.Request) ([]*runtimeapi.KeyValue, error)
	Secret      func(ctx context.Context, namespace, name string) (*corev1.Secret, error)

	ImageRecords *images.Records // of image pulls
	VerifyImages images.Verification

	Services func() (all []*corev1.Service, synced bool)
	Node     func() *corev1.Node // nil while it is not registered
	HostIPs  func() []string
	Probes   probes.Config
	Events   Recorder
	Metrics  *Metrics // nil: not counted
	Log      *slog.Logger

	ClusterDNS     []string
	ClusterDomain  string
	ResolvConf     string        // the host's; "": none
	HostsFile      string        // the host's /etc/hosts
	MemoryCapacity int64         // of the node, for OOM scores
	SeccompDefault bool          // RuntimeDefault where a pod says nothing
	AllowNetRaw    bool          // containers have the capability NET_RAW without adding it
	Host           Host          // what the machine can enforce
	ParallelPulls  int           // 0: 1
	DrainTimeout   time.Duration // how long proxies may take to let go of a pod
	RefreshPeriod  time.Duration // of volumes' contents; 0: 1 minute
	LogMaxSize     int64         // of a container's log before it is rotated; 0: never
	LogMaxFiles    int
}

// Manager runs the pods of a node.
type Manager struct {
	cfg      Config
	writer   *writer
	puller   *images.Puller
	observer *observer

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before
	workers map[types.UID]*worker
	wanted  map[types.UID]*corev1.Pod // came before Run began
	synced  bool                      // the API's list has been seen in whole
	counted map[types.UID]*corev1.Pod // pods that hold their share of the node
	prior   map[types.UID]bool        // the runtime had them when Run began
	running sync.WaitGroup
}

// statusWrites is how many statuses are on their way at one time.
const statusWrites = 10

// New makes a Manager.
func New(cfg Config) *Manager {
	if cfg.RefreshPeriod == 0 {
		cfg.RefreshPeriod = time.Minute
	}
	m := &Manager{cfg: cfg, workers: map[types.UID]*worker{}, wanted: map[types.UID]*corev1.Pod{}, counted: map[types.UID]*corev1.Pod{}}
	m.writer = newWriter(cfg.API, cfg.Log, statusWrites, m.wake)
	m.puller = images.New(images.Config{
		Images: cfg.Images, Secret: cfg.Secret, Wake: m.wake, Events: cfg.Events, Log: cfg.Log, Parallel: cfg.ParallelPulls,
		Records: cfg.ImageRecords, Verify: cfg.VerifyImages,
	})
	m.observer = newObserver(cfg.Runtime, cfg.Log, m.changed, cfg.Metrics)
	return m
}

// Run works until ctx ends. Containers go on after it.
func (m *Manager) Run(ctx context.Context) error {
	prior := m.observer.first(ctx)
	if prior == nil {
		return nil // ctx ended before the runtime answered
	}
	m.puller.Recover(ctx)
	m.mu.Lock()
	m.ctx, m.prior = ctx, prior
	for _, pod := range byAge(m.wanted) {
		m.workLocked(pod)
	}
	m.wanted = nil
	m.mu.Unlock()

	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { m.writer.run(ctx); return nil })
	g.Go(func() error { m.observer.run(ctx); return nil })
	g.Go(func() error { m.keepHouse(ctx); return nil })
	g.Go(func() error { m.rotateLogs(ctx); return nil })
	g.Go(func() error { m.relievePIDs(ctx); return nil })
	err := g.Wait()
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

// Update takes a change as the informer tells it: old is nil for a new pod, pod
// for one that is gone.
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
	switch w := m.workers[pod.UID]; {
	case m.ctx == nil:
		m.wanted[pod.UID] = pod
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
	if w := m.workers[pod.UID]; w != nil {
		w.want(pod, true)
	}
}

// Synced says that Update has told of every pod there is: what the runtime has
// beyond them may go.
func (m *Manager) Synced() {
	m.mu.Lock()
	m.synced = true
	m.mu.Unlock()
}

func (m *Manager) workLocked(pod *corev1.Pod) *worker {
	if m.ctx.Err() != nil {
		return nil
	}
	w := newWorker(m, m.ctx, pod)
	w.read = !m.prior[pod.UID] // a pod the runtime did not have is new to it
	m.workers[pod.UID] = w
	m.running.Go(func() {
		w.run()
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.ctx.Err() == nil {
			delete(m.workers, pod.UID)
			delete(m.counted, pod.UID)
			delete(m.prior, pod.UID)
			m.puller.Forget(pod.UID)
			m.writer.forget(pod.UID)
			m.cfg.Probes.Metrics.Forget(pod)
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

// changed is told by the observer that the runtime has something new of a pod.
func (m *Manager) changed(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[uid]; w != nil {
		w.changed()
	} else if m.prior != nil {
		m.prior[uid] = true
	}
}

// admit asks whether the node takes the pod, and counts it if so. known is
// false while there is no node to ask about.
func (m *Manager) admit(pod *corev1.Pod, here bool) (r *refusal, known bool) {
	node := m.cfg.Node()
	if node == nil {
		return nil, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !here && pod.Status.StartTime == nil {
		var others []*corev1.Pod
		for uid, p := range m.counted {
			if uid != pod.UID {
				others = append(others, p)
			}
		}
		if r := admit(pod, others, node); r != nil {
			return r, true
		}
	}
	m.counted[pod.UID] = pod
	m.weighLocked()
	return nil, true
}

// released gives a pod's share of the node back.
func (m *Manager) released(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.counted, uid)
	m.weighLocked()
}

func (m *Manager) weighLocked() {
	var all []*corev1.Pod
	for _, p := range m.counted {
		all = append(all, p)
	}
	if err := m.cfg.Cgroups.Weigh(m.ctx, all); err != nil {
		m.cfg.Log.Warn("weight of burstable pods not set", "error", err)
	}
}

// Pods lists the pods of the node as they are now.
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

// keepHouse ends what nobody wants: sandboxes, volumes and cgroups of pods that
// were deleted while no kubelet ran.
func (m *Manager) keepHouse(ctx context.Context) {
	for wait := time.Second; ; wait = time.Minute {
		if !sleep(ctx, wait, nil) {
			return
		}
		m.mu.Lock()
		synced := m.synced
		m.mu.Unlock()
		if !synced {
			continue
		}
		if err := m.endOrphans(ctx); err != nil && ctx.Err() == nil {
			m.cfg.Log.Warn("orphans not cleaned up", "error", err)
		}
	}
}

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
	for _, uid := range append(leftovers, groups...) {
		m.endOrphan(unknownPod(uid))
	}
	return nil
}

// endOrphan gives a pod that the API does not have a worker that ends it.
func (m *Manager) endOrphan(pod *corev1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.workers[pod.UID] != nil {
		return
	}
	m.cfg.Log.Info("pod is not in the API any more", "pod", pod.Namespace+"/"+pod.Name, "uid", pod.UID)
	m.prior[pod.UID] = true
	if w := m.workLocked(pod); w != nil {
		w.want(pod, true)
	}
}

// orphan is what a sandbox says of its pod.
func orphan(box *runtimeapi.PodSandbox) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: box.Labels[cri.LabelPodName], Namespace: box.Labels[cri.LabelPodNamespace], UID: types.UID(box.Labels[cri.LabelPodUID]),
	}}
	pod.Spec.TerminationGracePeriodSeconds = orphanGrace(box.Annotations)
	return pod
}
