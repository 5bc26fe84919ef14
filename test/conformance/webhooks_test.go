package conformance

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/remotecommand"
)

// webhookRows returns the rows about admission webhooks. The webhooks run in the
// test's process, where the API server of the cluster reaches them by URL.
func webhookRows() []testcase {
	return []testcase{
		{id: "webhook-deny-attach", test: denyAttach},
		{id: "webhook-deny-pod-configmap", test: denyPodAndConfigMap},
		{id: "webhook-discovery-docs", test: webhookDiscovery},
		{id: "webhook-fail-closed", test: failClosed},
		{id: "webhook-matchconditions-skip-name", test: skipByCondition},
		{id: "webhook-mutate-pod-then-default", test: mutatePod},
		{id: "webhook-mutating-invalid-matchconditions", test: invalidConditions(true)},
		{id: "webhook-mutating-list-deletecollection", test: webhookCollections(true)},
		{id: "webhook-mutating-matchconditions-crud", test: conditionsAreStored(true)},
		{id: "webhook-mutating-ordered-configmap", test: mutateInOrder},
		{id: "webhook-mutating-rules-update", test: rulesAreUpdated(true)},
		{id: "webhook-not-applied-to-webhook-configs", test: webhooksSpareWebhooks},
		{id: "webhook-timeout-failurepolicy", test: webhookTimeouts},
		{id: "webhook-validating-invalid-matchconditions", test: invalidConditions(false)},
		{id: "webhook-validating-list-deletecollection", test: webhookCollections(false)},
		{id: "webhook-validating-matchconditions-crud", test: conditionsAreStored(false)},
		{id: "webhook-validating-rules-update", test: rulesAreUpdated(false)},
	}
}

// webhookServer serves a webhook at a path of its own for each answer.
func webhookServer(t *testing.T, answers map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	for path, answer := range answers {
		mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil || review.Request == nil {
				http.Error(w, "no review", http.StatusBadRequest)
				return
			}
			review.Response = answer(review.Request)
			review.Response.UID, review.Request = review.Request.UID, nil
			_ = json.NewEncoder(w).Encode(&review)
		})
	}
	s := httptest.NewTLSServer(mux)
	t.Cleanup(s.Close)
	return s
}

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

func denied(why string) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: why}}
}

func patchedBy(patch string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		as := admissionv1.PatchTypeJSONPatch
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: &as}
	}
}

// webhookAt describes a webhook of the server for objects of the namespace.
func webhookAt(s *httptest.Server, path, namespace, group, resource string, operations ...registration.OperationType) registration.MutatingWebhook {
	none, url := registration.SideEffectClassNone, s.URL+path
	return registration.MutatingWebhook{
		Name: strings.Trim(path, "/") + ".conformance.test", SideEffects: &none, AdmissionReviewVersions: []string{"v1", "v1beta1"},
		ClientConfig: registration.WebhookClientConfig{
			URL: &url, CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": namespace}},
		Rules: []registration.RuleWithOperations{{
			Operations: operations, Rule: registration.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{resource}},
		}},
	}
}

// validatingAt is the validating webhook that is described as a mutating one.
func validatingAt(w registration.MutatingWebhook) registration.ValidatingWebhook {
	return registration.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, NamespaceSelector: w.NamespaceSelector,
		SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds, AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
	}
}

// configure creates a configuration that lasts as long as the test.
func configure(t *testing.T, ctx context.Context, mutating bool, name string, labels map[string]string, hooks ...registration.MutatingWebhook) {
	t.Helper()
	check(t, tryConfigure(ctx, mutating, name, labels, hooks...))
	t.Cleanup(func() { _ = deleteConfiguration(context.Background(), mutating, name) })
}

func tryConfigure(ctx context.Context, mutating bool, name string, labels map[string]string, hooks ...registration.MutatingWebhook) error {
	api, meta := admin.AdmissionregistrationV1(), metav1.ObjectMeta{Name: name, Labels: labels}
	if mutating {
		_, err := api.MutatingWebhookConfigurations().Create(ctx, &registration.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: hooks}, metav1.CreateOptions{})
		return err
	}
	c := &registration.ValidatingWebhookConfiguration{ObjectMeta: meta}
	for _, h := range hooks {
		c.Webhooks = append(c.Webhooks, validatingAt(h))
	}
	_, err := api.ValidatingWebhookConfigurations().Create(ctx, c, metav1.CreateOptions{})
	return err
}

