package node

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podium/pkg/backoff"
	"podium/pkg/client"
	"podium/pkg/conditions"
	"podium/pkg/kubelet/cri"
	"podium/pkg/scheme"
	"podium/pkg/volumebinding"
)

// Recorder records events about the node.
type Recorder interface {
	Event(obj scheme.Object, eventType, reason, message string)
}

// Config describes the node and holds the dependencies of an Agent.
type Config struct {
	Client  *client.Client
	Runtime cri.Runtime
	Images  cri.Images
	Events  Recorder
	Log     *slog.Logger

	Name      string
	Labels    map[string]string // --node-labels, in addition to those of every node
	LocalPath string            // directory of local-path volumes; "": the node has none
	Taints    []corev1.Taint    // added when the node is registered
	Register  bool
	Cloud     *Cloud // nil: no cloud controller manager initializes the node
	Addresses []corev1.NodeAddress
	Port      int32 // the kubelet's server
	Info      corev1.NodeSystemInfo
	Capacity  func() corev1.ResourceList
	Reserved  corev1.ResourceList                                // kube-reserved and system-reserved together
	Devices   func() (capacity, allocatable corev1.ResourceList) // resources of device plugins; nil: none
	Pressure  func() Pressure                                    // nil: none
	Stopping  func() bool                                        // the node is shutting down; nil: never
	InUse     func() []corev1.UniqueVolumeName                   // attached volumes that the node uses; nil: none
	MaxImages int                                                // in the node's status; 0: 50

	LeaseDuration time.Duration // 0: 40 s; the agent renews after a quarter
	ReportPeriod  time.Duration // of statuses in which nothing changed; 0: 5 min
	CheckPeriod   time.Duration // between checks of the node; 0: 10 s
}

// Pressure reports which resources the machine is short of.
type Pressure struct {
	Memory, Disk, PIDs bool
	ReadOnly           string // the kubelet's directory, if nothing can be written there
}

// How often the agent checks a node that is not ready, and the back-off of writes.
const (
	checkStarting = 250 * time.Millisecond
	startingUntil = time.Minute
	checkNotReady = 2 * time.Second // after that
	firstRetry    = 200 * time.Millisecond
	lastRetry     = 7 * time.Second
)

// Agent registers the node and keeps its Lease and status up to date.
type Agent struct {
	cfg    Config
	nodes  client.Resource[*corev1.Node]
	leases leases

	mu       sync.Mutex
	node     *corev1.Node // the newest version; nil before registration
	gone     int          // how often the node was deleted
	reported time.Time    // when the status was last written
	begun    int          // rounds of the agent: how many began, and the last that succeeded
	settled  int
	changed  chan struct{} // closed when node or settled changes; nil: nothing waits for it
	wake     chan struct{}
	runtime  health
	readOnly string // Pressure.ReadOnly of the last round
}

// New returns an Agent. It applies the defaults of cfg.
func New(cfg Config) *Agent {
	if cfg.LeaseDuration == 0 {
		cfg.LeaseDuration = 40 * time.Second
	}
	if cfg.ReportPeriod == 0 {
		cfg.ReportPeriod = 5 * time.Minute
	}
	if cfg.CheckPeriod == 0 {
		cfg.CheckPeriod = 10 * time.Second
	}
	if cfg.MaxImages == 0 {
		cfg.MaxImages = 50
	}
	a := &Agent{cfg: cfg, nodes: client.For[*corev1.Node](cfg.Client), wake: make(chan struct{}, 1)}
	a.leases = newLeases(cfg)
	return a
}

// Node returns the Node as the API has it, nil before it is registered. The caller
// must not modify it. It is safe for concurrent use.
func (a *Agent) Node() *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

// Draft returns the Node as it will be registered, for pods that do not wait for that. It is
// safe for concurrent use.
func (a *Agent) Draft() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.Name, Labels: a.labels(), Annotations: a.annotations()}}
	n.Spec.Taints = a.cfg.Cloud.taints(a.cfg.Taints)
	a.fillResources(&n.Status)
	return n
}

