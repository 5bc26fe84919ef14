package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
)

func fill(w *world, n int) {
	w.Helper()
	for i := range n {
		must[any](w, 201, "POST", cms, jsonType, fmt.Sprintf(`{"metadata":{"name":"cm-%02d","labels":{"even":"%t"}}}`, i, i%2 == 0))
	}
}

func names(list *corev1.ConfigMapList) (out []string) {
	for _, cm := range list.Items {
		out = append(out, cm.Name)
	}
	return out
}

func TestPagesAreOfOneRevision(t *testing.T) {
	w := start(t)
	fill(w, 7)
	for _, media := range []string{jsonType, protoType} {
		var got []string
		token, revision := "", ""
		for page := 0; page == 0 || token != ""; page++ {
			rec := w.do("GET", cms+"?limit=3&continue="+url.QueryEscape(token), "", "", "Accept", media)
			obj, _, err := scheme.New().Decode(rec.Body.Bytes(), media, nil)
			if err != nil {
				t.Fatal(err)
			}
			list := obj.(*corev1.ConfigMapList)
			if page == 0 { // neither of these changes may show on a later page
				revision = list.ResourceVersion
				must[any](w, 201, "POST", cms, jsonType, configMap("zz"))
				must[any](w, 200, "DELETE", cms+"/cm-06", "", "")
			}
			if list.ResourceVersion != revision {
				t.Errorf("page %d is of revision %s, the first of %s", page, list.ResourceVersion, revision)
			}
			got = append(got, names(list)...)
			left := int64(7 - len(got))
			if left > 0 && (list.RemainingItemCount == nil || *list.RemainingItemCount != left) {
				t.Errorf("after %d of 7: remaining %v", len(got), list.RemainingItemCount)
			}
			token = list.Continue
		}
		want := []string{"cm-00", "cm-01", "cm-02", "cm-03", "cm-04", "cm-05", "cm-06"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", media, diff)
		}
		must[any](w, 201, "POST", cms, jsonType, configMap("cm-06"))
		must[any](w, 200, "DELETE", cms+"/zz", "", "")
	}
	odd := must[corev1.ConfigMapList](w, 200, "GET", cms+"?limit=2&labelSelector=even%3Dfalse", "", "")
	if diff := cmp.Diff([]string{"cm-01", "cm-03"}, names(odd)); diff != "" || odd.RemainingItemCount != nil || odd.Continue == "" {
		t.Errorf("%s, remaining %v, token %q", diff, odd.RemainingItemCount, odd.Continue)
	}
}

