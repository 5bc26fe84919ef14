package controllers_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"podium/pkg/apiserver/registry"
	"podium/pkg/client"
	"podium/pkg/scheme"
)

// widgetKind is a kind that the controllers were not built with.
func widgetKind() *registry.Kind {
	return registry.Of[*unstructured.Unstructured]{AllowUnconditionalUpdate: true}.Kind(scheme.Untyped(scheme.Kind{
		GroupVersionKind: schema.GroupVersionKind{Group: "stable.example.com", Version: "v1", Kind: "Widget"},
		Resource:         "widgets", Singular: "widget", Namespaced: true,
	}))
}

const widgetGroup = "/apis/stable.example.com/v1"

// widget creates a Widget and returns it.
func (c *cluster) widget(namespace, name string, owners ...metav1.OwnerReference) *unstructured.Unstructured {
	c.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("stable.example.com/v1")
	u.SetKind("Widget")
	u.SetName(name)
	u.SetOwnerReferences(owners)
	body, err := json.Marshal(u)
	if err != nil {
		c.t.Fatal(err)
	}
	answer, _, err := c.Do(c.t.Context(), client.Request{
		Method: http.MethodPost, Path: widgetGroup + "/namespaces/" + namespace + "/widgets", Body: body,
		Header: http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}},
	})
	if err == nil {
		err = json.Unmarshal(answer, u)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	return u
}

// widgets counts the Widgets of a namespace; -1 if the kind is not served.
func (c *cluster) widgets(namespace string) int {
	body, _, err := c.Do(c.t.Context(), client.Request{
		Method: http.MethodGet, Path: widgetGroup + "/namespaces/" + namespace + "/widgets", Header: http.Header{"Accept": {"application/json"}},
	})
	if err != nil {
		return -1
	}
	var list metav1.PartialObjectMetadataList
	if err := json.Unmarshal(body, &list); err != nil {
		c.t.Fatal(err)
	}
	return len(list.Items)
}

// The controllers learn from discovery that a kind has come: its objects are
// collected with their owners, own others, and go with their namespace. The kind
// may go and come again.
func TestKindsAddedAtRunTimeAreCollected(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		for round := range 2 {
			if err := c.server.AddKind(t.Context(), widgetKind()); err != nil {
				t.Fatal(err)
			}
			owner := create(c, configMap(fmt.Sprintf("owner-%d", round)))
			c.widget("default", "owned", configMap("", owner).OwnerReferences...)
			w := c.widget("default", "owner")
			part := configMap(fmt.Sprintf("part-%d", round))
			part.OwnerReferences = []metav1.OwnerReference{{APIVersion: "stable.example.com/v1", Kind: "Widget", Name: "owner", UID: w.GetUID()}}
			create(c, part)
			time.Sleep(time.Minute)
			if c.widgets("default") != 2 || !exists[*corev1.ConfigMap](c, "default", part.Name) {
				t.Fatal("an object whose owner exists was deleted")
			}

			remove[*corev1.ConfigMap](c, owner.Name, metav1.DeletePropagationBackground)
			c.until(time.Minute, "the widget is gone with its owner", func() bool { return c.widgets("default") == 1 })
			if _, _, err := c.Do(t.Context(), client.Request{Method: http.MethodDelete, Path: widgetGroup + "/namespaces/default/widgets/owner"}); err != nil {
				t.Fatal(err)
			}
			c.until(time.Minute, "the widget's dependent is gone", func() bool { return !exists[*corev1.ConfigMap](c, "default", part.Name) })

			namespace := fmt.Sprintf("with-widgets-%d", round)
			create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
			c.widget(namespace, "a")
			c.widget(namespace, "b")
			if err := client.For[*corev1.Namespace](c.Client).Delete(t.Context(), namespace, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			c.until(time.Minute, "the namespace is gone", func() bool { return !exists[*corev1.Namespace](c, "", namespace) })
			if n := c.widgets(namespace); n != 0 {
				t.Errorf("%d widgets outlive their namespace", n)
			}
			c.server.RemoveKind(schema.GroupResource{Group: "stable.example.com", Resource: "widgets"})
			time.Sleep(time.Minute) // the monitor stops
			if n := c.widgets("default"); n != -1 {
				t.Errorf("a removed kind is served: %d", n)
			}
		}
		c.quiet()
	})
}

