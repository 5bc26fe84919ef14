package podsecurity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/admission"
	"podium/pkg/apiserver/admission/admissiontest"
	"podium/pkg/apiserver/admission/podsecurity"
)

func standard(t testing.TB, text string) api.LevelVersion {
	t.Helper()
	name, version, _ := strings.Cut(text, ":")
	level, err := api.ParseLevel(name)
	if err != nil {
		t.Fatal(err)
	}
	v, err := api.ParseVersion(version)
	if err != nil {
		t.Fatal(err)
	}
	return api.LevelVersion{Level: level, Version: v}
}

func podOf(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return pod
}

// privileged returns the policy that applies by default.
func privileged() api.Policy {
	none := api.LevelVersion{Level: api.LevelPrivileged, Version: api.LatestVersion()}
	return api.Policy{Enforce: none, Audit: none, Warn: none}
}

// refusal returns the reason for which a namespace that enforces std refuses
// the pod, "" if it admits it.
func refusal(t testing.TB, std api.LevelVersion, pod *corev1.Pod) string {
	t.Helper()
	p := podsecurity.New(admission.Host{Objects: admissiontest.Objects{"namespaces/ns": &corev1.Namespace{}}}, podsecurity.Config{Defaults: api.Policy{Enforce: std}})
	a := &admission.Attributes{Operation: admission.Create, Resource: corev1.SchemeGroupVersion.WithResource("pods"), Namespace: "ns", Name: "p", Object: pod}
	err := admission.Chain{p}.Admit(t.Context(), a, nil)
	if err == nil {
		return ""
	}
	text, ok := strings.CutPrefix(err.Error(), fmt.Sprintf(`pods "p" is forbidden: violates PodSecurity %q: `, std))
	if !ok {
		t.Errorf("error %q", err)
	}
	return text
}

// safe is a pod that the strictest standard allows. Test rows append fields.
const safe = `{hostNetwork: false, securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}},
  containers: [{name: a, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}`

