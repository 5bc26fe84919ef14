package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/yaml"
)

// The Pod Security Standards, from the least to the most restrictive.
const (
	privileged = iota
	baseline
	restricted
)

var standards = []string{"privileged", "baseline", "restricted"}

// podSecurityCase is a change to a pod that satisfies the most restrictive standard.
type podSecurityCase struct {
	name string
	// pod is YAML merged into the spec of the pod, container into that of a container;
	// annotations into its metadata.
	pod, container, annotations string
	most                        int // the most restrictive standard that allows it
}

var podSecurityCases = []podSecurityCase{
	{name: "nothing changed", most: restricted},
	{name: "hostNetwork", pod: "hostNetwork: true", most: privileged},
	{name: "hostPID", pod: "hostPID: true", most: privileged},
	{name: "hostIPC", pod: "hostIPC: true", most: privileged},
	{name: "hostPath", pod: "volumes: [{name: v, hostPath: {path: /}}]", most: privileged},
	{name: "hostPath of a socket", pod: "volumes: [{name: v, hostPath: {path: /run/containerd/containerd.sock, type: Socket}}]", most: privileged},
	{name: "NFS", pod: "volumes: [{name: v, nfs: {server: s, path: /}}]", most: baseline},
	{name: "iSCSI", pod: `volumes: [{name: v, iscsi: {targetPortal: "10.0.0.1:3260", iqn: "iqn.2001-04.com.example:a", lun: 0}}]`, most: baseline},
	{name: "allowed volumes", pod: "volumes: [{name: a, emptyDir: {}}, {name: b, secret: {secretName: s}}, {name: c, configMap: {name: c}}, {name: d, downwardAPI: {}}, {name: e, projected: {sources: []}}]", most: restricted},
	{name: "hostPath after an allowed volume", pod: "volumes: [{name: a, emptyDir: {}}, {name: b, hostPath: {path: /etc}}]", most: privileged},
	{name: "host port", container: "ports: [{containerPort: 80, hostPort: 80}]", most: privileged},
	{name: "host port 0", container: "ports: [{containerPort: 80, hostPort: 0}]", most: restricted},
	{name: "host port after another", container: "ports: [{containerPort: 80}, {containerPort: 81, hostPort: 81}]", most: privileged},
	{name: "privileged", container: "securityContext: {privileged: true, allowPrivilegeEscalation: null}", most: privileged},
	{name: "escalation", container: "securityContext: {allowPrivilegeEscalation: true}", most: baseline},
	{name: "escalation not refused", container: "securityContext: {allowPrivilegeEscalation: null}", most: baseline},
	{name: "capability SYS_ADMIN", container: "securityContext: {allowPrivilegeEscalation: null, capabilities: {drop: [ALL], add: [SYS_ADMIN]}}", most: privileged},
	{name: "capability with prefix", container: "securityContext: {allowPrivilegeEscalation: null, capabilities: {drop: [ALL], add: [CAP_SYS_ADMIN]}}", most: privileged},
	{name: "capability in lower case", container: "securityContext: {capabilities: {drop: [ALL], add: [chown]}}", most: privileged},
	{name: "all capabilities", container: "securityContext: {capabilities: {add: [ALL]}}", most: privileged},
	{name: "NET_RAW", container: "securityContext: {capabilities: {drop: [ALL], add: [NET_RAW]}}", most: privileged},
	{name: "NET_ADMIN", container: "securityContext: {capabilities: {drop: [ALL], add: [NET_ADMIN]}}", most: privileged},
	{name: "SYS_PTRACE", container: "securityContext: {capabilities: {drop: [ALL], add: [SYS_PTRACE]}}", most: privileged},
	{name: "default capability", container: "securityContext: {capabilities: {drop: [ALL], add: [CHOWN]}}", most: baseline},
	{name: "NET_BIND_SERVICE", container: "securityContext: {capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}", most: restricted},
	{name: "no capability dropped", container: "securityContext: {capabilities: null}", most: baseline},
	{name: "one capability dropped", container: "securityContext: {capabilities: {drop: [NET_RAW]}}", most: baseline},
	{name: "ALL in lower case dropped", container: "securityContext: {capabilities: {drop: [all]}}", most: baseline},
	{name: "unmasked /proc", container: "securityContext: {procMount: Unmasked}", most: privileged},
	{name: "masked /proc", container: "securityContext: {procMount: Default}", most: restricted},
	{name: "root by the pod", pod: "securityContext: {runAsNonRoot: true, runAsUser: 0, seccompProfile: {type: RuntimeDefault}}", most: baseline},
	{name: "root by the container", container: "securityContext: {runAsUser: 0}", most: baseline},
	{name: "another user", container: "securityContext: {runAsUser: 1000}", most: restricted},
	{name: "root not refused", pod: "securityContext: {runAsNonRoot: null}", most: baseline},
	{name: "root allowed by the container", container: "securityContext: {runAsNonRoot: false}", most: baseline},
	{name: "root refused by the container", pod: "securityContext: {runAsNonRoot: null}", container: "securityContext: {runAsNonRoot: true}", most: restricted},
	{name: "unconfined by the pod", pod: "securityContext: {seccompProfile: {type: Unconfined}}", most: privileged},
	{name: "unconfined by the container", container: "securityContext: {seccompProfile: {type: Unconfined}}", most: privileged},
	{name: "no seccomp profile", pod: "securityContext: {seccompProfile: null}", most: baseline},
	{name: "local seccomp profile", pod: "securityContext: {seccompProfile: {type: Localhost, localhostProfile: a.json}}", most: restricted},
	{name: "seccomp profile of the container", pod: "securityContext: {seccompProfile: null}", container: "securityContext: {seccompProfile: {type: RuntimeDefault}}", most: restricted},
	{name: "AppArmor off by the pod", pod: "securityContext: {appArmorProfile: {type: Unconfined}}", most: privileged},
	{name: "AppArmor off by the container", container: "securityContext: {appArmorProfile: {type: Unconfined}}", most: privileged},
	{name: "AppArmor", pod: "securityContext: {appArmorProfile: {type: RuntimeDefault}}", most: restricted},
	{name: "AppArmor off by annotation", annotations: "container.apparmor.security.beta.kubernetes.io/c: unconfined", most: privileged},
	{name: "SELinux user", pod: "securityContext: {seLinuxOptions: {user: u}}", most: privileged},
	{name: "SELinux role of the container", container: "securityContext: {seLinuxOptions: {role: r}}", most: privileged},
	{name: "SELinux type", pod: "securityContext: {seLinuxOptions: {type: spc_t}}", most: privileged},
	{name: "SELinux type of containers", pod: "securityContext: {seLinuxOptions: {type: container_t, level: s0}}", most: restricted},
	{name: "sysctl of the node", pod: `securityContext: {sysctls: [{name: kernel.msgmax, value: "1"}]}`, most: privileged},
	{name: "safe sysctl", pod: `securityContext: {sysctls: [{name: kernel.shm_rmid_forced, value: "1"}]}`, most: restricted},
	{name: "sysctl of the network", pod: `securityContext: {sysctls: [{name: net.core.somaxconn, value: "1"}]}`, most: privileged},
	{name: "process of a Windows host", pod: "securityContext: {windowsOptions: {hostProcess: true}}\nhostNetwork: true", most: privileged},
	{name: "probe of another host", container: "livenessProbe: {httpGet: {host: 169.254.169.254, port: 80}}", most: privileged},
	{name: "probe of another host by TCP", container: "readinessProbe: {tcpSocket: {host: 10.0.0.1, port: 80}}", most: privileged},
	{name: "hook of another host", container: "lifecycle: {preStop: {httpGet: {host: 127.0.0.1, port: 10248}}}", most: privileged},
	{name: "probe of the pod", container: "livenessProbe: {httpGet: {port: 80}}", most: restricted},
	{name: "two things at once", pod: "hostPID: true", container: "securityContext: {privileged: true, allowPrivilegeEscalation: null}", most: privileged},
}

