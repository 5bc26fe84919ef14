package node_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/cloud"
	"podium/pkg/cloud/node"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/manager"
)

// machines is a provider's instances in memory.
type machines struct {
	mu    sync.Mutex
	known map[string]cloud.Metadata
	off   map[string]bool
	err   error // returned by all calls
	calls int
	hang  bool // calls block until their context ends
}

func (m *machines) Metadata(ctx context.Context, n *corev1.Node) (cloud.Metadata, error) {
	if err := m.enter(ctx); err != nil {
		return cloud.Metadata{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	md, ok := m.known[n.Name]
	if !ok {
		return md, fmt.Errorf("%s: %w", n.Name, cloud.ErrNotFound)
	}
	return md, nil
}

func (m *machines) Shutdown(ctx context.Context, n *corev1.Node) (bool, error) {
	if _, err := m.Metadata(ctx, n); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off[n.Name], nil
}

func (m *machines) enter(ctx context.Context) error {
	m.mu.Lock()
	m.calls++
	err, hang := m.err, m.hang
	m.mu.Unlock()
	if hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return err
}

func (m *machines) set(change func(m *machines)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change(m)
}

// count returns the number of calls of the provider.
func (m *machines) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// world is an API, a provider, and both controllers.
type world struct {
	*testing.T
	api      *clienttest.Server
	nodes    client.Resource[*corev1.Node]
	machines *machines
	stop     func()
}

func inWorld(t *testing.T, story func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{T: t, api: clienttest.New(), machines: &machines{known: map[string]cloud.Metadata{}, off: map[string]bool{}}}
		w.nodes = client.For[*corev1.Node](w.api.Client(t))
		story(w)
		if w.stop != nil {
			w.stop()
		}
	})
}

// start starts both controllers; stop ends them and waits for them.
func (w *world) start() {
	ctx, cancel := context.WithCancel(w.Context())
	c, log := w.api.Client(w.T), slog.New(slog.DiscardHandler)
	opts := node.Options{
		Provider: &cloud.Provider{Name: "fake", Instances: w.machines}, Refresh: 5 * time.Minute, Monitor: 5 * time.Second,
	}
	var g errgroup.Group
	g.Go(func() error {
		return manager.Run(ctx, &manager.Config{Client: c, Log: log}, func() (manager.Term, error) {
			return manager.Term{Informers: informers.New(c, log), Controllers: []controller.Spec{node.Spec(opts), node.LifecycleSpec(opts)}}, nil
		})
	})
	w.stop = func() {
		cancel()
		if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
			w.Error(err)
		}
		w.stop = nil
	}
}

func (w *world) machine(name string, address string) {
	w.machines.set(func(m *machines) {
		m.known[name] = cloud.Metadata{
			ProviderID: "fake://" + name, Type: "small", Zone: "z1",
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}, {Type: corev1.NodeHostName, Address: name}},
		}
	})
}

var (
	fresh = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	users = corev1.Taint{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}
)