func deleteConfiguration(ctx context.Context, mutating bool, name string) error {
	if mutating {
		return admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
	}
	return admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, name, metav1.DeleteOptions{})
}

// makeMap creates a ConfigMap with the data mutation-start=yes.
func makeMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"mutation-start": "yes"}}
	return admin.CoreV1().ConfigMaps(namespace).Create(ctx, cm, metav1.CreateOptions{})
}

// deniedWith checks that a webhook has denied the request.
func deniedWith(t *testing.T, what, want string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "denied") || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want a denial with %q", what, err, want)
	}
}

func denyAttach(t *testing.T, ctx context.Context, namespace string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/attach": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if r.Kind.Kind != "PodAttachOptions" {
				return allowed()
			}
			return denied("attaching to pod is not allowed")
		},
	})
	pod := run(t, ctx, sleeper(namespace, "attached"))
	configure(t, ctx, false, namespace, nil, webhookAt(s, "/attach", namespace, "", "pods/attach", registration.Connect))
	req := admin.CoreV1().RESTClient().Post().Resource("pods").Namespace(namespace).Name(pod.Name).SubResource("attach").Param("stdout", "true")
	e, err := remotecommand.NewSPDYExecutor(config, "POST", req.URL())
	check(t, err)
	deniedWith(t, "attach", "attaching to pod is not allowed", e.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &strings.Builder{}}))
}

func denyPodAndConfigMap(t *testing.T, ctx context.Context, ns string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/deny": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if strings.Contains(string(r.Object.Raw), "webhook-disallow") {
				return denied("the object contains unwanted key, name, or label")
			}
			if strings.Contains(string(r.Object.Raw), "wait-forever") {
				time.Sleep(3 * time.Second) // the webhook's timeout is shorter
			}
			return allowed()
		},
	})
	hook := webhookAt(s, "/deny", ns, "", "*", registration.Create, registration.Update)
	second := int32(1)
	hook.TimeoutSeconds = &second
	configure(t, ctx, false, ns, nil, hook)
	pods, maps := admin.CoreV1().Pods(ns), admin.CoreV1().ConfigMaps(ns)
	bad := sleeper(ns, "disallowed")
	bad.Labels = map[string]string{"webhook-disallow": "true"}
	_, err := pods.Create(ctx, bad, metav1.CreateOptions{})
	deniedWith(t, "create a pod", "unwanted key", err)
	_, err = pods.Create(ctx, sleeper(ns, "wait-forever"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), "webhook") || !strings.Contains(err.Error(), "deadline") && !strings.Contains(err.Error(), "timeout") {
		t.Errorf("a webhook that hangs: %v", err)
	}
	_, err = pods.Get(ctx, "wait-forever", metav1.GetOptions{})
	notFound(t, "the pod of the hanging webhook", err)
	bare := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Data: map[string]string{"webhook-disallow": "x"}}
	_, err = maps.Create(ctx, bare, metav1.CreateOptions{})
	deniedWith(t, "create a ConfigMap", "unwanted key", err)
	cm, err := makeMap(ctx, ns, "good")
	check(t, err)
	cm.Data["webhook-disallow"] = "x"
	_, err = maps.Update(ctx, cm, metav1.UpdateOptions{})
	deniedWith(t, "PUT", "unwanted key", err)
	_, err = maps.Patch(ctx, "good", types.MergePatchType, []byte(`{"data":{"webhook-disallow":"x"}}`), metav1.PatchOptions{})
	deniedWith(t, "PATCH", "unwanted key", err)
	other := namespace(t, ctx, "exempt")
	_, err = admin.CoreV1().ConfigMaps(other).Create(ctx, bare, metav1.CreateOptions{})
	check(t, err)
}