// Objects whose versions cannot be converted, because the webhook is down, are collected
// with their owners, also in the foreground, and go with their namespace: the controllers
// ask for v2, and v1 is stored.
func TestCollectionWithoutConversion(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		k := widgetKind()
		v2 := *k.Kind
		v2.Version = "v2"
		rules := registry.Of[*unstructured.Unstructured]{AllowUnconditionalUpdate: true}.Kind(&v2).Of
		k.Versions = []*registry.Version{{Kind: scheme.Untyped(v2), Rules: &rules}}
		k.Convert = func(context.Context, schema.GroupVersionKind, []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
			return nil, errors.New("the webhook is down")
		}
		if err := c.server.AddKind(t.Context(), k); err != nil {
			t.Fatal(err)
		}
		owner := create(c, configMap("owner"))
		c.widget("default", "owned", configMap("", owner).OwnerReferences...)
		w := c.widget("default", "owner")
		part := c.widget("default", "part", metav1.OwnerReference{APIVersion: "stable.example.com/v2", Kind: "Widget", Name: "owner", UID: w.GetUID(), BlockOwnerDeletion: new(true)})
		create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "goes"}})
		c.widget("goes", "a")
		time.Sleep(time.Minute)
		if c.widgets("default") != 3 {
			t.Fatal("an object whose owner exists was deleted")
		}
		remove[*corev1.ConfigMap](c, owner.Name, metav1.DeletePropagationBackground)
		c.until(time.Minute, "the widget is gone with its owner", func() bool { return c.widgets("default") == 2 })
		_, _, err := c.Do(t.Context(), client.Request{
			Method: http.MethodDelete, Path: "/apis/stable.example.com/v2/namespaces/default/widgets/owner", Query: url.Values{"propagationPolicy": {"Foreground"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "the owner is gone after "+part.GetName(), func() bool { return c.widgets("default") == 0 })
		if err := client.For[*corev1.Namespace](c.Client).Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.until(time.Minute, "the namespace is gone", func() bool { return !exists[*corev1.Namespace](c, "", "goes") })
	})
}

// staleDiscovery is the answer of an API server that cannot list the resources
// of widgetKind's group.
func staleDiscovery() *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(
		`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[{"metadata":{"name":"stable.example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}]}`))}
}

// A namespace stays while the kinds of a group are unknown, since it may hold
// objects of them, and its condition says so.
func TestNamespaceWaitsForDiscovery(t *testing.T) {
	inCluster(t, 0, func(t *testing.T, c *cluster) {
		if err := c.server.AddKind(t.Context(), widgetKind()); err != nil {
			t.Fatal(err)
		}
		create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "waits"}})
		c.widget("waits", "a")
		owner := create(c, configMap("owner"))
		c.widget("default", "owned", configMap("", owner).OwnerReferences...)
		time.Sleep(time.Minute)
		c.stale.Store(true)
		time.Sleep(time.Minute)
		if err := client.For[*corev1.Namespace](c.Client).Delete(t.Context(), "waits", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		ns, err := client.For[*corev1.Namespace](c.Client).Get(t.Context(), "waits")
		if err != nil {
			t.Fatal(err)
		}
		const want = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: stable.example.com/v1: stale GroupVersion discovery: stable.example.com/v1"
		if i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
			return c.Type == corev1.NamespaceDeletionDiscoveryFailure && c.Status == corev1.ConditionTrue && c.Message == want
		}); i < 0 || c.widgets("waits") != 1 {
			t.Errorf("%d widgets, conditions %+v", c.widgets("waits"), ns.Status.Conditions)
		}
		remove[*corev1.ConfigMap](c, "owner", metav1.DeletePropagationBackground)
		c.until(time.Minute, "the monitors of a failing group go on", func() bool { return c.widgets("default") == 0 })

		c.stale.Store(false)
		c.until(time.Minute, "the namespace is gone", func() bool { return !exists[*corev1.Namespace](c, "", "waits") })
	})
}