func (w *world) register(name string, taints ...corev1.Taint) *corev1.Node {
	w.Helper()
	n, err := w.nodes.Create(w.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: taints}})
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func (w *world) setReady(name string, status corev1.ConditionStatus) {
	w.Helper()
	n, err := w.nodes.Get(w.Context(), name)
	if err != nil {
		w.Fatal(err)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
	if _, err := w.nodes.UpdateStatus(w.Context(), n); err != nil {
		w.Fatal(err)
	}
}

// shown describes a node.
func (w *world) shown(name string) string {
	w.Helper()
	n, err := w.nodes.Get(w.Context(), name)
	if apierrors.IsNotFound(err) {
		return "gone"
	}
	if err != nil {
		w.Fatal(err)
	}
	out := []string{n.Spec.ProviderID, n.Labels[corev1.LabelInstanceTypeStable], n.Labels[corev1.LabelTopologyZone]}
	for _, a := range n.Status.Addresses {
		out = append(out, a.Address)
	}
	for _, t := range n.Spec.Taints {
		out = append(out, t.Key[strings.LastIndex(t.Key, "/")+1:])
	}
	return strings.Join(strings.Fields(strings.Join(out, " ")), " ")
}

func (w *world) want(name, want string) {
	w.Helper()
	synctest.Wait()
	if got := w.shown(name); got != want {
		w.Errorf("%s is %q, want %q", name, got, want)
	}
}

const met = "fake://a small z1 10.0.0.1 a"

func TestANodeIsMetAndKeepsUp(t *testing.T) {
	inWorld(t, func(w *world) {
		w.machine("a", "10.0.0.1")
		w.register("a", fresh, users)
		w.register("foreign") // of no provider
		w.start()
		w.want("a", met+" gpu")
		w.want("foreign", "")
		w.machine("a", "10.0.0.2")
		time.Sleep(4 * time.Minute)
		w.want("a", met+" gpu")
		time.Sleep(2 * time.Minute)
		w.want("a", "fake://a small z1 10.0.0.2 a gpu")
	})
}

func TestAMachineThatCannotBeAskedAboutIsAskedAgainLater(t *testing.T) {
	inWorld(t, func(w *world) {
		w.machines.err = errors.New("the provider has a bad day")
		w.machine("a", "10.0.0.1")
		w.register("a", fresh)
		w.start()
		time.Sleep(10 * time.Minute)
		w.want("a", "uninitialized")
		if n := w.machines.count(); n > 60 {
			t.Errorf("the provider was asked %d times in ten minutes", n)
		}
		w.machines.set(func(m *machines) { m.err = nil })
		time.Sleep(time.Minute)
		w.want("a", met)
	})
}

// A node without an instance whose kubelet is alive stays uninitialized; a node whose
// instance is gone is deleted, even if it was never initialized.
func TestANodeWithoutAMachineGoesWhenItIsSilent(t *testing.T) {
	inWorld(t, func(w *world) {
		w.machine("a", "10.0.0.1")
		w.machine("b", "10.0.0.2")
		for _, name := range []string{"a", "b", "stranger"} {
			w.register(name, fresh)
			w.setReady(name, corev1.ConditionTrue)
		}
		w.start()
		w.want("stranger", "uninitialized")
		w.machines.set(func(m *machines) { delete(m.known, "a") })
		time.Sleep(time.Minute)
		w.want("a", met) // ready, whatever the provider reports
		w.setReady("a", corev1.ConditionUnknown)
		w.setReady("b", corev1.ConditionUnknown)
		w.setReady("stranger", corev1.ConditionFalse)
		time.Sleep(time.Minute)
		w.want("a", "gone")
		w.want("stranger", "gone")
		w.want("b", "fake://b small z1 10.0.0.2 b") // not ready for another reason
		w.machines.set(func(m *machines) { delete(m.known, "b") })
		time.Sleep(6 * time.Second)
		w.want("b", "gone")
	})
}

// An error of the provider does not mean that the instance is gone.
func TestNoNodeGoesWhileTheProviderFails(t *testing.T) {
	for name, change := range map[string]func(*machines){
		"Error": func(m *machines) { m.err = errors.New("unavailable") },
		"Hang":  func(m *machines) { m.hang = true },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(w *world) {
				w.machine("a", "10.0.0.1")
				w.register("a", fresh)
				w.start()
				synctest.Wait()
				w.machines.set(func(m *machines) { change(m); delete(m.known, "a") })
				w.setReady("a", corev1.ConditionUnknown)
				time.Sleep(time.Hour)
				w.want("a", met)
			})
		})
	}
}

func TestAMachineThatIsOffTaintsItsNodeUntilItIsReady(t *testing.T) {
	inWorld(t, func(w *world) {
		w.machine("a", "10.0.0.1")
		w.register("a", fresh, users)
		w.setReady("a", corev1.ConditionTrue)
		w.start()
		synctest.Wait() // the controller's first write is done: the test's own must not conflict with it
		w.machines.set(func(m *machines) { m.off["a"] = true })
		w.setReady("a", corev1.ConditionUnknown)
		w.want("a", met+" gpu shutdown")
		w.machines.set(func(m *machines) { m.off["a"] = false })
		time.Sleep(time.Minute)
		w.want("a", met+" gpu shutdown") // on again, and still not ready
		w.setReady("a", corev1.ConditionTrue)
		w.want("a", met+" gpu")
	})
}

// A controller that is killed after each of its writes and restarted reaches the same state;
// the node accepts pods only after all other writes.
func TestRestartsAtAnyPoint(t *testing.T) {
	for die := 1; die <= 2; die++ {
		t.Run(fmt.Sprint("write ", die), func(t *testing.T) {
			inWorld(t, func(w *world) {
				writes := 0
				dead := make(chan struct{})
				var mu sync.Mutex
				w.api.After = func(r *http.Request) error {
					mu.Lock()
					defer mu.Unlock()
					if r.Method != http.MethodPatch {
						return nil
					}
					if writes++; writes == die {
						close(dead)
						return errors.New("the answer is lost")
					}
					return nil
				}
				w.machine("a", "10.0.0.1")
				w.register("a", fresh)
				w.start()
				<-dead
				w.stop()
				if got := w.shown("a"); got != met && !strings.HasSuffix(got, " uninitialized") {
					t.Errorf("half met, it takes pods: %q", got)
				}
				w.start()
				w.want("a", met)
			})
		})
	}
}

// A concurrent write is not undone.
func TestAWriteInBetweenIsKept(t *testing.T) {
	inWorld(t, func(w *world) {
		w.machine("a", "10.0.0.1")
		w.register("a", fresh)
		once := sync.OnceFunc(func() {
			n, err := w.nodes.Get(w.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			n.Spec.Taints = append(n.Spec.Taints, users)
			if _, err := w.nodes.Update(w.Context(), n); err != nil {
				t.Error(err)
			}
		})
		w.api.Before = func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPatch {
				once()
			}
			return nil, nil
		}
		w.start()
		time.Sleep(time.Second)
		w.want("a", met+" gpu")
	})
}
