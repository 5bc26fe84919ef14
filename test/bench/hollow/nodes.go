package main

import (
	"context"
	"fmt"
	"log"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

const (
	hollow      = "bench.example.com/hollow" // label and taint of the nodes
	leaseEvery  = 10 * time.Second           // as the kubelet
	statusEvery = 5 * time.Minute
	leases      = "kube-node-lease"
)

// nodes are the running hollow nodes.
type nodes struct {
	client kubernetes.Interface
	stop   func() // ends them, and waits for it
	failed atomic.Int64
	last   atomic.Value // text of the last error
	ips    atomic.Int64
}

// register creates the nodes, starts them and waits until the scheduler may use them.
func (b *bench) register(ctx context.Context) (*nodes, error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	n := &nodes{client: b.client, stop: func() { cancel(); running.Wait() }}
	began := time.Now()
	if err := parallel(ctx, b.nodes, func(i int) error {
		node := makeNode(i)
		if _, err := b.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return err
		}
		lease, err := b.client.CoordinationV1().Leases(leases).Create(ctx, makeLease(node.Name), metav1.CreateOptions{})
		if err != nil {
			return err
		}
		running.Go(func() { n.heartbeat(ctx, node.Name, lease) })
		running.Go(func() { n.follow(ctx, node.Name) })
		return nil
	}); err != nil {
		n.stop()
		return nil, fmt.Errorf("create nodes: %w", err)
	}
	for {
		ready, err := b.usable(ctx)
		if err != nil {
			n.stop()
			return nil, fmt.Errorf("wait for nodes: %w", err)
		}
		log.Printf("%d of %d nodes are ready after %.0f s", ready, b.nodes, time.Since(began).Seconds())
		if ready == b.nodes {
			return n, nil
		}
		if err := pause(ctx, time.Second); err != nil {
			n.stop()
			return nil, err
		}
	}
}

// usable counts the nodes without taints of the node controller.
func (b *bench) usable(ctx context.Context) (ready int, err error) {
	list, err := b.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: hollow})
	if err != nil {
		return 0, err
	}
	for i := range list.Items {
		if len(list.Items[i].Spec.Taints) == 1 {
			ready++
		}
	}
	return ready, nil
}

func nodeName(i int) string { return fmt.Sprintf("hollow-%05d", i) }

func makeNode(i int) *corev1.Node {
	now := metav1.Now()
	have := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("128Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("500Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName(i), Labels: map[string]string{
			hollow: "", corev1.LabelHostname: nodeName(i), corev1.LabelTopologyZone: fmt.Sprint("zone-", i%3), corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
		}},
		Spec:   corev1.NodeSpec{Taints: []corev1.Taint{{Key: hollow, Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{Capacity: have, Allocatable: have, NodeInfo: corev1.NodeSystemInfo{KubeletVersion: "v1.36.0", OperatingSystem: "linux", Architecture: "amd64"}},
	}
	for kind, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeMemoryPressure: corev1.ConditionFalse, corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodePIDPressure: corev1.ConditionFalse,
	} {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: kind, Status: status, LastHeartbeatTime: now, LastTransitionTime: now, Reason: "Hollow"})
	}
	return node
}

func makeLease(name string) *coordinationv1.Lease {
	seconds, now := int32(40), metav1.NowMicro()
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: leases},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &seconds, RenewTime: &now},
	}
}

// note counts an error that is not the end of the benchmark.
func (n *nodes) note(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		n.failed.Add(1)
		n.last.Store(err.Error())
	}
}

// heartbeat renews the lease of a node and, less often, its status.
func (n *nodes) heartbeat(ctx context.Context, name string, lease *coordinationv1.Lease) {
	status := time.Now().Add(rand.N(statusEvery))
	for pause(ctx, rand.N(leaseEvery/25)+leaseEvery*49/50) == nil {
		now := metav1.NowMicro()
		lease.Spec.RenewTime = &now
		next, err := n.client.CoordinationV1().Leases(leases).Update(ctx, lease, metav1.UpdateOptions{})
		if n.note(ctx, err); err == nil {
			lease = next
		}
		if time.Now().Before(status) {
			continue
		}
		status = time.Now().Add(statusEvery)
		patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":%q}]}}`, time.Now().UTC().Format(time.RFC3339))
		_, err = n.client.CoreV1().Nodes().PatchStatus(ctx, name, []byte(patch))
		n.note(ctx, err)
	}
}

