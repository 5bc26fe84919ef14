package main

import (
	"context"
	"fmt"
	"log"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

const namespace = "hollow"

// deploy creates the Deployment and waits until all its pods are reported as running.
func (b *bench) deploy(ctx context.Context) (map[string]any, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if _, err := b.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	seen, stop, err := b.watch(ctx)
	if err != nil {
		return nil, err
	}
	defer stop()
	defer cancel() // before stop, which waits
	// The service account of the namespace is needed to create pods.
	for {
		if _, err := b.client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			break
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, err
		}
	}
	p := &progress{all: b.pods, seen: map[types.UID]int{}, began: time.Now()}
	if _, err := b.client.AppsV1().Deployments(namespace).Create(ctx, b.deployment(), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for len(p.at[running]) < b.pods {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s: %w", p, ctx.Err())
		case <-tick.C:
			log.Print(p)
		case pod := <-seen:
			p.see(pod)
		}
	}
	log.Print(p)
	return p.line(), nil
}

// watch passes the pods of the namespace to a channel whenever they change, until ctx ends.
// stop waits for that.
func (b *bench) watch(ctx context.Context) (seen <-chan *corev1.Pod, stop func(), err error) {
	pods := make(chan *corev1.Pod, 1000)
	see := func(obj any) {
		select {
		case pods <- obj.(*corev1.Pod):
		case <-ctx.Done():
		}
	}
	factory := informers.NewSharedInformerFactoryWithOptions(b.client, 0, informers.WithNamespace(namespace))
	if _, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: see, UpdateFunc: func(_, pod any) { see(pod) }}); err != nil {
		return nil, nil, err
	}
	factory.StartWithContext(ctx)
	return pods, factory.Shutdown, nil
}

func (b *bench) deployment() *appsv1.Deployment {
	replicas, labels := int32(b.pods), map[string]string{"app": "web"}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: namespace},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					NodeSelector: map[string]string{hollow: ""},
					Tolerations:  []corev1.Toleration{{Key: hollow, Operator: corev1.TolerationOpExists}},
					Containers: []corev1.Container{{Name: "web", Image: "web", Resources: corev1.ResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"), corev1.ResourceMemory: resource.MustParse("128Mi")},
					}}},
				},
			},
		},
	}
}

// The steps of a pod.
const (
	created = iota
	bound
	running
	steps
)

// progress notes when pods reach each step.
type progress struct {
	all   int
	began time.Time
	seen  map[types.UID]int // the next step of each pod
	at    [steps][]time.Duration
}

func (p *progress) see(pod *corev1.Pod) {
	reached := created
	switch {
	case pod.Status.Phase == corev1.PodRunning:
		reached = running
	case pod.Spec.NodeName != "":
		reached = bound
	}
	for step := p.seen[pod.UID]; step <= reached; step++ {
		p.at[step] = append(p.at[step], time.Since(p.began))
		p.seen[pod.UID] = step + 1
	}
}

func (p *progress) String() string {
	return fmt.Sprintf("of %d pods, %d are created, %d bound, %d running after %.1f s",
		p.all, len(p.at[created]), len(p.at[bound]), len(p.at[running]), time.Since(p.began).Seconds())
}

// line returns how long each step of all pods took, and the rates in pods/s.
func (p *progress) line() map[string]any {
	out := map[string]any{"pods": p.all}
	for step, name := range []string{"created", "bound", "running"} {
		last := slices.Max(p.at[step]).Seconds()
		out[name+"_s"], out[name+"_per_s"] = round(last), round(float64(p.all)/last)
	}
	return out
}
