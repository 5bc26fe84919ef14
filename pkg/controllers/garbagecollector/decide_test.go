package garbagecollector

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1 "k8s.io/api/core/v1"

	"podium/pkg/client/metadata"
	"podium/pkg/scheme"
)

func TestDecide(t *testing.T) {
	leaf := func() []*node { return nil }
	parent := func() []*node { return []*node{{uid: "child"}} }
	cycle := func() []*node { return []*node{{uid: "child", deleting: true, foreground: true}} }
	tests := map[string]struct {
		reason     string
		states     []ownerState
		dependents func() []*node
		foreground bool
		want       string
	}{
		"NoOwner":      {"nobody's object is nobody's business", nil, leaf, false, `delete "" forget [] unblock false`},
		"Owned":        {"its owner is there", []ownerState{solid}, leaf, false, `delete "" forget [] unblock false`},
		"Orphaned":     {"its owner is gone", []ownerState{absent}, leaf, false, `delete "Background" forget [] unblock false`},
		"OwnPolicy":    {"its own finalizer says how", []ownerState{absent}, leaf, true, `delete "Foreground" forget [] unblock false`},
		"OneLeft":      {"one owner is enough to stay; the other is forgotten", []ownerState{solid, absent}, leaf, false, `delete "" forget [1] unblock false`},
		"OneWaits":     {"also when the other waits for it", []ownerState{waiting, solid}, leaf, false, `delete "" forget [0] unblock false`},
		"Waited":       {"its owner waits for it", []ownerState{waiting}, leaf, false, `delete "Background" forget [] unblock false`},
		"WaitedParent": {"what it owns goes before it", []ownerState{waiting}, parent, false, `delete "Foreground" forget [] unblock false`},
		"Cycle":        {"somebody must begin", []ownerState{waiting}, cycle, false, `delete "Foreground" forget [] unblock true`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			n := &node{uid: "me", foreground: tc.foreground}
			for i := range tc.states {
				n.owners = append(n.owners, metav1.OwnerReference{UID: types.UID(fmt.Sprint(i))})
			}
			v := decide(n, tc.states, tc.dependents)
			if got := fmt.Sprintf("delete %q forget %v unblock %v", v.Delete, v.Forget, v.Unblock); got != tc.want {
				t.Errorf("%s\n got %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

// pods is a kind for the graph; its client is never used.
func pods() metadata.Kind {
	return metadata.Of(nil, scheme.New().ByKind(corev1.SchemeGroupVersion.WithKind("Pod")))
}

func object(uid string, owners ...string) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}
	for _, owner := range owners {
		o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: owner, UID: types.UID(owner), BlockOwnerDeletion: new(true)})
	}
	return o
}

func TestGraphWakes(t *testing.T) {
	g, k := newGraph(), pods()
	check := func(what string, got []types.UID, want ...types.UID) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: wakes %v, want %v", what, got, want)
		}
	}
	check("an object without owners", g.put(nodeOf(k, object("owner"))))
	check("one whose owner is there", g.put(nodeOf(k, object("a", "owner"))))
	check("one whose owner is unknown", g.put(nodeOf(k, object("b", "nobody"))), "b")
	wrong := object("c", "owner")
	wrong.Namespace = "other"
	check("one whose owner is in another namespace", g.put(nodeOf(k, wrong)), "c")

	leaving := object("owner")
	leaving.DeletionTimestamp = &metav1.Time{}
	check("an owner that somebody else holds", g.put(nodeOf(k, leaving)))
	leaving.Finalizers = []string{metav1.FinalizerDeleteDependents}
	check("an owner that waits for its dependents", g.put(nodeOf(k, leaving)), "owner")
	check("a dependent that is gone, to its owner that waits", g.remove("a"), "owner")
	check("a dependent that forgot", g.put(nodeOf(k, object("c"))), "owner")
	g.put(nodeOf(k, object("d", "owner")))
	check("an owner that is gone", g.remove("owner"), "d")
	check("something that was never there", g.remove("x"))
}

func BenchmarkGraph(b *testing.B) {
	k := pods()
	const sets, each = 1000, 10
	var nodes []*node
	for s := range sets {
		nodes = append(nodes, nodeOf(k, object(fmt.Sprintf("set-%d", s))))
		for p := range each {
			nodes = append(nodes, nodeOf(k, object(fmt.Sprintf("pod-%d-%d", s, p), fmt.Sprintf("set-%d", s))))
		}
	}
	b.Run("fill", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			g := newGraph()
			for _, n := range nodes {
				g.put(n)
			}
		}
	})
	b.Run("update", func(b *testing.B) {
		g := newGraph()
		for _, n := range nodes {
			g.put(n)
		}
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			g.put(nodes[i%len(nodes)])
			i++
		}
	})
	b.Run("owner goes", func(b *testing.B) {
		g := newGraph()
		for _, n := range nodes {
			g.put(n)
		}
		b.ReportAllocs()
		for b.Loop() {
			if len(g.remove("set-7")) != each {
				b.Fatal("dependents")
			}
			g.put(nodes[7*(each+1)])
		}
	})
}
