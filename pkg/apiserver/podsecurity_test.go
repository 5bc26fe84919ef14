package apiserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/apiserver"
	"podium/pkg/apiserver/admission/podsecurity"
	"podium/pkg/apiserver/audit"
)

// notes is an audit backend that keeps the annotations of the last request.
type notes struct {
	mu   sync.Mutex
	last map[string]string
}

func (n *notes) Write(_ context.Context, events [][]byte) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range events {
		var event struct{ Annotations map[string]string }
		if err := json.Unmarshal(e, &event); err != nil {
			return err
		}
		n.last = event.Annotations
		maps.DeleteFunc(n.last, func(key, _ string) bool { return strings.HasPrefix(key, "authorization.") })
	}
	return nil
}

// auditor returns an auditor that records every request synchronously.
func (n *notes) auditor() *audit.Auditor {
	return audit.New(audit.Config{
		Policy: &audit.Policy{Rules: []audit.Rule{{Level: audit.LevelMetadata}}}, Log: slog.New(slog.DiscardHandler),
		Backends: []audit.BackendConfig{{Name: "notes", Backend: n, Mode: audit.ModeBlocking}},
	})
}

func (n *notes) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []string
	for _, key := range slices.Sorted(maps.Keys(n.last)) {
		out = append(out, strings.TrimPrefix(key, "pod-security.kubernetes.io/")+"="+n.last[key])
	}
	return strings.Join(out, "; ")
}

func podSecurity(cfg podsecurity.Config) func(*apiserver.Config) {
	return func(c *apiserver.Config) { c.Admission.PodSecurity = cfg }
}

func namespaceWith(name, labels string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{%s}}}`, name, labels)
}

func barePod(name, container string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"serviceAccountName":"default","containers":[{"name":"c","image":"i"%s}]}}`, name, container)
}

func warnings(header []string) string {
	var out []string
	for _, h := range header {
		text := strings.TrimSuffix(strings.TrimPrefix(h, `299 - "`), `"`)
		out = append(out, strings.ReplaceAll(text, `\"`, `"`))
	}
	return strings.Join(out, "\n")
}

