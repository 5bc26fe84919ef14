package controllers_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/client"
)

// configMap returns a ConfigMap with these owners.
func configMap(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, o := range owners {
		m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{
			APIVersion: "v1", Kind: "ConfigMap", Name: o.Name, UID: o.UID, BlockOwnerDeletion: new(true),
		})
	}
	return m
}

func TestOwners(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		gone := func(name string) func() bool {
			return func() bool { return !exists[*corev1.ConfigMap](c, "default", name) }
		}
		a, b := create(c, configMap("a")), create(c, configMap("b"))
		create(c, configMap("of-both", a, b))
		remove[*corev1.ConfigMap](c, "a", metav1.DeletePropagationForeground)
		c.until(time.Minute, "a is gone", gone("a"))
		time.Sleep(time.Minute)
		m, err := client.For[*corev1.ConfigMap](c.Client).In("default").Get(t.Context(), "of-both")
		if err != nil || m.DeletionTimestamp != nil || len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != b.UID {
			t.Errorf("one owner is left and keeps it; got %v, %v", m, err)
		}
		remove[*corev1.ConfigMap](c, "b", metav1.DeletePropagationBackground)
		c.until(time.Minute, "an object without owners is gone", gone("of-both"))

		// A cycle: x owns y owns z owns x.
		x := create(c, configMap("x"))
		y := create(c, configMap("y", x))
		z := create(c, configMap("z", y))
		edit(c, "x", func(m *corev1.ConfigMap) { m.OwnerReferences = configMap("x", z).OwnerReferences })
		time.Sleep(time.Minute)
		if gone("x")() || gone("y")() || gone("z")() {
			t.Error("a cycle that nothing changes stays")
		}
		remove[*corev1.ConfigMap](c, "x", metav1.DeletePropagationForeground)
		c.until(time.Minute, "the cycle is gone", func() bool { return gone("x")() && gone("y")() && gone("z")() })

		// An owner that never existed; one with the name but another UID; one of a kind that is not served.
		create(c, configMap("of-nobody", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nobody", UID: "1"}}))
		create(c, configMap("real"))
		create(c, configMap("of-namesake", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "2"}}))
		unknown := configMap("of-unknown", &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "real", UID: "3"}})
		unknown.OwnerReferences[0].APIVersion, unknown.OwnerReferences[0].Kind = "example.com/v1", "Thing"
		create(c, unknown)
		c.until(time.Minute, "objects whose owners do not exist are gone", func() bool { return gone("of-nobody")() && gone("of-namesake")() })
		time.Sleep(time.Minute)
		if gone("of-unknown")() || gone("real")() {
			t.Error("what cannot be known must not be deleted")
		}
		c.quiet()
	})
}

// An object whose owner is in another namespace is deleted, unless it is in none, and an event
// says why.
func TestOwnersInOtherNamespaces(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		owner := configMap("owner")
		owner.Namespace = "kube-system"
		owner = create(c, owner)
		c.until(time.Minute, "the owner is known", func() bool { return exists[*corev1.ConfigMap](c, "kube-system", "owner") })
		time.Sleep(time.Second)
		create(c, configMap("elsewhere", owner))
		nowhere := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "nowhere", OwnerReferences: configMap("", owner).OwnerReferences}}
		create(c, nowhere)
		c.until(time.Minute, "the object is deleted", func() bool { return !exists[*corev1.ConfigMap](c, "default", "elsewhere") })
		var got []string
		for _, e := range c.events() {
			if e.Reason == "OwnerRefInvalidNamespace" {
				got = append(got, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.InvolvedObject.Kind, e.InvolvedObject.Namespace, e.InvolvedObject.Name, e.Message))
			}
		}
		slices.Sort(got)
		want := []string{
			fmt.Sprintf(`Warning ClusterRole /nowhere: ownerRef [v1/ConfigMap, namespace: , name: owner, uid: %s] does not exist in namespace ""`, owner.UID),
			fmt.Sprintf(`Warning ConfigMap default/elsewhere: ownerRef [v1/ConfigMap, namespace: default, name: owner, uid: %s] does not exist in namespace "default"`, owner.UID),
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
		if !exists[*rbacv1.ClusterRole](c, "", "nowhere") {
			t.Error("the cluster-scoped object was deleted")
		}
	})
}