// The lists of a label are answered from an index once there were several.
func TestManyListsOfOneLabel(t *testing.T) {
	w := start(t)
	want := []string{}
	for i := range 1100 {
		body := fmt.Sprintf(`{"metadata":{"name":"cm-%04d","labels":{"shard":"s%d","all":"x"}}}`, i, i%100)
		must[any](w, 201, "POST", cms, jsonType, body)
		if i%100 == 42 {
			want = append(want, fmt.Sprintf("cm-%04d", i))
		}
	}
	must[any](w, 201, "POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"other"}}`)
	must[any](w, 201, "POST", "/api/v1/namespaces/other/configmaps", jsonType, `{"metadata":{"name":"other","labels":{"shard":"s42"}}}`)
	for i := range 15 {
		old := must[corev1.ConfigMapList](w, 200, "GET", cms+"?labelSelector=shard%3Ds42", "", "")
		must[any](w, 200, "PATCH", cms+"/"+want[0], mergeType, `{"metadata":{"labels":{"shard":"moved"}}}`)
		for query, names := range map[string][]string{
			"?labelSelector=shard%3Ds42":                                          want[1:],
			"?labelSelector=shard+in+(s42),all%3Dx":                               want[1:],
			"?labelSelector=shard%3Ds42&fieldSelector=metadata.name%3D" + want[2]: want[2:3],
			"?labelSelector=shard%3Ds42,all!%3Dx":                                 {},
			"?labelSelector=shard%3Dmoved":                                        want[:1],
		} {
			if diff := cmp.Diff(names, pagesOf(w, cms+query)); diff != "" {
				t.Fatalf("list %d: %s: %s", i, query, diff)
			}
		}
		if got := pagesOf(w, "/api/v1/configmaps?labelSelector=shard%3Ds42"); len(got) != len(want) {
			t.Fatalf("list %d of all namespaces: %q", i, got)
		}
		exact := must[corev1.ConfigMapList](w, 200, "GET", cms+"?labelSelector=shard%3Ds42&resourceVersionMatch=Exact&resourceVersion="+old.ResourceVersion, "", "")
		if diff := cmp.Diff(want, names(exact)); diff != "" {
			t.Fatalf("list %d: before the change: %s", i, diff)
		}
		must[any](w, 200, "PATCH", cms+"/"+want[0], mergeType, `{"metadata":{"labels":{"shard":"s42"}}}`)
	}
}

// pagesOf returns the names in a list, read in pages of three.
func pagesOf(w *world, url string) []string {
	got := []string{}
	for token := ""; ; {
		list := must[corev1.ConfigMapList](w, 200, "GET", url+"&limit=3&continue="+token, "", "")
		got = append(got, names(list)...)
		if token = list.Continue; token == "" {
			return got
		}
	}
}

func TestAnExpiredTokenIsReplacedByAnInconsistentOne(t *testing.T) {
	w := start(t)
	fill(w, 4)
	first := must[corev1.ConfigMapList](w, 200, "GET", cms+"?limit=2", "", "")
	must[any](w, 201, "POST", cms, jsonType, configMap("cm-99"))
	rev, err := w.store.Revision(context.Background())
	if err == nil {
		err = w.store.Compact(context.Background(), rev)
	}
	if err != nil {
		t.Fatal(err)
	}
	late := start(t, func(cfg *apiserver.Config) { cfg.Store = w.store })
	gone := must[metav1.Status](late, 410, "GET", cms+"?limit=2&continue="+first.Continue, "", "")
	if gone.Reason != metav1.StatusReasonExpired || gone.Continue == "" {
		t.Fatalf("%+v", gone)
	}
	rest := must[corev1.ConfigMapList](late, 200, "GET", cms+"?limit=5&continue="+gone.Continue, "", "")
	if diff := cmp.Diff([]string{"cm-02", "cm-03", "cm-99"}, names(rest)); diff != "" {
		t.Error(diff)
	}
}

func TestResourceVersions(t *testing.T) {
	w := start(t)
	fill(w, 2)
	old := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "")
	must[any](w, 201, "POST", cms, jsonType, configMap("new"))
	for _, tc := range []struct {
		query string
		items int
	}{
		{"", 3},
		{"?resourceVersion=" + old.ResourceVersion, 3},
		{"?resourceVersion=0", 3},
		{"?resourceVersionMatch=NotOlderThan&resourceVersion=" + old.ResourceVersion, 3},
		{"?resourceVersionMatch=Exact&resourceVersion=" + old.ResourceVersion, 2},
		{"?limit=9&resourceVersion=" + old.ResourceVersion, 2},
		{"?fieldSelector=metadata.name%3Dnew", 1},
		{"?fieldSelector=metadata.name%21%3Dnew", 2},
		{"?labelSelector=even", 2},
	} {
		if list := must[corev1.ConfigMapList](w, 200, "GET", cms+tc.query, "", ""); len(list.Items) != tc.items {
			t.Errorf("%s: %d items, want %d", tc.query, len(list.Items), tc.items)
		}
	}
}

func TestVersionsToCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t)
		for _, path := range []string{cms + "?resourceVersion=99999", cms + "/new?resourceVersion=99999", cms + "?resourceVersionMatch=Exact&resourceVersion=99999"} {
			status := must[metav1.Status](w, 504, "GET", path, "", "")
			if !strings.HasPrefix(status.Message, "Timeout: Too large resource version: 99999, current: ") || status.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge {
				t.Errorf("%s: %+v", path, status)
			}
		}
	})
}

func TestDryRunChangesNothing(t *testing.T) {
	w := start(t)
	fill(w, 1)
	before := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "")
	made := must[corev1.ConfigMap](w, 201, "POST", cms+"?dryRun=All", jsonType, configMap("x"))
	if made.UID == "" {
		t.Error("a dry run shows what would be, UID and all")
	}
	must[metav1.Status](w, 409, "POST", cms+"?dryRun=All", jsonType, configMap("cm-00"))
	patched := must[corev1.ConfigMap](w, 200, "PATCH", cms+"/cm-00?dryRun=All", mergeType, `{"data":{"z":"1"}}`)
	if patched.Data["z"] != "1" {
		t.Errorf("%+v", patched)
	}
	must[any](w, 200, "DELETE", cms+"/cm-00?dryRun=All", "", "")
	must[any](w, 201, "PATCH", cms+"/y?dryRun=All&fieldManager=m", applyType, configMap("y"))
	after := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "")
	if diff := cmp.Diff(before.Items, after.Items); diff != "" {
		t.Error(diff)
	}
}

