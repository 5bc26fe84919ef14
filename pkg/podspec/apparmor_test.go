package podspec_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"podium/pkg/podspec"
)

const appArmorKey = "container.apparmor.security.beta.kubernetes.io/"

func specOf(t testing.TB, text string) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
		t.Fatal(err)
	}
	podspec.Default(spec)
	return spec
}

// Valid security contexts, and those that are rejected because they are not
// enforced.
func TestSecurityContext(t *testing.T) {
	const c = "spec.containers[0].securityContext"
	for name, tc := range map[string]struct {
		reason, pod, container string
		want                   []string
	}{
		"all that is enforced": {
			reason: "each of these reaches the container", pod: "{runAsUser: 1, runAsGroup: 2, runAsNonRoot: true, fsGroup: 3, fsGroupChangePolicy: OnRootMismatch, supplementalGroups: [4], supplementalGroupsPolicy: Merge, seccompProfile: {type: RuntimeDefault}, seLinuxOptions: {level: s0}, appArmorProfile: {type: RuntimeDefault}}",
			container: "{privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, procMount: Default, capabilities: {add: [CHOWN], drop: [ALL]}, seccompProfile: {type: Localhost, localhostProfile: a/b.json}, appArmorProfile: {type: Localhost, localhostProfile: mine}, seLinuxOptions: {type: t}}",
		},
		"Windows": {
			reason: "no node runs it", pod: "{windowsOptions: {hostProcess: true}}", container: "{windowsOptions: {runAsUserName: a}}",
			want: []string{"spec.securityContext.windowsOptions: Forbidden: " + podspec.Unsupported, c + ".windowsOptions: Forbidden: " + podspec.Unsupported},
		},
		"strict groups": {
			reason: "a kubelet whose runtime lacks the feature rejects the pod", pod: "{supplementalGroupsPolicy: Strict}",
		},
		"SELinux change policy": {reason: "no volume is relabelled", pod: "{seLinuxChangePolicy: Recursive}", want: []string{"spec.securityContext.seLinuxChangePolicy: Forbidden: " + podspec.Unsupported}},
		"/proc unmasked": {
			reason: "that needs a user namespace", container: "{procMount: Unmasked}",
			want: []string{c + ".procMount: Invalid value: \"Unmasked\": `hostUsers` must be false to use `Unmasked`"},
		},
		"a procMount of no kind": {container: "{procMount: Some}", want: []string{c + `.procMount: Unsupported value: "Some": supported values: "Default", "Unmasked"`}},
		"a seccomp file elsewhere": {
			reason: "profiles are below the kubelet's own directory", container: "{seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}}",
			want: []string{c + `.seccompProfile.localhostProfile: Invalid value: "../../etc/passwd": must not contain '..'`},
		},
		"AppArmor without a name":       {container: "{appArmorProfile: {type: Localhost}}", want: []string{c + ".appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"}},
		"AppArmor with an empty name":   {container: `{appArmorProfile: {type: Localhost, localhostProfile: ""}}`, want: []string{c + ".appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost"}},
		"AppArmor with spaces":          {container: `{appArmorProfile: {type: Localhost, localhostProfile: " a"}}`, want: []string{c + `.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace`}},
		"AppArmor with a name too long": {container: "{appArmorProfile: {type: Localhost, localhostProfile: " + strings.Repeat("a", 4096) + "}}", want: []string{c + ".appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes"}},
		"AppArmor with a name too many": {pod: "{appArmorProfile: {type: Unconfined, localhostProfile: a}}", want: []string{`spec.securityContext.appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost`}},
		"AppArmor of no type":           {pod: "{appArmorProfile: {}}", want: []string{"spec.securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set"}},
		"AppArmor of another type":      {pod: "{appArmorProfile: {type: Maybe}}", want: []string{`spec.securityContext.appArmorProfile.type: Unsupported value: "Maybe": supported values: "Localhost", "RuntimeDefault", "Unconfined"`}},
		"both ways":                     {container: "{privileged: true, allowPrivilegeEscalation: false}", want: []string{"cannot set `allowPrivilegeEscalation` to false and `privileged` to true"}},
		"users out of range":            {pod: "{runAsUser: -1}", want: []string{"spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive"}},
	} {
		t.Run(name, func(t *testing.T) {
			or := func(text string) string {
				if text == "" {
					return "{}"
				}
				return text
			}
			got := texts(podspec.Validate(specOf(t, "securityContext: "+or(tc.pod)+"\ncontainers: [{name: c, image: i, securityContext: "+or(tc.container)+"}]"), field.NewPath("spec")))
			if len(got) != len(tc.want) {
				t.Fatalf("%q, want %q; %s", got, tc.want, tc.reason)
			}
			for i := range got {
				if !strings.Contains(got[i], tc.want[i]) {
					t.Errorf("%q, want %q; %s", got[i], tc.want[i], tc.reason)
				}
			}
		})
	}
}