func webhookDiscovery(t *testing.T, ctx context.Context, _ string) {
	const group = "admissionregistration.k8s.io"
	groups, err := admin.Discovery().ServerGroups()
	check(t, err)
	alone := &metav1.APIGroup{}
	text, err := admin.Discovery().RESTClient().Get().AbsPath("/apis/" + group).DoRaw(ctx)
	check(t, err)
	check(t, json.Unmarshal(text, alone))
	for where, g := range map[string]metav1.APIGroup{"/apis": groupNamed(groups, group), "/apis/" + group: *alone} {
		v1 := metav1.GroupVersionForDiscovery{GroupVersion: group + "/v1", Version: "v1"}
		if g.Name != group || !slices.Contains(g.Versions, v1) {
			t.Errorf("%s has %+v", where, g)
		}
	}
	inDiscovery(t, group+"/v1", "mutatingwebhookconfigurations")
	inDiscovery(t, group+"/v1", "validatingwebhookconfigurations")
}

func groupNamed(list *metav1.APIGroupList, name string) metav1.APIGroup {
	for _, g := range list.Groups {
		if g.Name == name {
			return g
		}
	}
	return metav1.APIGroup{}
}

func failClosed(t *testing.T, ctx context.Context, namespace string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/closed": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return allowed() },
	})
	hook := webhookAt(s, "/closed", namespace, "", "configmaps", registration.Create)
	fail := registration.Fail
	hook.ClientConfig.CABundle, hook.FailurePolicy = nil, &fail
	configure(t, ctx, false, namespace, nil, hook)
	if _, err := makeMap(ctx, namespace, "foo"); err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a webhook that cannot be verified: %v", err)
	}
}

func skipByCondition(t *testing.T, ctx context.Context, namespace string) {
	s := mutators(t)
	hook := webhookAt(s, "/first", namespace, "", "configmaps", registration.Create)
	hook.MatchConditions = []registration.MatchCondition{{Name: "skip-me", Expression: "object.metadata.name != 'skip-me'"}}
	configure(t, ctx, true, namespace, nil, hook)
	for name, want := range map[string]string{"skip-me": "", "mutate-me": "yes"} {
		cm, err := makeMap(ctx, namespace, name)
		check(t, err)
		if cm.Data["mutation-stage-1"] != want {
			t.Errorf("%s has %v", name, cm.Data)
		}
	}
}

// mutators serves two mutating webhooks, of which the second adds its key only
// after the first.
func mutators(t *testing.T) *httptest.Server {
	return webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/first": patchedBy(`[{"op":"add","path":"/data/mutation-stage-1","value":"yes"}]`),
		"/second": func(r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			if !strings.Contains(string(r.Object.Raw), "mutation-stage-1") {
				return allowed()
			}
			return patchedBy(`[{"op":"add","path":"/data/mutation-stage-2","value":"yes"}]`)(r)
		},
		"/label": patchedBy(`[{"op":"add","path":"/metadata/labels","value":{"mutated":"yes"}}]`),
		"/deny":  func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return denied("denied by /deny") },
		"/pod": patchedBy(`[{"op":"add","path":"/spec/initContainers","value":[` +
			`{"name":"webhook-added-init-container","image":"webhook-added-image","resources":{}}]}]`),
	})
}

func mutateInOrder(t *testing.T, ctx context.Context, namespace string) {
	s := mutators(t)
	configure(t, ctx, true, namespace, nil, webhookAt(s, "/first", namespace, "", "configmaps", registration.Create),
		webhookAt(s, "/second", namespace, "", "configmaps", registration.Create))
	cm, err := makeMap(ctx, namespace, "ordered")
	check(t, err)
	if cm.Data["mutation-stage-1"] != "yes" || cm.Data["mutation-stage-2"] != "yes" || len(cm.Data) != 3 {
		t.Errorf("the data is %v", cm.Data)
	}
}

func mutatePod(t *testing.T, ctx context.Context, namespace string) {
	configure(t, ctx, true, namespace, nil, webhookAt(mutators(t), "/pod", namespace, "", "pods", registration.Create))
	pod, err := admin.CoreV1().Pods(namespace).Create(ctx, sleeper(namespace, "mutated"), metav1.CreateOptions{})
	check(t, err)
	if c := pod.Spec.InitContainers; len(c) != 1 || c[0].Name != "webhook-added-init-container" || c[0].TerminationMessagePolicy != corev1.TerminationMessageReadFile {
		t.Errorf("the init containers are %+v", c)
	}
}