// follow watches the pods of a node and reports them as running.
func (n *nodes) follow(ctx context.Context, name string) {
	var watches sync.WaitGroup
	defer watches.Wait()
	shown := map[types.NamespacedName]bool{}
	selector := fields.OneTermEqualSelector("spec.nodeName", name).String()
	n.keepWatching(ctx, n.client.CoreV1().Pods("").Watch, selector, func(e watch.Event) {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok || e.Type == watch.Deleted {
			return
		}
		for _, key := range configMapsOf(pod) {
			if !shown[key] {
				shown[key] = true
				watches.Go(func() { n.watchConfigMap(ctx, key) })
			}
		}
		n.note(ctx, n.start(ctx, pod))
	})
}

// configMapsOf returns what the projected volumes of a pod show: each pod has one with the
// cluster's root certificate.
func configMapsOf(pod *corev1.Pod) (out []types.NamespacedName) {
	for _, v := range pod.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			if source.ConfigMap != nil {
				out = append(out, types.NamespacedName{Namespace: pod.Namespace, Name: source.ConfigMap.Name})
			}
		}
	}
	return out
}

// watchConfigMap watches a ConfigMap, as a kubelet does once for all its pods.
func (n *nodes) watchConfigMap(ctx context.Context, key types.NamespacedName) {
	selector := fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String()
	n.keepWatching(ctx, n.client.CoreV1().ConfigMaps(key.Namespace).Watch, selector, func(watch.Event) {})
}

// keepWatching calls see for each event until ctx ends.
func (n *nodes) keepWatching(ctx context.Context, open func(context.Context, metav1.ListOptions) (watch.Interface, error), selector string, see func(watch.Event)) {
	for ctx.Err() == nil {
		w, err := open(ctx, metav1.ListOptions{FieldSelector: selector})
		if err != nil {
			n.note(ctx, err)
			_ = pause(ctx, time.Second)
			continue
		}
		for e := range w.ResultChan() {
			see(e)
		}
	}
}

// start reports a pod as running, unless it is.
func (n *nodes) start(ctx context.Context, pod *corev1.Pod) error {
	if pod.Status.Phase == corev1.PodRunning || pod.DeletionTimestamp != nil {
		return nil
	}
	_, err := n.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, n.status(pod), metav1.PatchOptions{}, "status")
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// status is what a kubelet writes when a pod's containers are up.
func (n *nodes) status(pod *corev1.Pod) []byte {
	now, ip := time.Now().UTC().Format(time.RFC3339), n.ips.Add(1)
	conditions := ""
	for _, kind := range []string{"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady"} {
		conditions += fmt.Sprintf(`{"type":%q,"status":"True","lastTransitionTime":%q},`, kind, now)
	}
	address := fmt.Sprintf("10.%d.%d.%d", 128+ip>>16&127, ip>>8&255, ip&255)
	return fmt.Appendf(nil, `{"metadata":{"uid":%q},"status":{"phase":"Running","startTime":%q,"hostIP":"192.0.2.1","podIP":%q,"podIPs":[{"ip":%q}],"conditions":[%s],
"containerStatuses":[{"name":"web","image":"web","imageID":"web@sha256:0","containerID":"hollow://%s","ready":true,"started":true,"restartCount":0,"state":{"running":{"startedAt":%q}}}]}}`,
		pod.UID, now, address, address, conditions[:len(conditions)-1], pod.UID, now)
}

// parallel calls do for 0 to n-1 from a few goroutines and returns the first error.
func parallel(ctx context.Context, n int, do func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}