func TestChecks(t *testing.T) {
	const strict = "restricted:latest"
	ordinary := func(container string) string { return "{containers: [{name: a, " + container + "}]}" }
	for name, tc := range map[string]struct {
		reason   string
		at       string
		spec     string
		metadata string
		want     string
	}{
		"nothing of what is asked": {
			reason: "a plain pod says nothing, and so does not do what restricted asks for", at: strict, spec: "{containers: [{name: a}]}",
			want: `allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "a" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "a" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`,
		},
		"all that is asked":      {reason: "the example of upstream's page", at: strict, spec: safe},
		"a plain pod, baseline":  {reason: "baseline forbids, it asks for nothing", at: "baseline:latest", spec: "{containers: [{name: a}]}"},
		"privileged":             {reason: "privileged forbids nothing", at: "privileged:latest", spec: ordinary("securityContext: {privileged: true}")},
		"a privileged container": {at: "baseline:latest", spec: ordinary("securityContext: {privileged: true}"), want: `privileged (container "a" must not set securityContext.privileged=true)`},
		"init and ephemeral containers": {
			reason: "all three sorts count, init containers first", at: "baseline:latest",
			spec: `{containers: [{name: a, securityContext: {privileged: true}}], initContainers: [{name: b, securityContext: {privileged: true}}], ephemeralContainers: [{name: c, securityContext: {privileged: true}}]}`,
			want: `privileged (containers "b", "a", "c" must not set securityContext.privileged=true)`,
		},
		"capabilities at baseline": {at: "baseline:latest", spec: ordinary("securityContext: {capabilities: {add: [SYS_ADMIN, CHOWN, NET_RAW]}}"), want: `non-default capabilities (container "a" must not include "NET_RAW", "SYS_ADMIN" in securityContext.capabilities.add)`},
		"capabilities at restricted": {
			reason: "the stricter check takes the place of baseline's: one violation, not two", at: strict,
			spec: strings.Replace(safe, "drop: [ALL]", "drop: [KILL], add: [CHOWN]", 1),
			want: `unrestricted capabilities (container "a" must set securityContext.capabilities.drop=["ALL"]; container "a" must not include "CHOWN" in securityContext.capabilities.add)`,
		},
		"capabilities before v1.22": {
			reason: "before, restricted had baseline's check", at: "restricted:v1.21", spec: strings.Replace(safe, "drop: [ALL]", "add: [NET_RAW]", 1),
			want: `non-default capabilities (container "a" must not include "NET_RAW" in securityContext.capabilities.add)`,
		},
		"the host's namespaces": {at: "baseline:latest", spec: "{hostNetwork: true, hostPID: true, hostIPC: true}", want: "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)"},
		"hostPath":              {at: "baseline:latest", spec: "{volumes: [{name: x, hostPath: {path: /}}, {name: z, hostPath: {path: /}}]}", want: `hostPath volumes (volumes "x", "z")`},
		"hostPath at restricted": {
			reason: "again one violation for one fault", at: strict, spec: `{volumes: [{name: x, hostPath: {path: /}}, {name: z, nfs: {path: /}}]}`,
			want: `restricted volume types (volumes "x", "z" use restricted volume types "hostPath", "nfs")`,
		},
		"a host port":           {at: "baseline:latest", spec: ordinary("ports: [{hostPort: 80}, {hostPort: 443}]"), want: `hostPort (container "a" uses hostPorts 443, 80)`},
		"a probe's host":        {reason: "the kubelet would ask any address in the pod's name", at: "baseline:v1.34", spec: ordinary("livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}"), want: `probe or lifecycle host (container "a" uses probe or lifecycle host "169.254.169.254")`},
		"a probe's host, v1.33": {reason: "the check is new in v1.34", at: "baseline:v1.33", spec: ordinary("livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}")},
		"a hook's host":         {at: "baseline:latest", spec: ordinary("lifecycle: {preStop: {httpGet: {host: h, port: 80}}}"), want: `probe or lifecycle host (container "a" uses probe or lifecycle host "h")`},
		"AppArmor off": {
			reason: "by field and by the old annotation", at: "baseline:latest",
			spec:     "{securityContext: {appArmorProfile: {type: Unconfined}}, containers: [{name: a}]}",
			metadata: "{annotations: {container.apparmor.security.beta.kubernetes.io/a: unconfined}}",
			want:     `forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to "Unconfined", "container.apparmor.security.beta.kubernetes.io/a="unconfined"")`,
		},
		"SELinux":                        {at: "baseline:latest", spec: "{securityContext: {seLinuxOptions: {type: spc_t, user: u, role: r}}}", want: `seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "spc_t"; user may not be set; role may not be set)`},
		"SELinux's container_engine_t":   {reason: "allowed since v1.31", at: "baseline:v1.31", spec: "{securityContext: {seLinuxOptions: {type: container_engine_t}}}"},
		"container_engine_t before":      {at: "baseline:v1.30", spec: "{securityContext: {seLinuxOptions: {type: container_engine_t}}}", want: `seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type "container_engine_t")`},
		"/proc unmasked":                 {at: "baseline:latest", spec: ordinary("securityContext: {procMount: Unmasked}"), want: `procMount (container "a" must not set securityContext.procMount to "Unmasked")`},
		"/proc unmasked, own users":      {reason: "in its own user namespace a pod cannot reach the host by it", at: "baseline:latest", spec: "{hostUsers: false, containers: [{name: a, securityContext: {procMount: Unmasked}}]}"},
		"/proc unmasked, restricted":     {reason: "restricted does not relax this", at: strict, spec: strings.Replace(strings.Replace(safe, "drop: [ALL]}", "drop: [ALL]}, procMount: Unmasked", 1), "hostNetwork: false", "hostUsers: false", 1), want: `procMount (container "a" must not set securityContext.procMount to "Unmasked")`},
		"root with own users":            {reason: "root in its own user namespace is nobody on the host", at: strict, spec: strings.Replace(safe, "{hostNetwork: false, securityContext: {runAsNonRoot: true,", "{hostUsers: false, securityContext: {runAsUser: 0,", 1)},
		"root with own users, v1.34":     {reason: "the relaxation came with v1.35", at: "restricted:v1.34", spec: strings.Replace(safe, "{hostNetwork: false, securityContext: {runAsNonRoot: true,", "{hostUsers: false, securityContext: {runAsNonRoot: true, runAsUser: 0,", 1), want: "runAsUser=0 (pod must not set runAsUser=0)"},
		"runAsNonRoot false":             {at: strict, spec: strings.Replace(safe, "runAsNonRoot: true", "runAsNonRoot: false", 1), want: "runAsNonRoot != true (pod must not set securityContext.runAsNonRoot=false)"},
		"seccomp off":                    {at: "baseline:latest", spec: "{securityContext: {seccompProfile: {type: Unconfined}}}", want: `seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")`},
		"seccomp by annotation":          {reason: "before v1.19 there was no field", at: "baseline:v1.18", metadata: "{annotations: {seccomp.security.alpha.kubernetes.io/pod: unconfined}}", spec: "{}", want: `seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")`},
		"a sysctl of the node":           {at: "baseline:latest", spec: "{securityContext: {sysctls: [{name: kernel.msgmax}, {name: net.ipv4.tcp_rmem}]}}", want: "forbidden sysctls (kernel.msgmax)"},
		"a sysctl that was not safe yet": {at: "baseline:v1.31", spec: "{securityContext: {sysctls: [{name: net.ipv4.tcp_rmem}]}}", want: "forbidden sysctls (net.ipv4.tcp_rmem)"},
		"hostProcess":                    {at: "baseline:latest", spec: "{securityContext: {windowsOptions: {hostProcess: true}}}", want: "hostProcess (pod must not set securityContext.windowsOptions.hostProcess=true)"},
		"a pod for Windows": {
			reason: "it cannot set what Linux alone has; since v1.25", at: "restricted:v1.25", spec: "{os: {name: windows}, securityContext: {runAsNonRoot: true}, containers: [{name: a}]}",
		},
		"a pod for Windows, v1.24": {
			at: "restricted:v1.24", spec: "{os: {name: windows}, securityContext: {runAsNonRoot: true}, containers: [{name: a, securityContext: {capabilities: {drop: [ALL]}, seccompProfile: {type: Localhost}}}]}",
			want: `allowPrivilegeEscalation != false (container "a" must set securityContext.allowPrivilegeEscalation=false)`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			metadata := tc.metadata
			if metadata == "" {
				metadata = "{}"
			}
			pod := podOf(t, "metadata: "+metadata+"\nspec: "+tc.spec)
			if diff := cmp.Diff(tc.want, refusal(t, standard(t, tc.at), pod)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPolicyOf(t *testing.T) {
	const p = "pod-security.kubernetes.io/"
	for name, tc := range map[string]struct {
		reason   string
		labels   map[string]string
		defaults string
		want     string // enforce audit warn
		errs     int
	}{
		"no labels":         {reason: "the defaults", defaults: "baseline:v1.20", want: "baseline:v1.20 baseline:v1.20 baseline:v1.20"},
		"each its own":      {labels: map[string]string{p + "enforce": "baseline", p + "audit": "restricted", p + "warn": "privileged"}, want: "baseline:latest restricted:latest privileged:latest"},
		"versions":          {labels: map[string]string{p + "enforce": "restricted", p + "enforce-version": "v1.22", p + "warn": "baseline", p + "warn-version": "v1.0"}, want: "restricted:v1.22 privileged:latest baseline:v1.0"},
		"warn follows":      {reason: "who is refused pods is warned of templates", labels: map[string]string{p + "enforce": "restricted", p + "enforce-version": "v1.9"}, want: "restricted:v1.9 privileged:latest restricted:v1.9"},
		"warn's version":    {reason: "a version of its own is kept", labels: map[string]string{p + "enforce": "restricted", p + "warn-version": "v1.9"}, want: "restricted:latest privileged:latest restricted:v1.9"},
		"not understood":    {reason: "enforce is then the strictest; the others fail open", labels: map[string]string{p + "enforce": "x", p + "audit": "x", p + "warn": "x"}, want: "restricted:latest privileged:latest privileged:latest", errs: 3},
		"bad versions":      {labels: map[string]string{p + "enforce-version": "1.20", p + "audit-version": "v1.01", p + "warn-version": "v2.0"}, defaults: "baseline:v1.9", want: "baseline:latest baseline:latest baseline:latest", errs: 3},
		"of another prefix": {labels: map[string]string{"enforce": "restricted"}, want: "privileged:latest privileged:latest privileged:latest"},
	} {
		t.Run(name, func(t *testing.T) {
			defaults := privileged()
			if tc.defaults != "" {
				s := standard(t, tc.defaults)
				defaults = api.Policy{Enforce: s, Audit: s, Warn: s}
			}
			got, errs := api.PolicyToEvaluate(tc.labels, defaults)
			text := got.Enforce.String() + " " + got.Audit.String() + " " + got.Warn.String()
			if text != tc.want || len(errs) != tc.errs {
				t.Errorf("%s: %s with errors %v, want %s with %d", tc.reason, text, errs, tc.want, tc.errs)
			}
		})
	}
}

func TestParseConfig(t *testing.T) {
	const head = "apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\n"
	good, err := podsecurity.ParseConfig([]byte(head + "defaults: {enforce: baseline, enforce-version: v1.30, warn: restricted}\nexemptions: {usernames: [u], namespaces: [kube-system], runtimeClasses: [kata]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := podsecurity.Config{
		Defaults: api.Policy{Enforce: standard(t, "baseline:v1.30"), Audit: standard(t, "privileged:latest"), Warn: standard(t, "restricted:latest")},
		Exempt:   podsecurity.Exemptions{Usernames: []string{"u"}, Namespaces: []string{"kube-system"}, RuntimeClasses: []string{"kata"}},
	}
	if good.Defaults != want.Defaults || !cmp.Equal(good.Exempt, want.Exempt) {
		t.Errorf("got %v, want %v", good, want)
	}
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"another kind":       {"kind: Pod\napiVersion: v1\n", []string{`found kind "Pod" of "v1"`}},
		"a field of no kind": {head + "foo: 1\n", []string{"unknown field"}},
		"all that is wrong": {
			head + "defaults: {enforce: strict, warn-version: v2}\nexemptions: {usernames: [\"\"], namespaces: [kube-system, kube-system], runtimeClasses: [A_b]}\n",
			[]string{"defaults.enforce", "defaults.warn-version", "exemptions.usernames[0]", "exemptions.namespaces[1]: Duplicate", "exemptions.runtimeClasses[0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := podsecurity.ParseConfig([]byte(tc.text))
			for _, part := range tc.want {
				if err == nil || !strings.Contains(err.Error(), part) {
					t.Errorf("error %v, want %q in it", err, part)
				}
			}
		})
	}
}

// FuzzLabels checks that any labels yield a policy, and that an invalid one
// never enforces less than a valid one.
func FuzzLabels(f *testing.F) {
	f.Add("restricted", "v1.30")
	f.Add("baselin", "v1.99999999999999999999999")
	f.Add("", "latest")
	f.Fuzz(func(t *testing.T, level, version string) {
		p, errs := api.PolicyToEvaluate(map[string]string{
			"pod-security.kubernetes.io/enforce": level, "pod-security.kubernetes.io/enforce-version": version,
		}, privileged())
		if len(errs) == 0 && p.Enforce.String() != level+":"+version {
			t.Errorf("%q and %q were read as %s", level, version, p.Enforce)
		}
		if _, err := api.ParseLevel(level); err != nil && p.Enforce.Level != api.LevelRestricted {
			t.Errorf("level %q enforces %s", level, p.Enforce)
		}
	})
}

// FuzzParseConfig checks that no file causes a panic.
func FuzzParseConfig(f *testing.F) {
	f.Add([]byte("apiVersion: pod-security.admission.config.k8s.io/v1\nkind: PodSecurityConfiguration\ndefaults: {enforce: baseline}\n"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := podsecurity.ParseConfig(data); err != nil && err.Error() == "" {
			t.Error("an error without words")
		}
	})
}
