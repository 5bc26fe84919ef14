package controllers_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	seeds = flag.Int("seeds", 2, "how many seeds the tests with crashes try")
	seed  = flag.Uint64("seed", 0, "the one seed that the tests with crashes try")
)

// eachSeed runs a test with the faults of each seed. Seed 0 has no faults.
func eachSeed(t *testing.T, test func(t *testing.T, seed uint64)) {
	from, to := uint64(1), uint64(*seeds)
	if *seed != 0 {
		from, to = *seed, *seed
	}
	for s := from; s <= to; s++ {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) { test(t, s) })
	}
}

// TestCrashes kills the controllers between any two writes, drops requests and responses,
// and lets watches lag and break. The cluster must reach the same state as without faults,
// and the controllers must then stop writing.
func TestCrashes(t *testing.T) {
	want := story(t, 0)
	eachSeed(t, func(t *testing.T, s uint64) {
		if got := story(t, s); got != want {
			t.Errorf("go test -run TestCrashes -seed %d ends in another state\n got %s\nwant %s", s, got, want)
		}
	})
}

// story runs a scenario with the faults of a seed (0: none) and returns the final state.
func story(t *testing.T, seed uint64) (state string) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		stop := c.disturb(seed)
		pauses := rand.New(rand.NewPCG(seed, 2))
		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		}})
		c.startDaemons()
		create(c, newCIDR("spare", "192.168.9.0/24"))
		create(c, deploymentOf("web", 8, "v1"))
		create(c, deploymentOf("old", 3, "v1"))
		create(c, deploymentOf("rec", 3, "v1", recreate))
		create(c, statefulSetOf("db", 3, "broken"))
		create(c, statefulSetOf("many", 5, "v1", parallel))
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", setImage("v2"))
		edit(c, "rec", setImage("v2"))
		edit(c, "db", setImageOf("v1"))
		edit(c, "many", setImageOf("v2"))
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 12 })
		remove[*appsv1.Deployment](c, "old", metav1.DeletePropagationForeground)
		c.disruptDaemons()
		remove[*networkingv1.ServiceCIDR](c, "spare", metav1.DeletePropagationBackground)
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", setImage("v3"))
		edit(c, "db", setImageOf("v2"))
		edit(c, "many", func(set *appsv1.StatefulSet) { *set.Spec.Replicas = 2 })
		time.Sleep(5 * time.Minute)

		stop()
		c.quiet()
		state = c.state()
	})
	return state
}

// disturb injects the faults of a seed (0: none) until stop is called.
func (c *cluster) disturb(seed uint64) (stop func()) {
	f := &faults{random: rand.New(rand.NewPCG(seed, 1)), crash: make(chan struct{}, 1)}
	if seed != 0 {
		c.faults.Store(f)
	}
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-f.crash:
				c.restartControllers()
			case <-over:
				return
			}
		}
	})
	return func() {
		f.stop()
		c.t.Logf("%d writes; %d lost, %d answers lost, %d crashes", f.count[none], f.count[lost], f.count[unheard], f.count[crashHere])
		close(over)
		wg.Wait()
		c.restartControllers() // the last crash may not have been handled
	}
}

// faults injects one of three faults into a fraction of the writes.
type faults struct {
	mu     sync.Mutex
	random *rand.Rand
	over   bool
	count  [crashHere + 1]int
	crash  chan struct{}
}

func (f *faults) next() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return none
	}
	kind := none
	switch f.random.IntN(60) {
	case 0:
		kind = lost
	case 1, 2:
		kind = unheard
	case 3:
		kind = crashHere
		select {
		case f.crash <- struct{}{}:
		default:
		}
	}
	f.count[kind]++
	return kind
}

// lag delays one event in ten and breaks the watch at one event in two hundred.
func (f *faults) lag() (late time.Duration, broken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.over {
		return 0, false
	}
	if f.random.IntN(10) == 0 {
		late = time.Duration(f.random.IntN(3000)) * time.Millisecond
	}
	return late, f.random.IntN(200) == 0
}

func (f *faults) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.over = true
}

// state describes the objects, without what differs between runs.
func (c *cluster) state() string {
	var out []string
	for _, d := range c.deployments() {
		s := d.Status
		out = append(out, fmt.Sprintf("deployment %s: %d of %d available, %d updated, %d unavailable", d.Name, s.AvailableReplicas, s.Replicas, s.UpdatedReplicas, s.UnavailableReplicas))
	}
	for _, set := range all[*appsv1.StatefulSet](c, "") {
		s := set.Status
		out = append(out, fmt.Sprintf("statefulset %s: %s; %d of %d available, %d updated, complete %v", set.Name, c.podsOf(set.Name), s.AvailableReplicas, s.Replicas, s.UpdatedReplicas, s.CurrentRevision == s.UpdateRevision))
	}
	for _, rs := range c.sets() {
		if *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 {
			continue // history: a template that was never observed has none
		}
		out = append(out, fmt.Sprintf("replicaset %s %s: %d wanted, %d there", rs.Labels["app"], rs.Spec.Template.Spec.Containers[0].Image, *rs.Spec.Replicas, rs.Status.Replicas))
	}
	out = append(out, "pods "+images(c.pods("")))
	out = append(out, c.daemonState()...)
	for _, es := range all[*discoveryv1.EndpointSlice](c, "") {
		out = append(out, fmt.Sprintf("slice of %s", es.Labels[discoveryv1.LabelServiceName]))
	}
	out = append(out, fmt.Sprintf("%d endpoints of web", c.endpoints("web")))
	for _, n := range all[*corev1.Node](c, "") {
		out = append(out, fmt.Sprintf("node %s: %v %s", n.Name, n.Spec.PodCIDR != "", taints(n)))
	}
	for _, ns := range all[*corev1.Namespace](c, "") {
		out = append(out, fmt.Sprintf("namespace %s: account %v, CA %v", ns.Name, exists[*corev1.ServiceAccount](c, ns.Name, "default"), exists[*corev1.ConfigMap](c, ns.Name, "kube-root-ca.crt")))
	}
	out = append(out, "range kubernetes: "+c.cidr("kubernetes"), "range spare: "+c.cidr("spare"))
	slices.Sort(out)
	return strings.Join(out, "\n")
}