// overlay merges change into base; null removes a key.
func overlay(base, change map[string]any) map[string]any {
	for key, value := range change {
		below, isMap := base[key].(map[string]any)
		above, both := value.(map[string]any)
		switch {
		case value == nil:
			delete(base, key)
		case isMap && both:
			overlay(below, above)
		default:
			base[key] = value
		}
	}
	return base
}

func fromYAML(t *testing.T, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return m
}

const safeContainer = "{name: %s, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}"

// podWith returns the safe pod with a case's change in the container of one kind: containers or
// initContainers.
func podWith(t *testing.T, tc podSecurityCase, kind string) map[string]any {
	t.Helper()
	changed := overlay(fromYAML(t, fmt.Sprintf(safeContainer, "c")), fromYAML(t, tc.container))
	spec := fromYAML(t, "{automountServiceAccountToken: false, securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}}")
	const whole = "securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}" // does not depend on the pod's
	spec["containers"] = []any{overlay(fromYAML(t, fmt.Sprintf(safeContainer, "main")), fromYAML(t, whole))}
	if kind == "containers" {
		spec["containers"] = append(spec["containers"].([]any), changed)
	} else {
		spec[kind] = []any{changed}
	}
	overlay(spec, fromYAML(t, tc.pod))
	return map[string]any{"metadata": map[string]any{"name": "p", "annotations": fromYAML(t, tc.annotations)}, "spec": spec}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	check(t, err)
	return string(data)
}

