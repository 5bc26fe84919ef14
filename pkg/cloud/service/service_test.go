package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
	"podium/pkg/client/clienttest"
	"podium/pkg/controller"
	"podium/pkg/controller/informers"
	"podium/pkg/controller/manager"
)

// provider is a provider that records its calls.
type provider struct {
	mu    sync.Mutex
	calls []string
	fail  error
	slow  time.Duration
}

func (p *provider) note(ctx context.Context, what string, s *corev1.Service, nodes []*corev1.Node) error {
	p.mu.Lock()
	slow := p.slow
	p.mu.Unlock()
	time.Sleep(slow)
	p.mu.Lock()
	defer p.mu.Unlock()
	text := what + " " + s.Name
	if nodes != nil {
		text += fmt.Sprint(" ", names(nodes))
	}
	if p.fail != nil {
		text += ": " + p.fail.Error()
	}
	p.calls = append(p.calls, text)
	return errors.Join(ctx.Err(), p.fail)
}

func (p *provider) Ensure(ctx context.Context, s *corev1.Service, nodes []*corev1.Node) (corev1.LoadBalancerStatus, error) {
	if err := p.note(ctx, "ensure", s, nodes); err != nil {
		return corev1.LoadBalancerStatus{}, err
	}
	return corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "10.0.0.240", IPMode: new(corev1.LoadBalancerIPModeVIP)}}}, nil
}

func (p *provider) Delete(ctx context.Context, s *corev1.Service) error {
	return p.note(ctx, "delete", s, nil)
}

// take returns the calls since the last take.
func (p *provider) take() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.Join(p.calls, ", ")
	p.calls = nil
	return text
}

func (p *provider) failing(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fail = err
}

// takes sets the duration of subsequent calls.
func (p *provider) takes(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slow = d
}

type stage struct {
	t        *testing.T
	api      *clienttest.Server
	services client.Resource[*corev1.Service]
	nodes    client.Resource[*corev1.Node]
	provider *provider
	stop     func()
}

func newStage(t *testing.T) *stage {
	s := &stage{t: t, api: clienttest.New(), provider: &provider{slow: 10 * time.Millisecond}} // two events at one instant would have one name
	c := s.api.Client(t)
	s.services, s.nodes = client.For[*corev1.Service](c).In("shop"), client.For[*corev1.Node](c)
	s.node("a", corev1.ConditionTrue)
	s.start()
	return s
}

// start starts a controller, as a daemon that becomes the leader does.
func (s *stage) start() {
	c, log := s.api.Client(s.t), slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(s.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = manager.Run(ctx, &manager.Config{Client: c, Log: log}, func() (manager.Term, error) {
			return manager.Term{Informers: informers.New(c, log), Controllers: []controller.Spec{Spec(0, s.provider)}}, nil
		})
	})
	s.stop = func() { cancel(); wg.Wait() }
}

func (s *stage) node(name string, ready corev1.ConditionStatus) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	if _, err := s.nodes.Create(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stage) create(name string, change ...func(*corev1.Service)) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, f := range change {
		f(svc)
	}
	if _, err := s.services.Create(s.t.Context(), svc); err != nil {
		s.t.Fatal(err)
	}
	settle()
}

func (s *stage) get(name string) *corev1.Service {
	svc, err := s.services.Get(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	return svc.DeepCopy()
}

func (s *stage) update(name string, change func(*corev1.Service)) {
	svc := s.get(name)
	change(svc)
	if _, err := s.services.Update(s.t.Context(), svc); err != nil {
		s.t.Fatal(err)
	}
	settle()
}

func (s *stage) changeNode(name string, change func(*corev1.Node)) {
	n, err := s.nodes.Get(s.t.Context(), name)
	if err != nil {
		s.t.Fatal(err)
	}
	n = n.DeepCopy()
	change(n)
	if _, err := s.nodes.Update(s.t.Context(), n); err != nil {
		s.t.Fatal(err)
	}
	settle()
}

func settle() { time.Sleep(time.Second / 2) }

// expect compares the provider's calls since the last expect.
func (s *stage) expect(when, want string) {
	s.t.Helper()
	if got := s.provider.take(); got != want {
		s.t.Errorf("%s: %s, want %s", when, got, want)
	}
}

func (s *stage) reasons() string {
	time.Sleep(2 * time.Second)
	list, err := client.For[*corev1.Event](s.api.Client(s.t)).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		out = append(out, e.Reason)
	}
	return strings.Join(out, " ")
}

func ingress(svc *corev1.Service) string {
	var out []string
	for _, i := range svc.Status.LoadBalancer.Ingress {
		out = append(out, i.IP)
	}
	return strings.Join(out, " ")
}

func TestALoadBalancersLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.create("web")
		s.expect("made", "ensure web [a]")
		if svc := s.get("web"); ingress(svc) != "10.0.0.240" || *svc.Status.LoadBalancer.Ingress[0].IPMode != corev1.LoadBalancerIPModeVIP || strings.Join(svc.Finalizers, " ") != Finalizer {
			t.Errorf("status %+v, finalizers %v", svc.Status, svc.Finalizers)
		}
		time.Sleep(time.Hour)
		s.expect("nothing happened", "")
		s.update("web", func(svc *corev1.Service) { svc.Labels = map[string]string{"tier": "front"} })
		s.expect("a label is no load balancer's business", "")
		s.update("web", func(svc *corev1.Service) { svc.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} })
		s.expect("source ranges", "ensure web [a]")
		s.update("web", func(svc *corev1.Service) { svc.Status = corev1.ServiceStatus{} })
		if s.expect("its status was wiped", ""); ingress(s.get("web")) != "10.0.0.240" {
			t.Error("the status was not written again")
		}
		s.node("b", corev1.ConditionTrue)
		settle()
		s.expect("a node came", "ensure web [a b]")
		s.update("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeNodePort })
		s.expect("not a load balancer any more", "delete web")
		if svc := s.get("web"); ingress(svc) != "" || len(svc.Finalizers) > 0 {
			t.Errorf("left on the Service: %v %v", svc.Status, svc.Finalizers)
		}
		s.update("web", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeLoadBalancer })
		s.expect("and again", "ensure web [a b]")
		s.update("web", func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		s.expect("deleted", "delete web")
		if svc := s.get("web"); len(svc.Finalizers) > 0 {
			t.Errorf("it is kept by %v", svc.Finalizers)
		}
		want := "EnsuringLoadBalancer EnsuredLoadBalancer UpdatedLoadBalancer DeletingLoadBalancer DeletedLoadBalancer"
		for _, reason := range strings.Fields(want) {
			if !strings.Contains(s.reasons(), reason) {
				t.Errorf("no event %s: %s", reason, s.reasons())
			}
		}
		s.stop()
	})
}

func TestWhatIsNotOurs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.create("plain", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		s.create("others", func(svc *corev1.Service) { svc.Spec.LoadBalancerClass = new("example.com/lb") })
		s.create("leaving", func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		time.Sleep(time.Minute)
		s.expect("nothing is ours", "")
		for _, w := range s.api.Writes() {
			if strings.HasPrefix(w, "PATCH") {
				t.Errorf("written: %s", w)
			}
		}
		s.stop()
	})
}

func TestNodesOfALoadBalancer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.create("web")
		s.node("b", corev1.ConditionTrue)
		s.node("c", corev1.ConditionFalse)
		settle()
		s.provider.take()
		s.changeNode("a", func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} })
		s.expect("excluded", "ensure web [b]")
		s.changeNode("c", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionTrue })
		s.expect("ready", "ensure web [b c]")
		s.changeNode("c", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}} })
		s.expect("about to leave", "ensure web [b]")
		s.changeNode("b", func(n *corev1.Node) { n.Spec.Unschedulable = true })
		s.expect("a cordoned node serves on", "")
		s.changeNode("b", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		s.expect("none is left", "ensure web []")
		if !strings.Contains(s.reasons(), "UnAvailableLoadBalancer") {
			t.Errorf("nobody says that there are no nodes: %s", s.reasons())
		}
		s.stop()
	})
}

func TestAProviderThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.provider.failing(errors.New("quota"))
		s.create("web")
		time.Sleep(10*time.Second - time.Second/2)
		s.expect("ever later", strings.Repeat(", ensure web [a]: quota", 4)[2:]) // at 0, 1, 3 and 7 seconds
		if r := s.reasons(); !strings.Contains(r, "SyncLoadBalancerFailed") {
			t.Errorf("nobody says so: %s", r)
		}
		s.provider.failing(nil)
		time.Sleep(10 * time.Second)
		s.expect("well again", "ensure web [a]")
		s.provider.failing(errors.New("busy"))
		s.update("web", func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		s.expect("cannot be removed", "delete web: busy")
		if svc := s.get("web"); len(svc.Finalizers) != 1 {
			t.Error("the Service was let go while its load balancer is there")
		}
		s.provider.failing(nil)
		time.Sleep(2 * time.Second)
		s.expect("removed", "delete web")
		s.stop()
	})
}

func TestWhatIsGivenBackHelpsAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.create("first")
		s.provider.failing(errors.New("no address is left"))
		s.create("second")
		time.Sleep(10 * time.Minute)
		s.provider.failing(nil)
		s.provider.take()
		s.update("first", func(svc *corev1.Service) { svc.Spec.Type = corev1.ServiceTypeClusterIP })
		s.expect("at once", "delete first, ensure second [a]")
		s.stop()
	})
}

func TestADaemonThatStartsMakesSureOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.create("web")
		s.provider.takes(100 * time.Millisecond)
		s.stop()
		s.update("web", func(svc *corev1.Service) { svc.DeletionTimestamp = &metav1.Time{Time: time.Now()} })
		s.create("other")
		s.provider.take()
		s.start()
		settle()
		got := s.provider.take()
		if got != "delete web, ensure other [a]" && got != "ensure other [a], delete web" {
			t.Errorf("after a restart: %s", got)
		}
		s.stop()
	})
}