func TestHostUsers(t *testing.T) {
	const rest = "containers: [{name: c, image: i, securityContext: {procMount: Unmasked}}]"
	if got := texts(podspec.Validate(specOf(t, "hostUsers: false\n"+rest), field.NewPath("spec"))); len(got) != 0 {
		t.Errorf("a pod with a user namespace, /proc unmasked: %q", got)
	}
	if got := podspec.Refuse(specOf(t, "hostUsers: false\n"+rest), field.NewPath("spec")); len(got) != 0 {
		t.Errorf("a pod with a user namespace is refused: %v", got)
	}
	got := texts(podspec.Validate(specOf(t, "hostUsers: false\nhostNetwork: true\nhostPID: true\nhostIPC: true\n"+rest), field.NewPath("spec")))
	want := []string{
		"spec.hostNetwork: Forbidden: when `hostUsers` is false", "spec.HostPID: Forbidden: when `hostUsers` is false", "spec.HostIPC: Forbidden: when `hostUsers` is false",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("with the host's namespaces (-want +got):\n%s", diff)
	}
}

func TestAppArmorAnnotations(t *testing.T) {
	const deprecated = `metadata.annotations[` + appArmorKey + `c]: deprecated since v1.30; use the "appArmorProfile" field instead`
	for name, tc := range map[string]struct {
		reason, value, spec string
		field, warning      string
		errs                []string
	}{
		"copied":          {reason: "the field is what the kubelet reads", value: "localhost/mine", spec: "containers: [{name: c}]", field: "Localhost mine", warning: deprecated},
		"as the pod says": {reason: "there is nothing to add", value: "runtime/default", spec: "{securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c}]}"},
		"other than the pod": {
			reason: "the container's word goes before the pod's", value: "unconfined", spec: "{securityContext: {appArmorProfile: {type: RuntimeDefault}}, containers: [{name: c}]}",
			field: "Unconfined", warning: deprecated,
		},
		"other than the field": {
			value: "unconfined", spec: "containers: [{name: c, securityContext: {appArmorProfile: {type: RuntimeDefault}}}]", field: "RuntimeDefault",
			errs: []string{"spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match"},
		},
		"another profile": {
			value: "localhost/a", spec: "containers: [{name: c, securityContext: {appArmorProfile: {type: Localhost, localhostProfile: b}}}]", field: "Localhost b",
			errs: []string{"spec.containers[0].securityContext.appArmorProfile.localhostProfile: Forbidden: apparmor profile in annotation and field must match"},
		},
		"of no form": {value: "none", spec: "containers: [{name: c}]", warning: deprecated, errs: []string{`metadata.annotations[` + appArmorKey + `c]: Invalid value: "none": invalid AppArmor profile name: "none"`}},
		"of nobody":  {value: "unconfined", spec: "containers: [{name: d}]", errs: []string{`metadata.annotations[` + appArmorKey + `c]: Invalid value: "c": container not found`}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := specOf(t, tc.spec)
			annotations := map[string]string{appArmorKey + "c": tc.value}
			if got := strings.Join(podspec.AppArmorFields(annotations, spec), "\n"); got != tc.warning {
				t.Errorf("warning %q, want %q; %s", got, tc.warning, tc.reason)
			}
			got := ""
			if s := spec.Containers[0].SecurityContext; s != nil && s.AppArmorProfile != nil {
				got = string(s.AppArmorProfile.Type)
				if name := s.AppArmorProfile.LocalhostProfile; name != nil {
					got += " " + *name
				}
			}
			if got != tc.field {
				t.Errorf("field %q, want %q; %s", got, tc.field, tc.reason)
			}
			errs := texts(podspec.ValidateAppArmorAnnotations(annotations, spec, field.NewPath("metadata"), field.NewPath("spec")))
			if diff := cmp.Diff(tc.errs, errs); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAppArmorIsForLife(t *testing.T) {
	of := func(value string) map[string]string { return map[string]string{appArmorKey + "c": value} }
	for _, tc := range []struct {
		new, old map[string]string
		want     []string
	}{
		{of("unconfined"), of("unconfined"), nil},
		{nil, of("unconfined"), []string{"annotations[" + appArmorKey + "c]: Forbidden: may not remove or update AppArmor annotations"}},
		{of("unconfined"), of("runtime/default"), []string{"annotations[" + appArmorKey + "c]: Forbidden: may not remove or update AppArmor annotations"}},
		{of("unconfined"), nil, []string{"annotations[" + appArmorKey + "c]: Forbidden: may not add AppArmor annotations"}},
		{map[string]string{"a": "b"}, map[string]string{"a": "c"}, nil},
	} {
		if diff := cmp.Diff(tc.want, texts(podspec.ValidateAppArmorUpdate(tc.new, tc.old, field.NewPath("annotations")))); diff != "" {
			t.Errorf("%v after %v (-want +got):\n%s", tc.new, tc.old, diff)
		}
	}
}
