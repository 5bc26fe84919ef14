package l2announce

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client/addresslease"
)

func TestAddressesAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		synctest.Wait() // every node knows all nodes
		count := map[string]int{}
		var all []netip.Addr
		for i := range 30 {
			all = append(all, s.address(fmt.Sprintf("10.0.0.%d", 100+i)))
		}
		time.Sleep(time.Second)
		for _, a := range all {
			count[s.who(a)]++
		}
		if len(count) != 3 || count["a"] < 4 || count["b"] < 4 || count["c"] < 4 {
			t.Errorf("30 addresses on three nodes: %v", count)
		}
		before := fmt.Sprint(count)
		time.Sleep(10 * time.Minute)
		clear(count)
		for _, a := range all {
			count[s.who(a)]++
		}
		if fmt.Sprint(count) != before || len(s.notes) != 30 {
			t.Errorf("nothing happened for ten minutes, and addresses moved: %v, before %s", count, before)
		}
	})
}

func TestANodeIsLost(t *testing.T) {
	for name, lose := range map[string]func(s *stage, node string){
		"the process crashes and does not come back": (*stage).crash,
		"the node is cut off from the API":           func(s *stage, node string) { s.cutOff(node) },
		"its writes are lost, its watch goes on": func(s *stage, node string) {
			s.fault(node, func(r *http.Request) error {
				if r.Method == http.MethodPut {
					return io.ErrUnexpectedEOF
				}
				return nil
			}, nil)
		},
		"it writes, and never hears an answer": func(s *stage, node string) {
			s.fault(node, nil, func() error { return io.ErrUnexpectedEOF })
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, "a", "b", "c")
				defer s.end()
				a := s.address("10.0.0.240")
				first, took := s.answered(a, "")
				if took > 100*time.Millisecond {
					t.Errorf("answered after %v", took)
				}
				time.Sleep(time.Minute)
				lose(s, first)
				if name == "it writes, and never hears an answer" {
					time.Sleep(20 * time.Second)
					if who := s.who(a); who == first {
						t.Errorf("%s has the address by renewals that it does not know of", who)
					}
					return // no other node may take an address that is renewed
				}
				second, took := s.answered(a, first)
				if took > 10*time.Second {
					t.Errorf("%s answers after %v", second, took)
				}
				t.Logf("answered again after %v", took)
			})
		})
	}
}

func TestACleanEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		a := s.address("10.0.0.240")
		first, _ := s.answered(a, "")
		s.stop(first)
		time.Sleep(10 * time.Second) // an upgrade of the daemon
		if who := s.who(a); who != first {
			t.Fatalf("a kube-proxy was stopped, its rules stay, and the address moved to %q", who)
		}
		s.start(first)
		time.Sleep(time.Minute)
		if who := s.who(a); who != first || len(s.notes) != 1 {
			t.Errorf("after a restart %q has the address: %v", who, s.notes)
		}
		s.stop(first) // and does not start again
		second, took := s.answered(a, first)
		if took > 16*time.Second {
			t.Errorf("answered after %v", took)
		}
		s.leaving = true // the machine shuts down
		began := time.Now()
		s.stop(second)
		third, _ := s.answered(a, second)
		if took := time.Since(began); took > time.Second || third == second {
			t.Errorf("a machine went down cleanly, and %s answers after %v", third, took)
		}
	})
}

func TestTheAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		a := s.address("10.0.0.240")
		first, _ := s.answered(a, "")
		time.Sleep(time.Minute)
		s.cutOff("a", "b", "c")
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			if who := s.who(a); who != first {
				t.Fatalf("the API is away, and %q has the address: %v", who, s.notes)
			}
		}
		for _, n := range []string{"a", "b", "c"} {
			s.fault(n, nil, nil)
		}
		time.Sleep(time.Minute)
		if who := s.who(a); who != first {
			t.Errorf("five seconds without the API moved the address to %q: %v", who, s.notes)
		}
		s.cutOff("a", "b", "c")
		time.Sleep(9 * time.Second)
		if who := s.who(a); who != "" {
			t.Errorf("%s has the address without a Lease", who)
		}
		time.Sleep(time.Minute)
		for _, n := range []string{"a", "b", "c"} {
			s.fault(n, nil, nil)
		}
		if _, took := s.answered(a, ""); took > 31*time.Second { // informers back off after a long outage
			t.Errorf("answered %v after the API was back", took)
		}
	})
}

func TestAStaleViewTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		a := s.address("10.0.0.240")
		first, _ := s.answered(a, "")
		for _, n := range []string{"a", "b", "c"} {
			if n != first { // they receive no events, but can write
				s.fault(n, func(r *http.Request) error {
					if r.URL.Query().Get("watch") == "true" || r.Method == http.MethodGet && r.URL.Query().Has("labelSelector") {
						return io.ErrUnexpectedEOF
					}
					return nil
				}, nil)
			}
		}
		s.api.Break()
		time.Sleep(4 * time.Minute) // less than settle: after it, a holder gives way to a node that is preferred
		if who := s.who(a); who != first {
			t.Errorf("%q has the address: %v", who, s.notes)
		}
	})
}

func TestEligibleNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		a := s.address("10.0.0.240")
		first, _ := s.answered(a, "")
		s.changeNode(first, func(n *corev1.Node) { n.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: ""} })
		second, took := s.answered(a, first)
		if took > time.Second {
			t.Errorf("a node was excluded, and %s answers after %v", second, took)
		}
		s.changeNode(second, func(n *corev1.Node) { n.Status = node(second, corev1.ConditionUnknown).Status })
		third, took := s.answered(a, second)
		if took > time.Second || third == first {
			t.Errorf("%s is not ready, and %s answers after %v", second, third, took)
		}
		s.changeNode(third, func(n *corev1.Node) { n.Status = node(third, corev1.ConditionFalse).Status })
		time.Sleep(time.Minute)
		if who := s.who(a); who != third {
			t.Errorf("no node may, and %q answers: one that is said not to be ready is better than none", who)
		}
	})
}

func TestLocalTrafficPolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		s.serve(corev1.ServiceExternalTrafficPolicyLocal, "b")
		a := s.address("10.0.0.240")
		for _, n := range []string{"b", "c", "a"} {
			s.serve(corev1.ServiceExternalTrafficPolicyLocal, n)
			time.Sleep(time.Second)
			if who := s.who(a); who != n {
				t.Errorf("the only endpoint is on %s, and %q answers", n, who)
			}
		}
		s.serve(corev1.ServiceExternalTrafficPolicyLocal)
		time.Sleep(time.Minute)
		if who := s.who(a); who != "a" {
			t.Errorf("without endpoints %q answers: it shall refuse", who)
		}
	})
}

func TestAServiceGivesItsAddressUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		a := s.address("10.0.0.240")
		s.answered(a, "")
		l, err := s.one.Get(t.Context(), addresslease.Name(a))
		if err != nil {
			t.Fatal(err)
		}
		l = l.DeepCopy()
		addresslease.Close(l)
		if _, err := s.one.Update(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		if l, err = s.one.Get(t.Context(), l.Name); err != nil || addresslease.Holder(l) != "" || s.who(a) != "" {
			t.Errorf("half a second after it was closed: holder %q, on the interface of %q", addresslease.Holder(l), s.who(a))
		}
		time.Sleep(time.Minute)
		if who := s.who(a); who != "" {
			t.Errorf("%s took an address that is given up", who)
		}
		if err := s.one.Delete(t.Context(), l.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		s.address("10.0.0.240") // another Service gets the address
		s.answered(a, "")
	})
}

func TestANodeThatComesBackGetsItsShareLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b")
		defer s.end()
		a := s.address("10.0.0.240")
		first, _ := s.answered(a, "")
		s.crash(first)
		second, _ := s.answered(a, first)
		s.start(first)
		time.Sleep(settle - 30*time.Second)
		if who := s.who(a); who != second {
			t.Errorf("moved too soon to %q", who)
		}
		time.Sleep(time.Minute)
		if who := s.who(a); who != first {
			t.Errorf("%q has the address: %v", who, s.notes)
		}
	})
}

func TestRulesComeFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer s.end()
		s.addNode("a")
		s.notReady = true
		s.start("a")
		a := s.address("10.0.0.240")
		time.Sleep(time.Minute)
		if who := s.who(a); who != "" {
			t.Errorf("%s answers before its rules are written", who)
		}
		s.faults.Lock()
		s.notReady = false
		s.faults.Unlock()
		s.answered(a, "")
	})
}

func TestTheAddressesOwnNetworkComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, "a", "b", "c")
		defer s.end()
		for _, n := range []string{"a", "b", "c"} {
			s.running[n].port.reach = map[string]Reach{"a": Nowhere, "b": Anywhere, "c": OnLink}[n]
		}
		a := s.address("10.0.0.240")
		if who, _ := s.answered(a, ""); who != "c" {
			t.Errorf("%s answers: only c is in the address's network", who)
		}
		s.crash("c")
		if who, _ := s.answered(a, "c"); who != "b" {
			t.Errorf("%s answers: a cannot", who)
		}
	})
}

func TestWhatAnEarlierLifeLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		defer s.end()
		gone := netip.MustParseAddr("10.0.0.241")
		s.has[gone] = map[string]time.Time{"a": time.Now().Add(time.Hour)}
		s.addNode("a")
		s.start("a")
		time.Sleep(time.Second)
		if who := s.who(gone); who != "" {
			t.Error("an address without a Lease is still there")
		}
	})
}

