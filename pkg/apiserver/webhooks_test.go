package apiserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	registration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/scheme"
)

// hookServer is a webhook server over HTTPS that keeps the requests.
type hookServer struct {
	*httptest.Server
	mu   sync.Mutex
	seen []admissionv1.AdmissionRequest
}

// respond answers a review; nil allows the request.
type respond func(w http.ResponseWriter, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse

func serveHook(t testing.TB, f respond) *hookServer {
	h := &hookServer{}
	h.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var review admissionv1.AdmissionReview
		if err := json.Unmarshal(body, &review); err != nil || review.Request == nil {
			t.Errorf("the webhook got %s", body)
			return
		}
		h.mu.Lock()
		h.seen = append(h.seen, *review.Request)
		h.mu.Unlock()
		resp := f(w, review.Request)
		if resp == nil {
			return
		}
		if resp.UID == "" {
			resp.UID = review.Request.UID
		}
		review.Request, review.Response = nil, resp
		_ = json.NewEncoder(w).Encode(review)
	}))
	h.Config.ErrorLog = nil
	t.Cleanup(h.Close)
	return h
}

// requests returns the requests so far.
func (h *hookServer) requests() []admissionv1.AdmissionRequest {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.seen)
}

func (h *hookServer) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// hook describes a webhook at the server, for ConfigMaps unless change says
// otherwise.
func (h *hookServer) hook(name string, change ...func(*registration.MutatingWebhook)) registration.MutatingWebhook {
	none := registration.SideEffectClassNone
	w := registration.MutatingWebhook{
		Name: name + ".test.io", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
		ClientConfig: registration.WebhookClientConfig{URL: &h.URL, CABundle: h.ca()},
		Rules: []registration.RuleWithOperations{{
			Operations: []registration.OperationType{"*"}, Rule: registration.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		}},
	}
	for _, f := range change {
		f(&w)
	}
	return w
}

const registrationPath = "/apis/admissionregistration.k8s.io/v1/"

// register creates a configuration; as is "mutating" or "validating".
func (w *world) register(as, name string, hooks ...registration.MutatingWebhook) {
	w.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": strings.ToUpper(as[:1]) + as[1:] + "WebhookConfiguration",
		"metadata": map[string]any{"name": name}, "webhooks": hooks,
	})
	if err != nil {
		w.Fatal(err)
	}
	must[metav1.PartialObjectMetadata](w, 201, "POST", registrationPath+as+"webhookconfigurations", scheme.JSON, string(text))
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func allow() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

func patched(text string) *admissionv1.AdmissionResponse {
	as := admissionv1.PatchTypeJSONPatch
	return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(text), PatchType: &as}
}

func TestWebhookDenies(t *testing.T) {
	w := start(t)
	h := serveHook(t, func(_ http.ResponseWriter, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		resp := &admissionv1.AdmissionResponse{Allowed: !strings.HasPrefix(r.Name, "bad"), Warnings: []string{"looked at " + r.Name}}
		if r.Name == "bad-why" {
			resp.Result = &metav1.Status{Code: 418, Message: "no such thing", Reason: "Teapot"}
		}
		return resp
	})
	w.register("validating", "deny", h.hook("deny"))
	rec := w.do("POST", configMaps, scheme.JSON, configMap("bad"))
	if status := statusOf(t, rec); rec.Code != 400 || status.Message != `admission webhook "deny.test.io" denied the request without explanation` || status.Status != "Failure" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = w.do("POST", configMaps, scheme.JSON, configMap("bad-why"))
	if status := statusOf(t, rec); rec.Code != 418 || status.Message != `admission webhook "deny.test.io" denied the request: no such thing` || status.Reason != "Teapot" {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	rec = w.do("POST", configMaps, scheme.JSON, configMap("good"))
	if rec.Code != 201 || rec.Header().Get("Warning") != `299 - "looked at good"` {
		t.Errorf("%d %s %v", rec.Code, rec.Body, rec.Header())
	}
	must[corev1.ConfigMap](w, 200, "DELETE", configMaps+"/good", "", "")
	last := h.requests()[len(h.requests())-1]
	if last.Operation != "DELETE" || last.Object.Raw != nil || !strings.Contains(string(last.OldObject.Raw), `"kind":"ConfigMap"`) || last.UserInfo.Username != "admin" ||
		!strings.Contains(string(last.Options.Raw), "DeleteOptions") || last.Resource.Resource != "configmaps" || last.Namespace != "default" || last.Name != "good" {
		t.Errorf("DELETE was described as %+v", last)
	}
	// Webhook configurations pass no webhook.
	must[metav1.Status](w, 200, "DELETE", registrationPath+"validatingwebhookconfigurations/deny", "", "")
	must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, configMap("bad"))
}