func TestDeletion(t *testing.T) {
	w := start(t)
	for i, tc := range []struct {
		name, query, options, finalizers string
		want                             []string // remaining finalizers; nil: deleted
	}{
		{name: "at once"},
		{name: "background", query: "?propagationPolicy=Background"},
		{name: "foreground", query: "?propagationPolicy=Foreground", want: []string{"foregroundDeletion"}},
		{name: "orphan, in the body", options: `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Orphan"}`, want: []string{"orphan"}},
		{name: "orphan, the old way", query: "?orphanDependents=true", want: []string{"orphan"}},
		{name: "options of a group", options: `{"kind":"DeleteOptions","apiVersion":"apps/v1","propagationPolicy":"Foreground"}`, want: []string{"foregroundDeletion"}},
		{name: "own finalizer", finalizers: `"example.com/f"`, want: []string{"example.com/f"}},
		{name: "own finalizer and foreground", finalizers: `"example.com/f"`, query: "?propagationPolicy=Foreground", want: []string{"example.com/f", "foregroundDeletion"}},
		{name: "background undoes foreground", finalizers: `"foregroundDeletion"`, query: "?propagationPolicy=Background"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			name := fmt.Sprintf("d-%d", i)
			path := cms + "/" + name
			must[any](w, 201, "POST", cms, jsonType, `{"metadata":{"name":"`+name+`","finalizers":[`+tc.finalizers+`]}}`)
			answer := must[corev1.ConfigMap](w, 200, "DELETE", path+tc.query, jsonType, tc.options)
			if tc.want == nil {
				must[any](w, 404, "GET", path, "", "")
				return
			}
			if answer.DeletionTimestamp == nil || !slices.Equal(answer.Finalizers, tc.want) || *answer.DeletionGracePeriodSeconds != 0 {
				t.Fatalf("delete said %+v", answer.ObjectMeta)
			}
			must[metav1.Status](w, 422, "PATCH", path, mergeType, `{"metadata":{"finalizers":["a/b","c/d"]}}`)
			again := must[corev1.ConfigMap](w, 200, "DELETE", path+tc.query, jsonType, tc.options)
			if again.ResourceVersion != answer.ResourceVersion {
				t.Error("a second delete wrote again")
			}
			last := must[corev1.ConfigMap](w, 200, "PATCH", path, mergeType, `{"metadata":{"finalizers":null}}`)
			if len(last.Finalizers) != 0 && last.Name != name {
				t.Errorf("last state %+v", last)
			}
			must[any](w, 404, "GET", path, "", "")
		})
	}
}

func TestDeleteCollection(t *testing.T) {
	w := start(t)
	fill(w, 6)
	gone := must[corev1.ConfigMapList](w, 200, "DELETE", cms+"?labelSelector=even%3Dtrue", "", "")
	if diff := cmp.Diff([]string{"cm-00", "cm-02", "cm-04"}, names(gone)); diff != "" {
		t.Error(diff)
	}
	left := must[corev1.ConfigMapList](w, 200, "GET", cms, "", "")
	if diff := cmp.Diff([]string{"cm-01", "cm-03", "cm-05"}, names(left)); diff != "" {
		t.Error(diff)
	}
}

func TestTerminatingNamespaceTakesNothingNew(t *testing.T) {
	w := start(t)
	must[any](w, 201, "POST", "/api/v1/namespaces", jsonType, `{"metadata":{"name":"n"}}`)
	ns := must[corev1.Namespace](w, 200, "DELETE", "/api/v1/namespaces/n", "", "")
	if ns.Status.Phase != corev1.NamespaceTerminating || ns.DeletionTimestamp == nil {
		t.Fatalf("%+v", ns)
	}
	status := must[metav1.Status](w, 403, "POST", "/api/v1/namespaces/n/configmaps", jsonType, configMap("x"))
	want := `configmaps "x" is forbidden: unable to create new content in namespace n because it is being terminated`
	if status.Message != want || status.Details.Causes[0].Type != corev1.NamespaceTerminatingCause {
		t.Errorf("%+v", status)
	}
	ns.Spec.Finalizers = nil
	text, _ := json.Marshal(ns)
	must[any](w, 200, "PUT", "/api/v1/namespaces/n/finalize", jsonType, string(text))
	must[any](w, 404, "GET", "/api/v1/namespaces/n", "", "")
}