func invalidConditions(mutating bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		hook := webhookAt(mutators(t), "/first", namespace, "", "configmaps", registration.Create)
		hook.MatchConditions = []registration.MatchCondition{{Name: "bad", Expression: "... [] bad expression"}}
		err := tryConfigure(ctx, mutating, namespace, nil, hook)
		if err == nil || !strings.Contains(err.Error(), "compilation failed") {
			t.Errorf("got %v", err)
		}
	}
}

// acts returns nil once the webhooks of a test act on new ConfigMaps (or no
// longer do): mutating ones by /first, validating ones by /deny.
func acts(t *testing.T, ctx context.Context, mutating, want bool, namespace string) {
	t.Helper()
	cm, err := admin.CoreV1().ConfigMaps(namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "new-"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if mutating {
		check(t, err)
		if _, got := cm.Data["mutation-stage-1"]; got != want {
			t.Errorf("the data is %v, want it mutated: %v", cm.Data, want)
		}
		return
	}
	if want {
		deniedWith(t, "create", "denied by /deny", err)
	} else {
		check(t, err)
	}
}

func pathOf(mutating bool) string {
	if mutating {
		return "/first"
	}
	return "/deny"
}

func webhookCollections(mutating bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		s := mutators(t)
		labels := map[string]string{"conformance": namespace}
		for i := range 10 {
			configure(t, ctx, mutating, fmt.Sprintf("%s-%d", namespace, i), labels, webhookAt(s, pathOf(mutating), namespace, "", "configmaps", registration.Create))
		}
		ours := metav1.ListOptions{LabelSelector: "conformance=" + namespace}
		api := admin.AdmissionregistrationV1()
		n := 0
		if mutating {
			list, err := api.MutatingWebhookConfigurations().List(ctx, ours)
			check(t, err)
			n = len(list.Items)
		} else {
			list, err := api.ValidatingWebhookConfigurations().List(ctx, ours)
			check(t, err)
			n = len(list.Items)
		}
		if n != 10 {
			t.Errorf("the list has %d configurations", n)
		}
		acts(t, ctx, mutating, true, namespace)
		if mutating {
			check(t, api.MutatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
		} else {
			check(t, api.ValidatingWebhookConfigurations().DeleteCollection(ctx, metav1.DeleteOptions{}, ours))
		}
		acts(t, ctx, mutating, false, namespace)
	}
}

func rulesAreUpdated(mutating bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		configure(t, ctx, mutating, namespace, nil, webhookAt(mutators(t), pathOf(mutating), namespace, "", "configmaps", registration.Create))
		acts(t, ctx, mutating, true, namespace)
		api := admin.AdmissionregistrationV1()
		update := []registration.OperationType{registration.Update}
		const back = `[{"op":"replace","path":"/webhooks/0/rules/0/operations","value":["CREATE"]}]`
		if mutating {
			c, err := api.MutatingWebhookConfigurations().Get(ctx, namespace, metav1.GetOptions{})
			check(t, err)
			c.Webhooks[0].Rules[0].Operations = update
			_, err = api.MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
			check(t, err)
		} else {
			c, err := api.ValidatingWebhookConfigurations().Get(ctx, namespace, metav1.GetOptions{})
			check(t, err)
			c.Webhooks[0].Rules[0].Operations = update
			_, err = api.ValidatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
			check(t, err)
		}
		acts(t, ctx, mutating, false, namespace)
		var err error
		if mutating {
			_, err = api.MutatingWebhookConfigurations().Patch(ctx, namespace, types.JSONPatchType, []byte(back), metav1.PatchOptions{})
		} else {
			_, err = api.ValidatingWebhookConfigurations().Patch(ctx, namespace, types.JSONPatchType, []byte(back), metav1.PatchOptions{})
		}
		check(t, err)
		acts(t, ctx, mutating, true, namespace)
	}
}