func statusOf(t *testing.T, rec *httptest.ResponseRecorder) *metav1.Status {
	t.Helper()
	status := &metav1.Status{}
	if err := json.Unmarshal(rec.Body.Bytes(), status); err != nil {
		t.Fatal(err)
	}
	return status
}

// Mutating webhooks run in order; each sees what the former have changed. The
// result is defaulted and validated.
func TestWebhooksMutateInOrder(t *testing.T) {
	w := start(t)
	h := serveHook(t, func(_ http.ResponseWriter, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		if strings.Contains(string(r.Object.Raw), "one") {
			return patched(`[{"op":"add","path":"/data/two","value":"2"}]`)
		}
		return patched(`[{"op":"add","path":"/data/one","value":"1"}]`)
	})
	w.register("mutating", "a", h.hook("first"), h.hook("second"))
	cm := must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, configMap("x"))
	if len(cm.Data) != 3 || cm.Data["one"] != "1" || cm.Data["two"] != "2" {
		t.Errorf("data %v", cm.Data)
	}
	// A dry run asks the webhooks once each, and says so.
	before := len(h.requests())
	must[corev1.ConfigMap](w, 200, "PUT", configMaps+"/x?dryRun=All", scheme.JSON, configMap("x"))
	if got := h.requests()[before:]; len(got) != 2 || !*got[0].DryRun {
		t.Errorf("a dry run asked %d times", len(got))
	}
	pods := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"add","path":"/spec/initContainers","value":[{"name":"added","image":"x"}]}]`)
	})
	w.register("mutating", "pods", pods.hook("pods", func(w *registration.MutatingWebhook) { w.Rules[0].Resources = []string{"pods"} }))
	must[corev1.ServiceAccount](w, 201, "POST", "/api/v1/namespaces/default/serviceaccounts", scheme.JSON, `{"metadata":{"name":"default"}}`)
	pod := must[corev1.Pod](w, 201, "POST", "/api/v1/namespaces/default/pods", scheme.JSON, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	if c := pod.Spec.InitContainers; len(c) != 1 || c[0].TerminationMessagePolicy != corev1.TerminationMessageReadFile || len(c[0].VolumeMounts) != 1 {
		t.Errorf("init containers %+v: want defaults, and the token's volume of the second round", c)
	}
}

// A webhook that cannot be asked fails the request, or not, as its failure
// policy says.
func TestWebhookFails(t *testing.T) {
	hang := make(chan struct{})
	t.Cleanup(func() { close(hang) })
	for name, row := range map[string]struct {
		answer respond
		want   string // part of the message
	}{
		"hangs": {func(w http.ResponseWriter, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			select {
			case <-hang:
			case <-time.After(5 * time.Second):
			}
			return nil
		}, "context deadline exceeded"},
		"garbage": {func(w http.ResponseWriter, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			fmt.Fprint(w, "{{{")
			return nil
		}, "failed to call webhook: decode the response: invalid character"},
		"nothing": {func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return nil }, "decode the response"},
		"no response": {func(w http.ResponseWriter, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			fmt.Fprint(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)
			return nil
		}, "received invalid webhook response: webhook response was absent"},
		"too much": {func(w http.ResponseWriter, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			chunk := []byte(strings.Repeat("x", 1<<20))
			for range 20 {
				if _, err := w.Write(chunk); err != nil {
					break
				}
			}
			return nil
		}, "the response is longer than 8388608 bytes"},
		"wrong uid": {func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{UID: "x", Allowed: true}
		}, `received invalid webhook response: expected response.uid=`},
		"error": {func(w http.ResponseWriter, _ *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			http.Error(w, "broken", 500)
			return nil
		}, `failed to call webhook: an error on the server`},
		"patch without type": {func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(`[]`)}
		}, "webhook returned response.patch but not response.patchType"},
		"bad patch": {func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return patched(`{"a":1}`)
		}, "received undecodable patch in webhook response"},
		"redirects": {func(w http.ResponseWriter, r *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			w.Header().Set("Location", "https://elsewhere.test")
			w.WriteHeader(302)
			return nil
		}, "sends elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			h := serveHook(t, row.answer)
			second, ignore := int32(1), registration.Ignore
			w.register("mutating", "fails", h.hook("closed", func(w *registration.MutatingWebhook) {
				w.TimeoutSeconds = &second
				w.ObjectSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"policy": "fail"}}
			}), h.hook("open", func(w *registration.MutatingWebhook) { w.TimeoutSeconds, w.FailurePolicy = &second, &ignore }))
			rec := w.do("POST", configMaps, scheme.JSON, `{"metadata":{"name":"x","labels":{"policy":"fail"}}}`)
			message := statusOf(t, rec).Message
			if rec.Code != 500 || !strings.HasPrefix(message, `Internal error occurred: failed calling webhook "closed.test.io": `) || !strings.Contains(message, row.want) {
				t.Errorf("%d %s", rec.Code, message)
			}
			must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, configMap("y"))
		})
	}
}

// A webhook that asks for it is called again when a later one has changed the
// object, once.
func TestWebhookIsReinvoked(t *testing.T) {
	w := start(t)
	needed := registration.IfNeededReinvocationPolicy
	first := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return allow()
	})
	never := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return allow()
	})
	last := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"add","path":"/data/new","value":"1"}]`)
	})
	w.register("mutating", "a", first.hook("first", func(w *registration.MutatingWebhook) { w.ReinvocationPolicy = &needed }), never.hook("never"),
		last.hook("last", func(w *registration.MutatingWebhook) { w.ReinvocationPolicy = &needed }))
	must[corev1.ConfigMap](w, 201, "POST", configMaps, scheme.JSON, configMap("x"))
	if a, b, c := len(first.requests()), len(never.requests()), len(last.requests()); a != 2 || b != 1 || c != 1 {
		t.Errorf("called %d, %d and %d times, want 2, 1 and 1", a, b, c)
	}
	if again := first.requests()[1]; !strings.Contains(string(again.Object.Raw), `"new":"1"`) {
		t.Errorf("the second call saw %s", again.Object.Raw)
	}
}