func TestPodSecurity(t *testing.T) {
	log := &notes{}
	w := start(t, func(c *apiserver.Config) { c.Audit = log.auditor() }, podSecurity(podsecurity.Config{
		Exempt: podsecurity.Exemptions{Namespaces: []string{"exempt"}, Usernames: []string{"robot"}},
	}))
	const label = `"pod-security.kubernetes.io/`
	for _, ns := range []string{
		namespaceWith("strict", label+`enforce":"baseline",`+label+`audit":"restricted"`),
		namespaceWith("soft", label+`warn":"baseline",`+label+`warn-version":"v1.30"`),
		namespaceWith("open", ""),
		namespaceWith("exempt", ""),
	} {
		must[any](w, 201, "POST", "/api/v1/namespaces", jsonType, ns)
	}
	for _, ns := range []string{"strict", "soft", "open", "exempt"} {
		must[any](w, 201, "POST", "/api/v1/namespaces/"+ns+"/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
	}
	const privileged = `,"securityContext":{"privileged":true}`
	const violated = `privileged (container "c" must not set securityContext.privileged=true)`
	template := func(container string) string {
		return `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"` + container + `}]}}}}`
	}
	for _, tc := range []struct {
		name, reason, namespace, body string
		deployment                    bool
		user                          string
		code                          int
		message, warning, audit       string
	}{
		{name: "refused", namespace: "strict", body: barePod("p", privileged), code: 403,
			message: `pods "p" is forbidden: violates PodSecurity "baseline:latest": ` + violated,
			audit:   `audit-violations=would violate PodSecurity "restricted:latest": privileged (container "c" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"); enforce-policy=baseline:latest`},
		{name: "a template is let in", reason: "its pods will be refused; the author is told now", namespace: "strict", body: template(privileged), deployment: true, code: 201,
			warning: `would violate PodSecurity "baseline:latest": ` + violated,
			audit:   `audit-violations=would violate PodSecurity "restricted:latest": privileged (container "c" must not set securityContext.privileged=true), allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`},
		{name: "warned", namespace: "soft", body: barePod("p", privileged), code: 201,
			warning: `would violate PodSecurity "baseline:v1.30": ` + violated, audit: "enforce-policy=privileged:latest"},
		{name: "nothing asked", namespace: "open", body: barePod("p", privileged), code: 201, audit: "enforce-policy=privileged:latest"},
		{name: "an exempt user", namespace: "strict", body: barePod("robots", privileged), user: "robot", code: 201, audit: "exempt=user"},
		{name: "an exempt namespace", namespace: "exempt", body: barePod("p", privileged), code: 201, audit: "exempt=namespace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := "/api/v1/namespaces/" + tc.namespace + "/pods"
			if tc.deployment {
				path = "/apis/apps/v1/namespaces/" + tc.namespace + "/deployments"
			}
			var header []string
			if tc.user != "" {
				header = []string{"Impersonate-User", tc.user, "Impersonate-Group", "system:masters"}
			}
			rec := w.do("POST", path, jsonType, tc.body, header...)
			if rec.Code != tc.code || !strings.Contains(strings.ReplaceAll(rec.Body.String(), `\"`, `"`), tc.message) {
				t.Errorf("%d %s, want %d %s; %s", rec.Code, rec.Body, tc.code, tc.message, tc.reason)
			}
			if diff := cmp.Diff(tc.warning, warnings(rec.Header()["Warning"])); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.audit, log.take()); diff != "" {
				t.Errorf("audit annotations (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("an update that changes nothing of it", func(t *testing.T) {
		path := "/api/v1/namespaces/strict/pods/robots"
		must[any](w, 200, "PATCH", path, mergeType, `{"metadata":{"labels":{"x":"y"}}}`)
		must[metav1.Status](w, 403, "PATCH", path, smpType, `{"spec":{"containers":[{"name":"c","image":"other"}]}}`)
	})
	t.Run("counted", func(t *testing.T) {
		series := w.do("GET", "/metrics", "", "").Body.String()
		for _, want := range []string{
			`pod_security_evaluations_total{decision="deny",mode="enforce",policy_level="baseline",policy_version="latest",request_operation="create",resource="pod",subresource=""} 1`,
			`pod_security_evaluations_total{decision="deny",mode="warn",policy_level="baseline",policy_version="v1.30",request_operation="create",resource="pod",subresource=""} 1`,
			`pod_security_exemptions_total{request_operation="create",resource="pod",subresource=""} 2`,
		} {
			if !strings.Contains(series, want) {
				t.Errorf("no series %s", want)
			}
		}
	})
	t.Run("off", func(t *testing.T) {
		off := start(t, func(c *apiserver.Config) { c.Admission.Disable = []string{"PodSecurity", "ServiceAccount"} })
		must[any](off, 201, "POST", "/api/v1/namespaces", jsonType, namespaceWith("strict", label+`enforce":"baselin"`))
	})
}

func TestPodSecurityLabels(t *testing.T) {
	w := start(t, podSecurity(podsecurity.Config{Exempt: podsecurity.Exemptions{Namespaces: []string{"exempt"}}}))
	const label = `"pod-security.kubernetes.io/`
	status := must[metav1.Status](w, 422, "POST", "/api/v1/namespaces", jsonType, namespaceWith("bad", label+`enforce":"strict"`))
	const want = `Namespace "bad" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`
	if status.Message != want {
		t.Errorf("message %q, want %q", status.Message, want)
	}
	rec := w.do("POST", "/api/v1/namespaces", jsonType, namespaceWith("exempt", label+`enforce":"restricted"`))
	const exempt = `namespace "exempt" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored`
	if got := warnings(rec.Header()["Warning"]); got != exempt {
		t.Errorf("warning %q", got)
	}

	must[any](w, 201, "POST", "/api/v1/namespaces", jsonType, namespaceWith("grown", ""))
	must[any](w, 201, "POST", "/api/v1/namespaces/grown/serviceaccounts", jsonType, `{"metadata":{"name":"default"}}`)
	for _, pod := range []string{barePod("b", `,"securityContext":{"privileged":true}`), barePod("a", `,"securityContext":{"privileged":true}`), barePod("c", `,"ports":[{"containerPort":80,"hostPort":80}]`), barePod("d", "")} {
		must[corev1.Pod](w, 201, "POST", "/api/v1/namespaces/grown/pods", jsonType, pod)
	}
	relabel := func(labels string) string {
		rec := w.do("PATCH", "/api/v1/namespaces/grown", mergeType, `{"metadata":{"labels":{`+labels+`}}}`)
		if rec.Code != 200 {
			t.Fatalf("%s: %d %s", labels, rec.Code, rec.Body)
		}
		return warnings(rec.Header()["Warning"])
	}
	found := strings.Join([]string{
		`existing pods in namespace "grown" violate the new PodSecurity enforce level "baseline:latest"`,
		`a (and 1 other pod): privileged`, `c: hostPort`,
	}, "\n")
	for _, tc := range []struct{ reason, labels, want string }{
		{"pods that are there would not be let in any more", label + `enforce":"baseline"`, found},
		{"not stricter than before: nothing new", label + `audit":"restricted"`, ""},
		{"less strict", label + `enforce":"privileged"`, ""},
	} {
		if diff := cmp.Diff(tc.want, relabel(tc.labels)); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tc.reason, diff)
		}
	}
}

// The command validates its admission configuration before it opens anything
// else.
func TestAdmissionConfigFile(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	for name, tc := range map[string]struct{ text, want string }{
		"another kind":     {"kind: Pod\n", "expected kind AdmissionConfiguration"},
		"unknown field":    {head + "- {name: PodSecurity, path: x, more: 1}\n", "unknown field"},
		"a plugin without": {head + "- {name: Priority, configuration: {}}\n", `plugin "Priority" reads no configuration`},
		"nothing to read":  {head + "- {name: PodSecurity}\n", "needs either a path or a configuration"},
		"twice":            {head + "- {name: PodSecurity, path: a}\n- {name: PodSecurity, path: a}\n", "is there twice"},
		"no such file":     {head + "- {name: PodSecurity, path: absent.yaml}\n", "absent.yaml"},
		"bad default":      {head + "- name: PodSecurity\n  configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: x}}\n", "defaults.enforce"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "admission.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := apiserver.NewCommand()
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			cmd.SetArgs([]string{"--data-dir=" + t.TempDir(), "--admission-control-config-file=" + file})
			if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
