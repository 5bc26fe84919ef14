package apiserver_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/conditions"
)

// kubectl drain evicts if discovery shows the subresource pods/eviction with a
// group and version. kubectl before 1.28 also needs the group policy in the
// list of groups.
func TestDrainFindsEviction(t *testing.T) {
	w := start(t)
	groups := must[metav1.APIGroupList](w, 200, "GET", "/apis", "", "").Groups
	at := slices.IndexFunc(groups, func(g metav1.APIGroup) bool { return g.Name == "policy" })
	if at < 0 || groups[at].PreferredVersion.GroupVersion != "policy/v1" {
		t.Errorf("the group policy is not listed: %+v", groups)
	}
	eviction := slices.IndexFunc(must[metav1.APIResourceList](w, 200, "GET", "/api/v1", "", "").APIResources, func(r metav1.APIResource) bool {
		return r.Name == "pods/eviction" && r.Kind == "Eviction" && r.Group == "policy" && r.Version == "v1"
	})
	if eviction < 0 {
		t.Error("pods/eviction is not found")
	}
	if list := must[metav1.APIResourceList](w, 200, "GET", "/apis/policy/v1", "", "").APIResources; len(list) == 0 || list[0].Name != "poddisruptionbudgets" {
		t.Errorf("policy/v1 has %+v", list)
	}
}

const budgetPath = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"

// budget creates a disruption budget over pods with the label app=web. spec are
// further fields of its spec. The status is that of a controller.
func (w *world) budget(name, spec, status string) {
	w.Helper()
	must[policyv1.PodDisruptionBudget](w, 201, "POST", budgetPath, jsonType,
		fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"selector":{"matchLabels":{"app":"web"}}%s}}`, name, spec))
	must[policyv1.PodDisruptionBudget](w, 200, "PATCH", budgetPath+"/"+name+"/status", mergeType, `{"status":`+status+`}`)
}

// webPod creates a pod with the label app=web on a node, in a phase, ready or not.
func (w *world) webPod(name, phase, ready string) {
	w.Helper()
	must[corev1.Pod](w, 201, "POST", podPath, jsonType, fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{"app":"web"}},"spec":{"nodeName":"n","automountServiceAccountToken":false,"containers":[{"name":"c","image":"i"}]}}`, name))
	must[corev1.Pod](w, 200, "PATCH", podPath+"/"+name+"/status", mergeType, fmt.Sprintf(
		`{"status":{"phase":%q,"conditions":[{"type":"Ready","status":%q}]}}`, phase, ready))
}

func (w *world) evict(pod, fields string) *httptest.ResponseRecorder {
	w.Helper()
	return w.do("POST", podPath+"/"+pod+"/eviction", jsonType, `{"apiVersion":"policy/v1","kind":"Eviction"`+fields+`}`)
}