// A webhook for one version of a resource sees requests for the others, in its
// version.
func TestWebhookOfAnotherVersion(t *testing.T) {
	w := start(t)
	h := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return patched(`[{"op":"replace","path":"/note","value":"changed"}]`)
	})
	w.register("mutating", "events", h.hook("events", func(w *registration.MutatingWebhook) {
		w.Rules[0].APIGroups, w.Rules[0].Resources = []string{"events.k8s.io"}, []string{"events"}
	}))
	e := must[corev1.Event](w, 201, "POST", "/api/v1/namespaces/default/events", scheme.JSON,
		`{"metadata":{"name":"e","namespace":"default"},"involvedObject":{"kind":"Pod","namespace":"default","name":"p"},"reason":"r","message":"m","type":"Normal"}`)
	got := h.requests()
	if len(got) != 1 || got[0].Kind.Group != "events.k8s.io" || got[0].RequestKind.Group != "" || !strings.Contains(string(got[0].Object.Raw), `"note":"m"`) || e.Message != "changed" {
		t.Errorf("message %q, requests %+v", e.Message, got)
	}
}

// A webhook behind a Service is called at a ready endpoint, by the Service's
// name.
func TestWebhookBehindService(t *testing.T) {
	var dialed string
	h := serveHook(t, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	})
	w := start(t, func(c *apiserver.Config) {
		c.Admission.Webhooks.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed = address
			return (&net.Dialer{}).DialContext(ctx, network, h.Listener.Addr().String())
		}
	})
	must[corev1.Service](w, 201, "POST", "/api/v1/namespaces/default/services", scheme.JSON, `{"metadata":{"name":"hook"},"spec":{"ports":[{"name":"https","port":443,"targetPort":8443}]}}`)
	must[metav1.PartialObjectMetadata](w, 201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", scheme.JSON,
		`{"metadata":{"name":"hook","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4","ports":[{"name":"https","port":8443}],"endpoints":[{"addresses":["192.0.2.7"]}]}`)
	path := "/validate"
	w.register("validating", "service", h.hook("service", func(w *registration.MutatingWebhook) {
		w.ClientConfig.URL, w.ClientConfig.Service = nil, &registration.ServiceReference{Namespace: "default", Name: "hook", Path: &path}
	}))
	rec := w.do("POST", configMaps, scheme.JSON, configMap("x"))
	// The test server's certificate is not valid for the Service's name.
	if message := statusOf(t, rec).Message; dialed != "192.0.2.7:8443" || !strings.Contains(message, `Post "https://hook.default.svc:443/validate?timeout=10s"`) || !strings.Contains(message, "not hook.default.svc") {
		t.Errorf("dialed %q: %s", dialed, message)
	}
}

