package devices_test

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"podium/pkg/kubelet/devices/devicetest"
	"podium/pkg/kubelet/hardware/drawn"
	"podium/pkg/kubelet/topology"
)

// near returns healthy devices near a NUMA node.
func near(node int64, ids ...string) []*api.Device {
	list := devicetest.Healthy(ids...)
	for _, d := range list {
		d.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: node}}}
	}
	return list
}

// aligner returns a topology manager on a machine with two NUMA nodes.
func aligner(t *testing.T, n *node, policy, scope string) *topology.Manager {
	m, err := topology.New(topology.Config{Policy: policy, Scope: scope, Machine: drawn.Drawing{Sockets: 1, Nodes: 2, Cores: 2, Threads: 1}.Machine()})
	if err != nil {
		t.Fatal(err)
	}
	m.Add(n.Provider(m.Nodes()))
	return m
}

func TestHints(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus)
		p.Set(append(near(0, "a", "b"), near(1, "c", "d")...)...)
		n.plugin(p)
		hints := n.Provider(topology.Of(0, 1))
		check := func(p *corev1.Pod, want ...topology.Hint) {
			t.Helper()
			if diff := cmp.Diff(want, hints.Hints(p, &p.Spec.Containers[0])[gpus]); diff != "" {
				t.Error(diff)
			}
		}
		zero, one, both := topology.Of(0), topology.Of(1), topology.Of(0, 1)
		check(pod("p", 2), topology.Hint{Nodes: zero, Preferred: true}, topology.Hint{Nodes: one, Preferred: true}, topology.Hint{Nodes: both})
		check(pod("p", 3), topology.Hint{Nodes: both, Preferred: true})
		check(pod("p", 5), []topology.Hint{}...)
		n.mustAllocate(pod("user", 1))
		check(pod("p", 2), topology.Hint{Nodes: one, Preferred: true}, topology.Hint{Nodes: both})
		check(pod("user", 1), topology.Hint{Nodes: zero, Preferred: true}, topology.Hint{Nodes: both})
		p.Set(devicetest.Healthy("x", "y")...) // without nodes: no preference
		synctest.Wait()
		check(pod("p", 2))
	})
}

func TestDevicesAreAligned(t *testing.T) {
	for _, scope := range []string{topology.ScopeContainer, topology.ScopePod} {
		t.Run(scope, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				p := devicetest.New(gpus)
				p.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true} // it prefers the last ones
				p.Set(append(near(0, "a", "b", "c"), near(1, "d", "e", "f")...)...)
				n.plugin(p)
				m := aligner(t, n, topology.SingleNode, scope)
				admit := func(p *corev1.Pod) {
					t.Helper()
					if r := m.Admit(p); r != nil {
						t.Fatalf("%s: %v", p.Name, r)
					}
					n.mustAllocate(p)
				}
				first := pod("first", 1, initContainers(container("init", 2)))
				admit(first)
				n.wantDevices("first", "init", "[b c]")
				n.wantDevices("first", "main", "[b]")
				admit(pod("second", 2))
				n.wantDevices("second", "main", "[e f]")
				admit(pod("third", 1))
				n.wantDevices("third", "main", "[a]")
				m.Release("second")
				m.Release("third")
				n.mustAllocate(pod("hog", 1)) // f
				if r := m.Admit(pod("wide", 3)); r == nil || r.Reason != topology.ReasonAffinity {
					t.Errorf("three devices of one node are not left: %v", r)
				}
				n.wantDevices("wide", "main", "[]")
				m.Release("first")
				n.wantDevices("first", "main", "[]")
			})
		})
	}
}

// Without a policy, the devices are those that the plugin prefers.
func TestDevicesWithoutPolicy(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		p := devicetest.New(gpus)
		p.Options = &api.DevicePluginOptions{GetPreferredAllocationAvailable: true}
		p.Set(append(near(0, "a", "b"), near(1, "c", "d")...)...)
		n.plugin(p)
		m := aligner(t, n, topology.None, "")
		user := pod("user", 3, initContainers(sidecar(container("side", 1))))
		if r := m.Admit(user); r != nil {
			t.Fatal(r)
		}
		n.wantDevices("user", "side", "[a]")
		n.wantDevices("user", "main", "[b c d]")
		if short := n.Short(pod("other", 1)); short == nil || len(short.Holders) != 1 {
			t.Errorf("reserved devices are free: %v", short)
		}
		n.mustAllocate(user)
		n.wantDevices("user", "side", "[d]")
		n.wantDevices("user", "main", "[a b c]")
		if r := m.Admit(pod("other", 1)); r == nil || r.Reason != topology.ReasonUnexpected || r.Message != "Allocate failed due to requested number of devices unavailable for example.com/gpu. Requested: 1, Available: 0, which is unexpected" {
			t.Errorf("%v", r)
		}
		if err := m.Restore(user); err != nil {
			t.Error(err)
		}
	})
}
