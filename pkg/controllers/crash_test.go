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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var (
	seeds = flag.Int("seeds", 20, "how many seeds TestCrashes tries")
	seed  = flag.Uint64("seed", 0, "the one seed TestCrashes tries")
)

// TestCrashes kills the controllers between any two writes, loses requests and
// answers, lets watches lag and break, and wants the same state as if nothing
// had happened, and then no further writes.
func TestCrashes(t *testing.T) {
	from, to := uint64(1), uint64(*seeds)
	if *seed != 0 {
		from, to = *seed, *seed
	}
	want := story(t, 0)
	for s := from; s <= to; s++ {
		t.Run(fmt.Sprintf("seed=%d", s), func(t *testing.T) {
			if got := story(t, s); got != want {
				t.Errorf("go test -run TestCrashes -seed %d ends in another state\n got %s\nwant %s", s, got, want)
			}
		})
	}
}

// story does a bit of everything under the faults of a seed (0: none) and
// tells the state that it ends in.
func story(t *testing.T, seed uint64) (state string) {
	inCluster(t, 3, func(t *testing.T, c *cluster) {
		f := &faults{random: rand.New(rand.NewPCG(seed, 1)), crash: make(chan struct{}, 1)}
		if seed != 0 {
			c.faults.Store(f)
		}
		pauses := rand.New(rand.NewPCG(seed, 2))
		over := make(chan struct{})
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-f.crash:
					c.restartControllers()
				case <-over:
					return
				}
			}
		}()

		create(c, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("http")}},
		}})
		create(c, deploymentOf("web", 8, "v1"))
		create(c, deploymentOf("old", 3, "v1"))
		create(c, deploymentOf("rec", 3, "v1", recreate))
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", setImage("v2"))
		edit(c, "rec", setImage("v2"))
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", func(d *appsv1.Deployment) { *d.Spec.Replicas = 12 })
		remove[*appsv1.Deployment](c, "old", metav1.DeletePropagationForeground)
		time.Sleep(time.Duration(pauses.IntN(2000)) * time.Millisecond)
		edit(c, "web", setImage("v3"))
		time.Sleep(5 * time.Minute)

		f.stop()
		t.Logf("%d writes; %d lost, %d answers lost, %d crashes", f.count[none], f.count[lost], f.count[unheard], f.count[crashHere])
		close(over)
		<-ended
		c.restartControllers() // the last crash may have been noticed by nobody
		c.quiet()
		state = c.state()
	})
	return state
}

// faults are one of three in so many writes.
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

// lag makes one piece of news in ten late and breaks one watch in two hundred pieces.
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

// state tells what there is, without what differs from run to run.
func (c *cluster) state() string {
	var out []string
	for _, d := range c.deployments() {
		s := d.Status
		out = append(out, fmt.Sprintf("deployment %s: %d of %d available, %d updated, %d unavailable", d.Name, s.AvailableReplicas, s.Replicas, s.UpdatedReplicas, s.UnavailableReplicas))
	}
	for _, rs := range c.sets() {
		if *rs.Spec.Replicas == 0 && rs.Status.Replicas == 0 {
			continue // history: a template that came and went unseen has none
		}
		out = append(out, fmt.Sprintf("replicaset %s %s: %d wanted, %d there", rs.Labels["app"], rs.Spec.Template.Spec.Containers[0].Image, *rs.Spec.Replicas, rs.Status.Replicas))
	}
	out = append(out, "pods "+images(c.pods("")))
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
	slices.Sort(out)
	return strings.Join(out, "\n")
}