// TestEvictionAsksTheBudget evicts one pod under each state of its budget.
func TestEvictionAsksTheBudget(t *testing.T) {
	const (
		refused = "Cannot evict pod as it would violate the pod's disruption budget."
		ready   = `"observedGeneration":1,"expectedPods":3,`
		full    = `{` + ready + `"desiredHealthy":2,"currentHealthy":3,"disruptionsAllowed":1}`
		low     = `{` + ready + `"desiredHealthy":2,"currentHealthy":1,"disruptionsAllowed":0}`
		exact   = `{` + ready + `"desiredHealthy":2,"currentHealthy":2,"disruptionsAllowed":0}`
		condAt  = `"status":"False","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`
		failed  = `{` + ready + `"desiredHealthy":2,"currentHealthy":1,"disruptionsAllowed":0,"conditions":[{"type":"DisruptionAllowed","reason":"SyncFailed","message":"no scale",` + condAt
		because = `{` + ready + `"desiredHealthy":2,"currentHealthy":3,"disruptionsAllowed":0,"conditions":[{"type":"DisruptionAllowed","reason":"Maintenance","message":"not now",` + condAt
	)
	for name, row := range map[string]struct {
		spec, status string // of the budget; no status: there is no budget
		phase, ready string
		eviction     string
		code         int
		cause        string
		spent        bool
	}{
		"NoBudget":         {phase: "Running", ready: "True", code: 201},
		"Allowed":          {status: full, phase: "Running", ready: "True", code: 201, spent: true},
		"Exhausted":        {status: exact, phase: "Running", ready: "True", code: 429, cause: "The disruption budget b needs 2 healthy pods and has 2 currently"},
		"NotObserved":      {status: `{"observedGeneration":0,"disruptionsAllowed":1}`, phase: "Running", ready: "True", code: 429, cause: "The disruption budget b is still being processed by the server."},
		"SyncFailed":       {status: failed, phase: "Running", ready: "True", code: 429, cause: "The disruption budget b does not allow evicting pods currently because it failed sync: no scale"},
		"OtherReason":      {status: because, phase: "Running", ready: "True", code: 429, cause: "The disruption budget b does not allow evicting pods currently (Maintenance): not now"},
		"Pending":          {status: exact, phase: "Pending", ready: "False", code: 201},
		"Succeeded":        {status: exact, phase: "Succeeded", ready: "False", code: 201},
		"Unready":          {status: exact, phase: "Running", ready: "False", code: 201},
		"UnreadyLow":       {status: low, phase: "Running", ready: "False", code: 429, cause: "The disruption budget b needs 2 healthy pods and has 1 currently"},
		"UnreadyIfHealthy": {spec: `,"unhealthyPodEvictionPolicy":"IfHealthyBudget"`, status: low, phase: "Running", ready: "False", code: 429, cause: "The disruption budget b needs 2 healthy pods and has 1 currently"},
		"UnreadyAlways":    {spec: `,"unhealthyPodEvictionPolicy":"AlwaysAllow"`, status: low, phase: "Running", ready: "False", code: 201},
		"ReadyAlways":      {spec: `,"unhealthyPodEvictionPolicy":"AlwaysAllow"`, status: exact, phase: "Running", ready: "True", code: 429, cause: "The disruption budget b needs 2 healthy pods and has 2 currently"},
		"OtherUID":         {status: full, phase: "Running", ready: "True", eviction: `,"deleteOptions":{"preconditions":{"uid":"other"}}`, code: 409},
		"OtherVersion":     {status: exact, phase: "Pending", ready: "False", eviction: `,"deleteOptions":{"preconditions":{"resourceVersion":"1"}}`, code: 409},
		"OtherName":        {status: full, phase: "Running", ready: "True", eviction: `,"metadata":{"name":"other"}`, code: 400},
		"UnknownDryRun":    {status: full, phase: "Running", ready: "True", eviction: `,"deleteOptions":{"dryRun":["Some"]}`, code: 422},
		"DryRun":           {status: full, phase: "Running", ready: "True", eviction: `,"deleteOptions":{"dryRun":["All"]}`, code: 201},
		"DryRunIsRefused":  {status: exact, phase: "Running", ready: "True", eviction: `,"deleteOptions":{"dryRun":["All"]}`, code: 429, cause: "The disruption budget b needs 2 healthy pods and has 2 currently"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			withAccount(w)
			if row.status != "" {
				w.budget("b", row.spec, row.status)
			}
			w.webPod("p", row.phase, row.ready)
			rec := w.evict("p", row.eviction)
			if rec.Code != row.code {
				t.Fatalf("%d: %s", rec.Code, rec.Body)
			}
			status := decoded[metav1.Status](w, rec)
			if row.code == 429 {
				want := []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: row.cause}}
				if diff := cmp.Diff(want, status.Details.Causes); diff != "" || status.Message != refused {
					t.Errorf("%s (-want +got):\n%s", status.Message, diff)
				}
				if after := rec.Header().Get("Retry-After"); (after == "10") != (name == "NotObserved") {
					t.Errorf("Retry-After: %q", after)
				}
			}
			w.checkEviction(row.code == 201 && !strings.HasPrefix(name, "DryRun"), row.status != "", row.spent)
		})
	}
}

func decoded[T any](w *world, rec *httptest.ResponseRecorder) *T {
	w.Helper()
	out := new(T)
	if err := json.Unmarshal(rec.Body.Bytes(), out); err != nil {
		w.Fatal(err)
	}
	return out
}