// Observe updates the Node from an informer; nil means that it was deleted, and
// the agent registers it again. It is safe for concurrent use.
func (a *Agent) Observe(n *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == nil { // it was deleted: register it again
		a.node = nil
		a.gone++
		a.poke()
		return
	}
	if older(n, a.node) {
		return // than the response to a write
	}
	a.node = n
	a.signalLocked()
}

// older reports whether a is an earlier version of the same Node as b, which may be nil.
func older(a, b *corev1.Node) bool {
	if b == nil || a.UID != b.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order < 0
}

func (a *Agent) signalLocked() {
	if a.changed != nil {
		close(a.changed)
		a.changed = nil
	}
}

// Await blocks until the Node, as the API has it, satisfies a condition, or ctx ends. The
// Node shows a status that the agent determined after the call began. It is safe for
// concurrent use; ok must not block or modify the Node.
func (a *Agent) Await(ctx context.Context, ok func(*corev1.Node) bool) error {
	a.mu.Lock()
	since := a.begun
	a.poke()
	a.mu.Unlock()
	for {
		a.mu.Lock()
		n, fresh := a.node, a.settled > since
		if a.changed == nil {
			a.changed = make(chan struct{})
		}
		changed := a.changed
		a.mu.Unlock()
		if fresh && n != nil && ok(n) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take stores the Node from a response unless it was deleted since the request.
// gone is what present returned before the request.
func (a *Agent) take(n *corev1.Node, gone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone == gone && !older(n, a.node) {
		a.node = n
	}
}

func (a *Agent) present() (n *corev1.Node, gone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, a.gone
}

// Check makes the agent check the node at once. It does not block.
func (a *Agent) Check() { a.poke() }

func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run registers the node and maintains its status and Lease until ctx ends. It
// always returns nil.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.report(ctx); return nil })
	g.Go(func() error { a.leases.run(ctx, a.Node); return nil })
	return g.Wait()
}

// report checks the node periodically and writes changes until ctx ends.
func (a *Agent) report(ctx context.Context) {
	retry, began := backoff.Backoff{Initial: firstRetry, Max: lastRetry}, time.Now()
	for ctx.Err() == nil {
		ready, err := a.once(ctx)
		wait := a.cfg.CheckPeriod
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case err != nil:
			wait = retry.Next()
			a.cfg.Log.Warn("write node status failed", "error", err, "retry", wait)
		case !ready:
			retry.Reset()
			wait = checkStarting
			if time.Since(began) > startingUntil {
				wait = checkNotReady
			}
		default:
			retry.Reset()
		}
		_ = backoff.SleepOrWake(ctx, wait, a.wake) // an ended ctx ends the loop
	}
}

// once registers the node if necessary. It writes the status if it changed or if
// ReportPeriod has passed since the last write.
func (a *Agent) once(ctx context.Context) (ready bool, err error) {
	a.mu.Lock()
	a.begun++
	a.mu.Unlock()
	a.runtime = look(ctx, a.cfg.Runtime)
	base, gone := a.present()
	if base == nil {
		if base, err = a.register(ctx); err != nil {
			return false, err
		}
		a.take(base, gone)
	}
	now := time.Now()
	want := base.DeepCopy()
	a.fill(ctx, want, now)
	ready = isReady(want)
	changed := !sameButHeartbeat(base, want)
	a.mu.Lock()
	due := now.Sub(a.reported) >= a.cfg.ReportPeriod
	a.mu.Unlock()
	if !changed && !due {
		a.settle()
		return ready, nil
	}
	got, err := a.patch(ctx, base, want)
	if err != nil {
		return ready, err
	}
	a.take(got, gone)
	a.mu.Lock()
	a.reported = now
	a.mu.Unlock()
	a.settle()
	if isReady(base) != ready {
		a.recordReady(got, ready)
	}
	return ready, nil
}

// settle ends a round: the API has the status that it determined.
func (a *Agent) settle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = a.begun
	a.signalLocked()
}

func (a *Agent) recordReady(n *corev1.Node, ready bool) {
	reason := "NodeReady"
	if !ready {
		reason = "NodeNotReady"
	}
	a.cfg.Log.Info("node", "ready", ready)
	a.cfg.Events.Event(n, corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.cfg.Name, reason))
}