// BenchmarkCreateUnderHooks shows what admission costs without webhooks and policies, and
// with a webhook and a policy for other resources.
func BenchmarkCreateUnderHooks(b *testing.B) {
	for _, other := range []bool{false, true} {
		b.Run(fmt.Sprintf("others=%v", other), func(b *testing.B) {
			w := start(b)
			if other {
				h := serveHook(b, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					return allow()
				})
				w.register("validating", "other", h.hook("other", func(w *registration.MutatingWebhook) { w.Rules[0].Resources = []string{"secrets"} }))
				w.policy("Validating", "p", "{"+onDeployments+`,"validations":[{"expression":"true"}]}`, denies)
			}
			for i := 0; b.Loop(); i++ {
				w.do("POST", configMaps, scheme.JSON, configMap(fmt.Sprintf("x%d", i)))
			}
		})
	}
}

// BenchmarkAddedLatency shows what a webhook adds to a create beyond the time of its own
// answer, and what a policy adds. Creates alternate between three servers: without either,
// with a webhook, with a policy. The metrics are differences of medians.
func BenchmarkAddedLatency(b *testing.B) {
	plain, hooked, ruled := start(b), start(b), start(b)
	h := serveHook(b, func(http.ResponseWriter, *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return allow()
	})
	hooked.register("validating", "hook", h.hook("hook"))
	ruled.policy("Validating", "p", "{"+onConfigMaps+`,"variables":[{"name":"a","expression":"object.data.a"}],"validations":[{"expression":"variables.a.size() < 100"},{"expression":"object.metadata.name.startsWith('x')"}]}`, denies)
	took := make([][]time.Duration, 4)
	create := func(side int, w *world, i int) {
		began := time.Now()
		must[any](w, 201, "POST", configMaps, scheme.JSON, configMap(fmt.Sprintf("x%d", i)))
		took[side] = append(took[side], time.Since(began))
	}
	var review []byte
	for i := 0; b.Loop(); i++ {
		create(0, plain, i)
		create(1, hooked, i)
		create(2, ruled, i)
		if review == nil {
			request := h.requests()[0]
			review, _ = json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &request})
		}
		began := time.Now()
		resp, err := h.Client().Post(h.URL, scheme.JSON, bytes.NewReader(review))
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		took[3] = append(took[3], time.Since(began))
	}
	median := func(side int) float64 {
		slices.Sort(took[side])
		return float64(took[side][len(took[side])/2].Microseconds())
	}
	b.ReportMetric(median(0), "µs/create")
	b.ReportMetric(median(1)-median(0)-median(3), "webhook-added-µs/create")
	b.ReportMetric(median(3), "webhook-own-µs")
	b.ReportMetric(median(2)-median(0), "policy-added-µs/create")
}