func conditionsAreStored(mutating bool) func(*testing.T, context.Context, string) {
	return func(t *testing.T, ctx context.Context, namespace string) {
		hook := webhookAt(mutators(t), pathOf(mutating), namespace, "", "configmaps", registration.Create)
		first := []registration.MatchCondition{{Name: "leases", Expression: "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"},
			{Name: "nodes", Expression: "!('system:nodes' in request.userInfo.groups)"}}
		second := append(slices.Clone(first), registration.MatchCondition{Name: "rbac", Expression: "request.resource.group != 'rbac.authorization.k8s.io'"})
		hook.MatchConditions = first
		configure(t, ctx, mutating, namespace, nil, hook)
		stored := func(want []registration.MatchCondition, change []registration.MatchCondition) {
			t.Helper()
			api := admin.AdmissionregistrationV1()
			var got []registration.MatchCondition
			if mutating {
				c, err := api.MutatingWebhookConfigurations().Get(ctx, namespace, metav1.GetOptions{})
				check(t, err)
				if got = c.Webhooks[0].MatchConditions; change != nil {
					c.Webhooks[0].MatchConditions = change
					_, err = api.MutatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
					check(t, err)
				}
			} else {
				c, err := api.ValidatingWebhookConfigurations().Get(ctx, namespace, metav1.GetOptions{})
				check(t, err)
				if got = c.Webhooks[0].MatchConditions; change != nil {
					c.Webhooks[0].MatchConditions = change
					_, err = api.ValidatingWebhookConfigurations().Update(ctx, c, metav1.UpdateOptions{})
					check(t, err)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("the match conditions are %+v", got)
			}
		}
		stored(first, second)
		stored(second, nil)
	}
}

func webhooksSpareWebhooks(t *testing.T, ctx context.Context, namespace string) {
	s := mutators(t)
	everything := func(path string) registration.MutatingWebhook {
		hook := webhookAt(s, path, namespace, "admissionregistration.k8s.io", "*", registration.OperationAll)
		hook.NamespaceSelector = nil
		return hook
	}
	configure(t, ctx, false, namespace+"-deny", nil, everything("/deny"))
	configure(t, ctx, true, namespace+"-label", nil, everything("/label"))
	for _, mutating := range []bool{true, false} {
		name := namespace + "-dummy"
		configure(t, ctx, mutating, name, nil, webhookAt(s, "/first", namespace, "", "invalid", registration.Create))
		var labels map[string]string
		if mutating {
			c, err := admin.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			check(t, err)
			labels = c.Labels
		} else {
			c, err := admin.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
			check(t, err)
			labels = c.Labels
		}
		if len(labels) > 0 {
			t.Errorf("a configuration was mutated: %v", labels)
		}
		check(t, deleteConfiguration(ctx, mutating, name))
	}
}

func webhookTimeouts(t *testing.T, ctx context.Context, namespace string) {
	s := webhookServer(t, map[string]func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse{
		"/slow": func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			time.Sleep(5 * time.Second) // what the row demands
			return allowed()
		},
	})
	for i, row := range []struct {
		timeout int32 // 0: the default
		policy  registration.FailurePolicyType
		fails   bool
	}{{1, registration.Fail, true}, {1, registration.Ignore, false}, {10, registration.Fail, false}, {0, registration.Fail, false}} {
		hook := webhookAt(s, "/slow", namespace, "", "configmaps", registration.Create)
		hook.FailurePolicy = &row.policy
		if row.timeout > 0 {
			hook.TimeoutSeconds = &row.timeout
		}
		name := fmt.Sprintf("%s-%d", namespace, i)
		configure(t, ctx, false, name, nil, hook)
		_, err := makeMap(ctx, namespace, fmt.Sprintf("slow-%d", i))
		if row.fails {
			if err == nil || !strings.Contains(err.Error(), "timeout") && !strings.Contains(err.Error(), "deadline") {
				t.Errorf("with timeout %d: %v", row.timeout, err)
			}
		} else {
			check(t, err)
		}
		check(t, deleteConfiguration(ctx, false, name))
	}
}
