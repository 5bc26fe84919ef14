package controllers_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"podium/pkg/client"
	"podium/pkg/client/informer"
	podstate "podium/pkg/controller/pods"
)

// addNode adds a node whose simulated kubelet starts each pod in 100 ms, assigns an address,
// and terminates it in a second. Images named "broken" never become ready.
func (c *cluster) addNode(name string) {
	create(c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	c.background(func(ctx context.Context) error { return c.kubelet(ctx, name) })
}

func (c *cluster) setDown(node string, down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down[node] = down
}

func (c *cluster) isDown(node string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.down[node]
}

func (c *cluster) kubelet(ctx context.Context, node string) error {
	pods := client.For[*corev1.Pod](c.Client)
	i := informer.New(pods, informer.Options{FieldSelector: "spec.nodeName=" + node})
	work := make(chan *corev1.Pod, 10_000)
	i.OnChange(func(_, p *corev1.Pod) {
		if p != nil {
			work <- p
		}
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { i.Run(ctx) })
	beat := time.NewTimer(0)
	defer beat.Stop()
	var waiting []*corev1.Pod // while the node is down
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-beat.C:
			beat.Reset(10 * time.Second)
			if c.isDown(node) {
				continue
			}
			c.heartbeat(ctx, node)
			waiting = append(waiting, i.List()...)
			for _, p := range waiting {
				wg.Go(func() { c.syncPod(ctx, node, p) })
			}
			waiting = nil
		case p := <-work:
			if c.isDown(node) {
				continue
			}
			wg.Go(func() { c.syncPod(ctx, node, p) })
		}
	}
}

// heartbeat renews the node's lease and reports the node as ready.
func (c *cluster) heartbeat(ctx context.Context, node string) {
	leases := client.For[*coordinationv1.Lease](c.Client).In("kube-node-lease")
	now := metav1.NowMicro()
	l, err := leases.Get(ctx, node)
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: node},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, LeaseDurationSeconds: new(int32(40)), RenewTime: &now},
		})
	} else if err == nil {
		l.Spec.RenewTime = &now
		_, err = leases.Update(ctx, l)
	}
	if err != nil && ctx.Err() == nil {
		c.t.Errorf("lease of %s: %v", node, err)
	}
	nodes := client.For[*corev1.Node](c.Client)
	for ctx.Err() == nil {
		n, err := nodes.Get(ctx, node)
		if err != nil {
			return
		}
		for _, cond := range n.Status.Conditions {
			if cond.Type == corev1.NodeReady && cond.Status == corev1.ConditionTrue {
				return
			}
		}
		n.Status.Conditions = nil
		for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
			status := corev1.ConditionFalse
			if t == corev1.NodeReady {
				status = corev1.ConditionTrue
			}
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{
				Type: t, Status: status, LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			})
		}
		if _, err := nodes.UpdateStatus(ctx, n); !apierrors.IsConflict(err) {
			return
		}
	}
}

var lastIP atomic.Int32

// syncPod performs a kubelet's next step for a pod.
func (c *cluster) syncPod(ctx context.Context, node string, p *corev1.Pod) {
	pods := client.For[*corev1.Pod](c.Client).In(p.Namespace)
	sleep := func(d time.Duration) {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	if p.DeletionTimestamp != nil {
		sleep(time.Second)
		if !c.isDown(node) {
			pods.Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(p.UID))})
		}
		return
	}
	if p.Status.Phase != corev1.PodPending && p.Status.Phase != corev1.PodRunning || readyAsItShouldBe(p) {
		return
	}
	sleep(100 * time.Millisecond)
	for ctx.Err() == nil && !c.isDown(node) {
		live, err := pods.Get(ctx, p.Name)
		if err != nil || live.UID != p.UID || live.DeletionTimestamp != nil || podstate.Terminal(live) || readyAsItShouldBe(live) {
			return
		}
		live.Status.Phase = corev1.PodRunning
		if live.Status.StartTime == nil {
			live.Status.StartTime = new(metav1.Now())
		}
		if live.Status.PodIP == "" {
			n := lastIP.Add(1)
			live.Status.PodIP = fmt.Sprintf("10.244.%d.%d", n/250, n%250+1)
			live.Status.PodIPs = []corev1.PodIP{{IP: live.Status.PodIP}}
		}
		live.Status.Conditions = slices.DeleteFunc(live.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady })
		status := corev1.ConditionTrue
		if broken(live) {
			status = corev1.ConditionFalse
		}
		live.Status.Conditions = append(live.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: status, LastTransitionTime: metav1.Now()})
		_, err = pods.UpdateStatus(ctx, live)
		if err == nil || !apierrors.IsConflict(err) {
			if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				c.t.Errorf("status of %s: %v", p.Name, err)
			}
			return
		}
	}
}

func broken(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "broken" }

func readyAsItShouldBe(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return (c.Status == corev1.ConditionTrue) != broken(p)
		}
	}
	return false
}

// takes reports whether a pod may be bound to a node, by affinity and taints.
func takes(n *corev1.Node, p *corev1.Pod) bool {
	affine, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n)
	_, untolerated := scheduling.FindMatchingUntoleratedTaint(klog.Logger{}, n.Spec.Taints, p.Spec.Tolerations, nil, false)
	return affine && err == nil && !untolerated
}

// schedule binds pods round-robin to the nodes that take them. Pods that none takes wait for a
// change of a node.
func (c *cluster) schedule(ctx context.Context) error {
	pods := client.For[*corev1.Pod](c.Client)
	i := informer.New(pods, informer.Options{FieldSelector: "spec.nodeName="})
	queue := make(chan *corev1.Pod, 10_000)
	i.OnChange(func(old, p *corev1.Pod) {
		if old == nil {
			queue <- p
		}
	})
	n := informer.New(client.For[*corev1.Node](c.Client), informer.Options{})
	changed := make(chan struct{}, 1)
	n.OnChange(func(_, _ *corev1.Node) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { i.Run(ctx) })
	wg.Go(func() { n.Run(ctx) })
	next := 0
	var waiting []*corev1.Pod
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			for _, p := range waiting {
				queue <- p
			}
			waiting = nil
		case p := <-queue:
			nodes, err := client.For[*corev1.Node](c.Client).List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			fit := slices.DeleteFunc(nodes.Items, func(n *corev1.Node) bool { return !takes(n, p) })
			if len(fit) == 0 {
				waiting = append(waiting, p)
				continue
			}
			next++
			n := fit[next%len(fit)]
			err = pods.In(p.Namespace).Post(ctx, p.Name, "binding", &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: n.Name},
			}, nil)
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && ctx.Err() == nil {
				c.t.Errorf("bind %s: %v", p.Name, err)
			}
		}
	}
}