// TestNeverTwo injects random failures for twenty minutes, with several seeds. lan fails
// the test if two nodes have an address.
func TestNeverTwo(t *testing.T) {
	// Under the race detector a bubble's timers sometimes crash when goroutines run
	// in parallel (golang/go#78156); this test has the most goroutines.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dice := rand.New(&sharedSource{source: rand.NewPCG(seed, 4)})
				names := []string{"a", "b", "c", "d"}
				s := newStage(t, names...)
				defer s.end()
				var all []netip.Addr
				for i := range 5 {
					all = append(all, s.address(fmt.Sprintf("10.0.0.%d", 240+i)))
				}
				answered, asked := 0, 0
				for range 120 {
					s.trouble(dice, names)
					for range 10 {
						time.Sleep(time.Duration(dice.IntN(2000)) * time.Millisecond)
						for _, a := range all {
							asked++
							if s.who(a) != "" {
								answered++
							}
						}
					}
				}
				if answered < asked/2 {
					t.Errorf("an address was there when asked %d of %d times", answered, asked)
				}
				for _, n := range names {
					s.heal(n)
				}
				for _, a := range all {
					s.answered(a, "")
				}
				t.Logf("answered %d of %d times, %d moves", answered, asked, len(s.notes))
			})
		})
	}
}

// sharedSource is a random source that is safe for concurrent use.
type sharedSource struct {
	mu     sync.Mutex
	source rand.Source
}

func (s *sharedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.source.Uint64()
}

// trouble injects or ends one failure.
func (s *stage) trouble(dice *rand.Rand, names []string) {
	n := names[dice.IntN(len(names))]
	up := s.running[n] != nil
	chance := func() error {
		if dice.IntN(3) == 0 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	switch what := dice.IntN(9); {
	case what == 0 && up:
		s.crash(n)
	case what == 1 && up:
		s.stop(n)
	case what == 2:
		s.cutOff(n)
	case what == 3:
		s.fault(n, func(*http.Request) error { return chance() }, chance)
	case what == 4: // slow in both directions, sometimes beyond the timeout
		s.fault(n, func(r *http.Request) error {
			if r.Method == http.MethodPut {
				time.Sleep(time.Duration(dice.IntN(1500)) * time.Millisecond)
			}
			return nil
		}, nil)
	case what == 5 && up:
		s.changeNode(n, func(x *corev1.Node) { x.Status = node(n, corev1.ConditionUnknown).Status })
	case what == 6:
		s.api.Break()
	default:
		s.heal(n)
	}
}

func (s *stage) heal(n string) {
	s.fault(n, nil, nil)
	s.changeNode(n, func(x *corev1.Node) { x.Status = node(n, corev1.ConditionTrue).Status })
	if s.running[n] == nil {
		s.start(n)
	}
}

func TestCandidates(t *testing.T) {
	a := netip.MustParseAddr("10.0.0.240")
	svc := &corev1.Service{}
	local := &corev1.Service{Spec: corev1.ServiceSpec{ExternalTrafficPolicy: corev1.ServiceExternalTrafficPolicyLocal}}
	excluded := node("x", corev1.ConditionTrue)
	excluded.Labels = map[string]string{corev1.LabelNodeExcludeBalancers: "false"} // the label counts whatever its value
	nodes := []*corev1.Node{node("a", corev1.ConditionTrue), node("b", corev1.ConditionTrue), node("c", corev1.ConditionFalse), {ObjectMeta: metav1.ObjectMeta{Name: "new"}}, excluded}
	onB := []*discoveryv1.EndpointSlice{{Endpoints: []discoveryv1.Endpoint{
		{NodeName: new("a"), Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true)}},
		{NodeName: new("b")}, {NodeName: nil},
	}}}
	sorted := func(in []string) string { slices.Sort(in); return fmt.Sprint(in) }
	if got := sorted(candidates(a, svc, onB, nodes)); got != "[a b]" {
		t.Errorf("policy Cluster: %s", got)
	}
	if got := sorted(candidates(a, local, onB, nodes)); got != "[b]" {
		t.Errorf("policy Local: %s", got)
	}
	if got := candidates(a, nil, onB, nodes); got != nil {
		t.Errorf("no Service: %v", got)
	}
	with, without := candidates(a, svc, nil, nodes), candidates(a, svc, nil, append(slices.Clone(nodes), node("d", corev1.ConditionTrue)))
	if i, j := slices.Index(without, "a"), slices.Index(without, "b"); (i < j) != (with[0] == "a") {
		t.Errorf("a new node changed the order of the others: %v, %v", with, without)
	}
}
