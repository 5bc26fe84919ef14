package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// wellKnown returns a resource of each group and version that every cluster has.
func wellKnown() []schema.GroupVersionResource {
	var out []schema.GroupVersionResource
	for _, r := range []struct{ group, version, resource string }{
		{"admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations"},
		{"apiextensions.k8s.io", "v1", "customresourcedefinitions"},
		{"apiregistration.k8s.io", "v1", "apiservices"},
		{"apps", "v1", "deployments"},
		{"authentication.k8s.io", "v1", "tokenreviews"},
		{"authorization.k8s.io", "v1", "selfsubjectaccessreviews"},
		{"autoscaling", "v1", "horizontalpodautoscalers"},
		{"autoscaling", "v2", "horizontalpodautoscalers"},
		{"batch", "v1", "jobs"},
		{"certificates.k8s.io", "v1", "certificatesigningrequests"},
		{"coordination.k8s.io", "v1", "leases"},
		{"discovery.k8s.io", "v1", "endpointslices"},
		{"events.k8s.io", "v1", "events"},
		{"networking.k8s.io", "v1", "ingresses"},
		{"node.k8s.io", "v1", "runtimeclasses"},
		{"policy", "v1", "poddisruptionbudgets"},
		{"scheduling.k8s.io", "v1", "priorityclasses"},
		{"storage.k8s.io", "v1", "csinodes"},
	} {
		out = append(out, schema.GroupVersionResource{Group: r.group, Version: r.version, Resource: r.resource})
	}
	return out
}

// groupResources reads the discovery of each group, and of its version.
func groupResources(t *testing.T, ctx context.Context, _ string) {
	read := func(path string, into any) {
		t.Helper()
		text, err := admin.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return
		}
		check(t, json.Unmarshal(text, into))
	}
	for _, want := range wellKnown() {
		var group metav1.APIGroup
		read("/apis/"+want.Group, &group)
		served := map[string]bool{}
		for _, v := range group.Versions {
			served[v.GroupVersion] = v.Version == want.Version || served[v.GroupVersion]
		}
		if !served[want.GroupVersion().String()] {
			t.Errorf("/apis/%s has the versions %v, not %s", want.Group, group.Versions, want.Version)
		}
		var list metav1.APIResourceList
		read("/apis/"+want.GroupVersion().String(), &list)
		if list.GroupVersion != want.GroupVersion().String() {
			t.Errorf("/apis/%s says that it is %q", want.GroupVersion(), list.GroupVersion)
		}
		found := false
		for _, r := range list.APIResources {
			found = found || r.Name == want.Resource
		}
		if !found {
			t.Errorf("/apis/%s has no %s", want.GroupVersion(), want.Resource)
		}
	}
}

// aggregatedAccept asks for the aggregated form by its media type.
func aggregatedAccept(t *testing.T, ctx context.Context, _ string) {
	for path, want := range map[string][]schema.GroupVersionResource{
		"/apis": wellKnown(), "/api": {{Version: "v1", Resource: "namespaces"}},
	} {
		text, err := admin.Discovery().RESTClient().Get().AbsPath(path).SetHeader("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList").DoRaw(ctx)
		check(t, err)
		var list apidiscovery.APIGroupDiscoveryList
		check(t, json.Unmarshal(text, &list))
		if list.Kind != "APIGroupDiscoveryList" || list.APIVersion != "apidiscovery.k8s.io/v2" {
			t.Errorf("%s answers with %s of %s", path, list.Kind, list.APIVersion)
		}
		has := map[schema.GroupVersionResource]bool{}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					has[schema.GroupVersionResource{Group: g.Name, Version: v.Version, Resource: r.Resource}] = true
				}
			}
		}
		for _, r := range want {
			if !has[r] {
				t.Errorf("%s has no %v", path, r)
			}
		}
	}
}

// aggregatedClient uses client-go's aggregated discovery.
func aggregatedClient(t *testing.T, ctx context.Context, _ string) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	check(t, err)
	var groups *metav1.APIGroupList
	var resources map[schema.GroupVersion]*metav1.APIResourceList
	allServed(t, ctx, func() error {
		var failed map[schema.GroupVersion]error
		groups, resources, failed, err = client.GroupsAndMaybeResources()
		check(t, err)
		maps.DeleteFunc(failed, func(gv schema.GroupVersion, _ error) bool { return ofRow(gv.Group) })
		if len(failed) > 0 {
			return fmt.Errorf("discovery failed for %v", failed)
		}
		return nil
	})
	if groups == nil || resources == nil {
		t.Fatal("the discovery is not aggregated")
	}
	names := map[string]bool{}
	for _, g := range groups.Groups {
		names[g.Name] = true
	}
	for _, want := range append(wellKnown(), schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}) {
		found := false
		if list := resources[want.GroupVersion()]; list != nil {
			for _, r := range list.APIResources {
				found = found || r.Name == want.Resource
			}
		}
		if !names[want.Group] || !found {
			t.Errorf("there is no %v", want)
		}
	}
}

// ofRow reports whether another row made the group, which may end at any time.
func ofRow(group string) bool { return strings.HasSuffix(group, ".example.com") }

// allServed waits for the discovery of what other servers serve, such as metrics-server,
// which may starve for a moment beside the other rows.
func allServed(t *testing.T, ctx context.Context, ok func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	services := dynamicClient(t).Resource(apiServices)
	eventually(t, ctx, "discovery of all groups", func() error {
		err := ok()
		if err == nil {
			return nil
		}
		return errors.Join(err, serviceAvailable(ctx, services, "v1beta1.metrics.k8s.io"))
	})
}