// standardNamespaces creates three namespaces, each with one of the standards.
func standardNamespaces(t *testing.T) [3]string {
	t.Helper()
	var out [3]string
	root := administrator(t)
	for level, name := range standards {
		out[level] = space(t)
		root.must(t, "PATCH", "/api/v1/namespaces/"+out[level], `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"`+name+`"}}}`, "Content-Type", mergeType)
	}
	return out
}

// Each standard admits what it allows and rejects what it does not, for all kinds of containers,
// and warns of a template whose pods it would reject.
func TestPodSecurityStandards(t *testing.T) {
	t.Parallel()
	spaces, root := standardNamespaces(t), administrator(t)
	for _, tc := range podSecurityCases {
		for _, kind := range []string{"containers", "initContainers"} {
			for level, ns := range spaces {
				what := fmt.Sprintf("%s in %s, at %s", tc.name, kind, standards[level])
				pod := podWith(t, tc, kind)
				a := root.do(t, "POST", "/api/v1/namespaces/"+ns+"/pods?dryRun=All", asJSON(t, pod))
				if level == privileged && !served(t, what, a) {
					break
				}
				judge(t, what, a, level <= tc.most)
				pod["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
				workload := map[string]any{"metadata": map[string]any{"name": "w"}, "spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": pod}}
				for _, resource := range []string{"deployments", "replicasets"} {
					a := root.do(t, "POST", "/apis/apps/v1/namespaces/"+ns+"/"+resource+"?dryRun=All", asJSON(t, workload))
					warned := strings.Contains(strings.Join(a.header.Values("Warning"), ""), "would violate PodSecurity")
					if a.code != http.StatusCreated && a.code != http.StatusUnprocessableEntity || a.code == http.StatusCreated && warned != (level > tc.most) {
						t.Errorf("%s, as a template of %s: %d with warnings %q", what, resource, a.code, a.header.Values("Warning"))
					}
				}
			}
		}
	}
}

// served reports whether this version supports the pod's fields: a pod that is refused without
// any standard must only be refused with the others, too.
func served(t *testing.T, what string, a answer) bool {
	t.Helper()
	if a.code == http.StatusUnprocessableEntity {
		_, why, _ := strings.Cut(a.body, `"message":`)
		t.Logf("%s: no such pod without Pod Security either: %.150s", what, why)
		return false
	}
	return true
}