// register creates the Node, or adopts an existing one.
func (a *Agent) register(ctx context.Context) (*corev1.Node, error) {
	n, err := a.nodes.Get(ctx, a.cfg.Name)
	if apierrors.IsNotFound(err) && a.cfg.Register {
		fresh := a.Draft()
		a.fill(ctx, fresh, time.Now())
		n, err = a.nodes.Create(ctx, fresh)
		if apierrors.IsAlreadyExists(err) {
			n, err = a.nodes.Get(ctx, a.cfg.Name)
		}
		if err == nil {
			a.cfg.Log.Info("node registered", "node", a.cfg.Name)
			a.cfg.Events.Event(n, corev1.EventTypeNormal, "Starting", "Starting kubelet.")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("register node %s: %w", a.cfg.Name, err)
	}
	return a.relabel(ctx, n)
}

// labels returns the labels that the kubelet sets on its node.
func (a *Agent) labels() map[string]string {
	l := map[string]string{
		corev1.LabelHostname:      a.cfg.Name,
		corev1.LabelOSStable:      a.cfg.Info.OperatingSystem,
		corev1.LabelArchStable:    a.cfg.Info.Architecture,
		"beta.kubernetes.io/os":   a.cfg.Info.OperatingSystem,
		"beta.kubernetes.io/arch": a.cfg.Info.Architecture,
	}
	maps.Copy(l, a.cfg.Labels)
	return l
}

// annotations returns the annotations that the kubelet sets on its node.
func (a *Agent) annotations() map[string]string {
	out := map[string]string{}
	maps.Copy(out, a.cfg.Cloud.annotations())
	if a.cfg.LocalPath != "" {
		out[volumebinding.LocalPath] = a.cfg.LocalPath
	}
	return out
}

// relabel sets the kubelet's labels and annotations on an existing node.
func (a *Agent) relabel(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	labels, annotations := missing(n.Labels, a.labels()), missing(n.Annotations, a.annotations())
	if len(labels)+len(annotations) == 0 {
		return n, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return nil, err
	}
	return a.nodes.Patch(ctx, a.cfg.Name, types.MergePatchType, patch)
}

// missing returns the entries of want that are absent or different in have.
func missing(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool { return have[k] == v })
	return out
}

// patch writes the difference of the two statuses. If the node does not exist, it
// drops the stored Node, so that the agent registers it again.
func (a *Agent) patch(ctx context.Context, base, want *corev1.Node) (*corev1.Node, error) {
	patch, err := statusPatch(base, want)
	if err != nil {
		return nil, err
	}
	got, err := a.nodes.Patch(ctx, a.cfg.Name, types.StrategicMergePatchType, patch, "status")
	if apierrors.IsNotFound(err) {
		a.mu.Lock()
		a.node = nil
		a.mu.Unlock()
	}
	return got, err
}

// statusPatch returns the patch from one status to the other. It replaces all
// addresses, since the merge key is the type and two of one type would be merged.
func statusPatch(base, want *corev1.Node) ([]byte, error) {
	from, err := json.Marshal(&corev1.Node{Status: base.Status})
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(&corev1.Node{Status: want.Status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, corev1.Node{})
	if err != nil || apiequality.Semantic.DeepEqual(base.Status.Addresses, want.Status.Addresses) {
		return patch, err
	}
	var tree map[string]any
	if err := json.Unmarshal(patch, &tree); err != nil {
		return nil, err
	}
	addresses := []any{}
	for _, addr := range want.Status.Addresses {
		addresses = append(addresses, addr)
	}
	status, _ := tree["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		tree["status"] = status
	}
	delete(status, "$setElementOrder/addresses")
	status["addresses"] = append(addresses, map[string]any{"$patch": "replace"})
	return json.Marshal(tree)
}

func isReady(n *corev1.Node) bool { return conditions.IsTrue(n.Status.Conditions, corev1.NodeReady) }

// sameButHeartbeat compares two statuses without the heartbeat times.
func sameButHeartbeat(a, b *corev1.Node) bool {
	x, y := a.Status.DeepCopy(), b.Status.DeepCopy()
	for _, s := range []*corev1.NodeStatus{x, y} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return apiequality.Semantic.DeepEqual(x, y)
}