// checkEviction checks what is left of pod p, and of budget b if there is one.
func (w *world) checkEviction(evicted, budget, spent bool) {
	w.Helper()
	rec := w.do("GET", podPath+"/p", "", "")
	if rec.Code == 200 {
		p := decoded[corev1.Pod](w, rec)
		marked := conditions.IsTrue(p.Status.Conditions, corev1.DisruptionTarget)
		if (p.DeletionTimestamp != nil) != evicted || marked != evicted {
			w.Errorf("deleted %v, marked %v, want %v", p.DeletionTimestamp, marked, evicted)
		}
	} else if !evicted {
		w.Errorf("the pod is gone: %d", rec.Code)
	}
	if !budget {
		return
	}
	b := must[policyv1.PodDisruptionBudget](w, 200, "GET", budgetPath+"/b", "", "")
	if _, recorded := b.Status.DisruptedPods["p"]; recorded != spent {
		w.Errorf("the status of the budget is %+v", b.Status)
	}
	if c := meta.FindStatusCondition(b.Status.Conditions, policyv1.DisruptionAllowedCondition); spent && (c == nil || c.Reason != policyv1.InsufficientPodsReason || b.Status.DisruptionsAllowed != 0) {
		w.Errorf("after the last disruption the status of the budget is %+v", b.Status)
	}
}

// Admission is asked about the eviction. What refuses deletions of pods does not
// refuse their eviction.
func TestAdmissionOfEvictions(t *testing.T) {
	rules := func(operation, resource string) string {
		return fmt.Sprintf(`{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":[%q],"resources":[%q]}]},"validations":[{"expression":"false"}]}`, operation, resource)
	}
	for name, row := range map[string]struct {
		policy string
		code   int
	}{
		"Deletions": {rules("DELETE", "pods"), 201},
		"Evictions": {rules("CREATE", "pods/eviction"), 422},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			withAccount(w)
			w.webPod("p", "Running", "True")
			w.policy("Validating", "p", row.policy, denies)
			if rec := w.evict("p", ""); rec.Code != row.code {
				t.Errorf("%d: %s", rec.Code, rec.Body)
			}
			w.checkEviction(row.code == 201, false, false)
		})
	}
}

// A pod that two budgets select cannot be evicted.
func TestEvictionUnderTwoBudgets(t *testing.T) {
	w := start(t)
	withAccount(w)
	for _, name := range []string{"a", "b"} {
		w.budget(name, "", `{"observedGeneration":1,"disruptionsAllowed":1}`)
	}
	w.webPod("p", "Running", "True")
	rec := w.evict("p", "")
	if want := "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."; rec.Code != 500 || !strings.Contains(rec.Body.String(), want) {
		t.Errorf("%d: %s", rec.Code, rec.Body)
	}
}

// An empty selector selects all pods of the namespace, and no selector selects none.
func TestSelectorsOfBudgets(t *testing.T) {
	for selector, code := range map[string]int{`{"selector":{}}`: 429, `{}`: 201} {
		w := start(t)
		withAccount(w)
		must[policyv1.PodDisruptionBudget](w, 201, "POST", budgetPath, jsonType, `{"metadata":{"name":"b"},"spec":`+selector+`}`)
		w.webPod("p", "Running", "True")
		if rec := w.evict("p", ""); rec.Code != code {
			t.Errorf("%s: %d: %s", selector, rec.Code, rec.Body)
		}
	}
}

// Of 50 clients that evict one pod each at the same time, a budget lets as many succeed as it
// allows, on one server and on two.
func TestEvictionsAreExactUnderConcurrency(t *testing.T) {
	for _, servers := range []int{1, 2} {
		t.Run(fmt.Sprintf("%dServers", servers), func(t *testing.T) {
			first := start(t)
			worlds := []*world{first}
			for range servers - 1 {
				worlds = append(worlds, start(t, sharing(first)))
			}
			withAccount(first)
			first.budget("b", "", `{"observedGeneration":1,"expectedPods":50,"desiredHealthy":49,"currentHealthy":50,"disruptionsAllowed":1}`)
			for i := range 50 {
				first.webPod(fmt.Sprintf("p%d", i), "Running", "True")
			}
			var evicted atomic.Int64
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					rec := worlds[i%servers].evict(fmt.Sprintf("p%d", i), "")
					switch {
					case rec.Code == 201:
						evicted.Add(1)
					case rec.Code != 429:
						t.Errorf("%d: %s", rec.Code, rec.Body)
					}
				})
			}
			wg.Wait()
			b := must[policyv1.PodDisruptionBudget](first, 200, "GET", budgetPath+"/b", "", "")
			if n := evicted.Load(); n != 1 || len(b.Status.DisruptedPods) != 1 || b.Status.DisruptionsAllowed != 0 {
				t.Errorf("%d pods evicted, want 1; the budget has %+v", n, b.Status)
			}
		})
	}
}
