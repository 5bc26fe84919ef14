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
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"podium/pkg/client"
	"podium/pkg/kubelet/cri"
	"podium/pkg/scheme"
)

// Recorder is told what happens to the node.
type Recorder interface {
	Event(obj scheme.Object, eventType, reason, message string)
}

// Config says what the node is. Everything about the machine comes in here.
type Config struct {
	Client  *client.Client
	Runtime cri.Runtime
	Images  cri.Images
	Events  Recorder
	Log     *slog.Logger

	Name      string
	Labels    map[string]string // --node-labels, beside those every node has
	Taints    []corev1.Taint    // when it is registered first
	Register  bool
	Cloud     *Cloud // nil: nobody but the kubelet says what the node is
	Addresses []corev1.NodeAddress
	Port      int32 // the kubelet's server
	Info      corev1.NodeSystemInfo
	Capacity  func() corev1.ResourceList
	Reserved  corev1.ResourceList // kube-reserved and system-reserved together
	Pressure  func() Pressure     // nil: none
	MaxImages int                 // in the node's status; 0: 50

	LeaseDuration time.Duration // 0: 40 s; renewed in a quarter of it
	ReportPeriod  time.Duration // of statuses in which nothing changed; 0: 5 min
	CheckPeriod   time.Duration // how often the node looks at itself; 0: 10 s
}

// Pressure says what the machine is short of.
type Pressure struct{ Memory, Disk, PIDs bool }

// How often the node looks at itself until it is ready, and how failed writes are tried again.
const (
	checkStarting = 250 * time.Millisecond
	startingUntil = time.Minute
	checkNotReady = 2 * time.Second // after that
	firstRetry    = 200 * time.Millisecond
	lastRetry     = 7 * time.Second
)

// Agent is the node's voice.
type Agent struct {
	cfg    Config
	nodes  client.Resource[*corev1.Node]
	leases leases

	mu       sync.Mutex
	node     *corev1.Node // the newest known; nil before registration
	gone     int          // how often it was seen to be deleted
	reported time.Time    // when the status was last written
	wake     chan struct{}
	runtime  health
}

// New makes an Agent.
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

// Node is the node as the API has it, nil before it is registered. Not to be modified.
func (a *Agent) Node() *corev1.Node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node
}

// Observe takes the node as an informer shows it.
func (a *Agent) Observe(n *corev1.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n == nil { // somebody deleted it: it is registered again
		a.node = nil
		a.gone++
		a.poke()
		return
	}
	a.node = n
}

// take remembers the node as an answer has it, unless it was deleted while the
// answer was on its way: gone is what present had said before the request.
func (a *Agent) take(n *corev1.Node, gone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gone == gone {
		a.node = n
	}
}

func (a *Agent) present() (n *corev1.Node, gone int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.node, a.gone
}

func (a *Agent) poke() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// Run registers the node, then reports and renews until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { a.report(ctx); return nil })
	g.Go(func() error { a.leases.run(ctx, a.Node); return nil })
	return g.Wait()
}

// report looks at the node again and again and writes what changed.
func (a *Agent) report(ctx context.Context) {
	delay, began := firstRetry, time.Now()
	for ctx.Err() == nil {
		ready, err := a.once(ctx)
		wait := a.cfg.CheckPeriod
		switch {
		case err != nil:
			if ctx.Err() == nil {
				a.cfg.Log.Warn("node status not written", "error", err, "retry", delay)
			}
			wait = delay
			delay = min(2*delay, lastRetry)
		case !ready:
			wait, delay = checkStarting, firstRetry
			if time.Since(began) > startingUntil {
				wait = checkNotReady
			}
		default:
			delay = firstRetry
		}
		sleep(ctx, wait, a.wake)
	}
}

// once registers the node if it is not, and writes its status if that changed
// or was last written long ago.
func (a *Agent) once(ctx context.Context) (ready bool, err error) {
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
	if isReady(base) != ready {
		a.tellReady(got, ready)
	}
	return ready, nil
}

func (a *Agent) tellReady(n *corev1.Node, ready bool) {
	reason := "NodeReady"
	if !ready {
		reason = "NodeNotReady"
	}
	a.cfg.Log.Info("node", "ready", ready)
	a.cfg.Events.Event(n, corev1.EventTypeNormal, reason, fmt.Sprintf("Node %s status is now: %s", a.cfg.Name, reason))
}

// register makes the node, or takes up the one that is there.
func (a *Agent) register(ctx context.Context) (*corev1.Node, error) {
	n, err := a.nodes.Get(ctx, a.cfg.Name)
	if apierrors.IsNotFound(err) && a.cfg.Register {
		fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: a.cfg.Name, Labels: a.labels(), Annotations: a.cfg.Cloud.annotations()}}
		fresh.Spec.Taints = a.cfg.Cloud.taints(a.cfg.Taints)
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

// labels are those the kubelet gives its node.
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

// relabel gives a node that was there before the labels and annotations that
// it lacks.
func (a *Agent) relabel(ctx context.Context, n *corev1.Node) (*corev1.Node, error) {
	labels, annotations := missing(n.Labels, a.labels()), missing(n.Annotations, a.cfg.Cloud.annotations())
	if len(labels)+len(annotations) == 0 {
		return n, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels, "annotations": annotations}})
	if err != nil {
		return nil, err
	}
	return a.nodes.Patch(ctx, a.cfg.Name, types.MergePatchType, patch)
}

// missing is what of want is not in have.
func missing(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.DeleteFunc(out, func(k, v string) bool { return have[k] == v })
	return out
}

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

// statusPatch is the difference of two statuses. Addresses are replaced as a
// whole: two of one type would be merged into one.
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

func isReady(n *corev1.Node) bool {
	for i := range n.Status.Conditions {
		if c := &n.Status.Conditions[i]; c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// sameButHeartbeat compares statuses without the times they were looked at.
func sameButHeartbeat(a, b *corev1.Node) bool {
	x, y := a.Status.DeepCopy(), b.Status.DeepCopy()
	for _, s := range []*corev1.NodeStatus{x, y} {
		for i := range s.Conditions {
			s.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return apiequality.Semantic.DeepEqual(x, y)
}

func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
	case <-ctx.Done():
	}
}