// judge checks that a pod is admitted, or rejected by Pod Security.
func judge(t *testing.T, what string, a answer, allowed bool) {
	t.Helper()
	refused := a.code == http.StatusForbidden && strings.Contains(a.body, "violates PodSecurity")
	if allowed && a.code/100 != 2 || !allowed && !refused {
		t.Errorf("%s: %d, allowed should be %v: %.400s", what, a.code, allowed, a.body)
	}
}

// What is rejected on create is rejected for each way to change a pod, and the administrator of a
// namespace cannot lift its standard.
func TestPodSecurityOfUpdates(t *testing.T) {
	t.Parallel()
	spaces, root := standardNamespaces(t), administrator(t)
	for _, level := range []int{baseline, restricted} {
		ns := spaces[level]
		pods := "/api/v1/namespaces/" + ns + "/pods"
		made := podWith(t, podSecurityCase{}, "containers")
		made["spec"].(map[string]any)["nodeSelector"] = map[string]any{"no": "node"}
		root.must(t, "POST", pods, asJSON(t, made))
		ephemeral := func(tc podSecurityCase) answer {
			container := overlay(fromYAML(t, fmt.Sprintf(safeContainer, "e")), fromYAML(t, tc.container))
			body := asJSON(t, map[string]any{"spec": map[string]any{"ephemeralContainers": []any{container}}})
			return root.do(t, "PATCH", pods+"/p/ephemeralcontainers?dryRun=All", body, "Content-Type", "application/strategic-merge-patch+json")
		}
		servesThem := served(t, "a safe ephemeral container", ephemeral(podSecurityCase{}))
		for _, tc := range podSecurityCases {
			if tc.container == "" || tc.pod != "" || !strings.Contains(tc.container, "securityContext") {
				continue // the pod exists already, and ephemeral containers have neither ports nor probes
			}
			a, what := ephemeral(tc), tc.name+" in ephemeralContainers, at "+standards[level]
			switch {
			case servesThem && a.code == 422 && level > tc.most && strings.Contains(a.body, "procMount"):
				// Validation comes first: the pod shares the host's user namespace.
			case servesThem:
				judge(t, what, a, level <= tc.most)
			case a.code/100 == 2:
				t.Errorf("%s: %d, but a safe one is refused", what, a.code)
			}
		}
		for what, a := range map[string]answer{
			"an applied pod":      root.do(t, "PATCH", pods+"/q?fieldManager=m", `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"q"},"spec":{"hostNetwork":true,"containers":[{"name":"c","image":"i"}]}}`, "Content-Type", applyType),
			"a pod made by PUT":   root.do(t, "PUT", pods+"/q", `{"metadata":{"name":"q"},"spec":{"hostPID":true,"containers":[{"name":"c","image":"i"}]}}`),
			"AppArmor turned off": root.do(t, "PATCH", pods+"/p?dryRun=All", `{"metadata":{"annotations":{"container.apparmor.security.beta.kubernetes.io/c":"unconfined"}}}`, "Content-Type", mergeType),
		} {
			if a.code/100 == 2 {
				t.Errorf("%s, at %s: %d %.300s", what, standards[level], a.code, a.body)
			}
		}
		eve := bearer(t, token(t, ns, authenticationv1.TokenRequestSpec{}))
		bindRole(t, ns, "admin")
		eve.must(t, "GET", "/api/v1/namespaces/"+ns+"/secrets", "")
		for what, row := range map[string][3]string{
			"by a merge":       {"PATCH", "", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
			"by the status":    {"PATCH", "/status", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
			"by a PUT":         {"PUT", "", `{"metadata":{"name":"` + ns + `","labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
			"by finalize":      {"PUT", "/finalize", `{"metadata":{"name":"` + ns + `","labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`},
			"by a new version": {"PATCH", "", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce-version":"v1.0"}}}`},
		} {
			media := map[string]string{"PATCH": mergeType, "PUT": jsonType}[row[0]]
			if a := eve.do(t, row[0], "/api/v1/namespaces/"+ns+row[1], row[2], "Content-Type", media); a.code != http.StatusForbidden {
				t.Errorf("the administrator of a namespace lifts its standard %s: %d %.300s", what, a.code, a.body)
			}
		}
	}
}
