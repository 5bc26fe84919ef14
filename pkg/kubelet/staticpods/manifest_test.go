package staticpods

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"podium/pkg/kubelet/podspec"
	apispec "podium/pkg/podspec"
)

var (
	now  = time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	file = origin{kind: podspec.FileSource, name: "/manifests/web.yaml", node: "n1"}
)

// manifest returns a manifest with one container and more fields of its metadata and spec.
func manifest(metadata, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web" + metadata + "}\nspec: {containers: [{name: app, image: app}]" + spec + "}\n"
}

func TestManifestBecomesAPod(t *testing.T) {
	pod, err := file.decode([]byte(manifest(", labels: {a: b}, annotations: {c: d, kubernetes.io/config.mirror: x}, finalizers: [e/f]", ", priorityClassName: system-node-critical")), now)
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.UID) != 32 {
		t.Errorf("uid %q", pod.UID)
	}
	annotations := map[string]string{"c": "d", "kubernetes.io/config.source": "file", "kubernetes.io/config.hash": string(pod.UID), "kubernetes.io/config.seen": "2026-01-02T03:04:05.000000006Z"}
	if diff := cmp.Diff(annotations, pod.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if pod.Name != "web-n1" || pod.Namespace != "default" || pod.Labels["a"] != "b" || len(pod.Finalizers) > 0 || pod.Status.Phase != corev1.PodPending || pod.Generation != 1 {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	s := pod.Spec
	if s.NodeName != "n1" || *s.Priority != 2000001000 || s.RestartPolicy != corev1.RestartPolicyAlways || s.Containers[0].ImagePullPolicy != corev1.PullAlways || *s.TerminationGracePeriodSeconds != 30 {
		t.Errorf("%+v", s)
	}
	if diff := cmp.Diff([]corev1.Toleration{{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}}, s.Tolerations); diff != "" {
		t.Errorf("tolerations (-want +got):\n%s", diff)
	}
}

func TestUIDs(t *testing.T) {
	uid := func(o origin, text string) string {
		t.Helper()
		pod, err := o.decode([]byte(text), now)
		if err != nil {
			t.Fatal(err)
		}
		if hash := pod.Annotations[podspec.HashAnnotation]; hash != string(pod.UID) {
			t.Errorf("hash %q, uid %q", hash, pod.UID)
		}
		return string(pod.UID)
	}
	base := manifest("", "")
	other, web := file, file
	other.name, web.kind = "/manifests/other.yaml", podspec.HTTPSource
	elsewhere := file
	elsewhere.node = "n2"
	for name, row := range map[string]struct {
		origin origin
		text   string
		same   bool
	}{
		"again":          {file, base, true},
		"with a comment": {file, "# hello\n" + base, true},
		"as JSON":        {file, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"},"spec":{"containers":[{"image":"app","name":"app"}]}}`, true},
		"changed":        {file, manifest("", ", hostNetwork: true"), false},
		"another file":   {other, base, false},
		"from a URL":     {web, base, false},
		"another node":   {elsewhere, base, false},
	} {
		if got := uid(row.origin, row.text) == uid(file, base); got != row.same {
			t.Errorf("%s: the same pod: %t, want %t", name, got, row.same)
		}
	}
	if got := uid(file, manifest(", uid: Abc-1", "")); got != "Abc-1" {
		t.Errorf("uid %q is not that of the manifest", got)
	}
}

func TestWrongManifests(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"nothing":              {"# nothing\n", "the manifest is empty"},
		"no YAML":              {"{", "yaml"},
		"a list":               {"- a", "cannot unmarshal"},
		"another kind":         {"apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", `kind "Service": want v1, Pod`},
		"another version":      {strings.Replace(manifest("", ""), "v1", "v2", 1), `apiVersion "v2"`},
		"two":                  {manifest("", "") + "---\n" + manifest("", ""), "several documents"},
		"an unknown field":     {manifest("", ", hostNetwrok: true"), `unknown field "hostNetwrok"`},
		"a field twice":        {manifest("", ", hostNetwork: true, hostNetwork: false"), `key "hostNetwork" already set`},
		"a type":               {manifest("", ", hostNetwork: maybe"), "hostNetwork"},
		"no name":              {"apiVersion: v1\nkind: Pod\nspec: {containers: [{name: app, image: app}]}\n", "metadata.name: Required value"},
		"a bad name":           {strings.Replace(manifest("", ""), "web", "We_b", 1), "metadata.name: Invalid value"},
		"a bad namespace":      {manifest(", namespace: a/b", ""), "metadata.namespace: Invalid value"},
		"a bad label":          {manifest(", labels: {'a b': c}", ""), "metadata.labels: Invalid value"},
		"a uid that is a path": {manifest(", uid: ../../x", ""), "metadata.uid"},
		"no containers":        {"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\n", "spec.containers: Required value"},
		"a bad policy":         {manifest("", ", restartPolicy: Sometimes"), "spec.restartPolicy: Unsupported value"},
		"ephemeral containers": {manifest("", ", ephemeralContainers: [{name: debug, image: app}]"), "spec.ephemeralContainers: Forbidden"},
		"an account":           {manifest("", ", serviceAccountName: a"), "static pods may not reference serviceaccounts"},
		"a pull secret":        {manifest("", ", imagePullSecrets: [{name: a}]"), "static pods may not reference secrets"},
		"a Secret":             {manifest("", ", volumes: [{name: v, secret: {secretName: a}}]"), "static pods may not reference secrets"},
		"a ConfigMap":          {manifest("", ", volumes: [{name: v, configMap: {name: a}}]"), "static pods may not reference configmaps"},
		"variables":            {manifest("", ", initContainers: [{name: i, image: app, envFrom: [{configMapRef: {name: a}}]}]"), "static pods may not reference configmaps"},
		"a variable":           {manifest("", ", initContainers: [{name: i, image: app, env: [{name: A, valueFrom: {secretKeyRef: {name: a, key: b}}}]}]"), "static pods may not reference secrets"},
		"a claim":              {manifest("", ", volumes: [{name: v, persistentVolumeClaim: {claimName: a}}]"), "static pods may not reference persistentvolumeclaims"},
		"a token":              {manifest("", ", volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}}]}}]"), "static pods may not reference serviceaccounts"},
		"a bundle":             {manifest("", ", volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: a, path: b}}]}}]"), "static pods may not reference clustertrustbundles"},
		"a resource claim":     {manifest("", ", resourceClaims: [{name: a, resourceClaimName: b}]"), "static pods may not reference resourceclaims"},
	} {
		if _, err := file.decode([]byte(row.text), now); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
}

func TestPodList(t *testing.T) {
	web := origin{kind: podspec.HTTPSource, name: "https://example.org/pods", node: "n1"}
	const item = "{metadata: {name: %}, spec: {containers: [{name: app, image: app}]}}"
	list := "apiVersion: v1\nkind: PodList\nitems: [" + strings.ReplaceAll(item, "%", "a") + ", " + strings.ReplaceAll(item, "%", "B_") + "]\n"
	pods, err := web.decodeList([]byte(list), now)
	if len(pods) != 1 || pods[0].Name != "a-n1" || len(pods[0].Spec.Tolerations) > 0 || pods[0].Annotations[podspec.SourceAnnotation] != "http" {
		t.Errorf("pods %+v", pods)
	}
	if err == nil || !strings.Contains(err.Error(), "items[1]: metadata.name: Invalid value") {
		t.Error(err)
	}
	if pods, err := web.decodeList([]byte(manifest("", "")), now); len(pods) != 1 || err != nil {
		t.Errorf("a single pod: %v, %v", pods, err)
	}
	if pods, err := web.decodeList([]byte("apiVersion: v1\nkind: PodList\n"), now); pods == nil || len(pods) > 0 || err != nil {
		t.Errorf("an empty list: %v, %v", pods, err)
	}
}

// FuzzManifest checks that what is a pod is one that may run, and stays the same.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(manifest("", "")))
	f.Add([]byte(manifest(", uid: a", ", hostNetwork: true, priorityClassName: system-node-critical, volumes: [{name: v, hostPath: {path: /}}]")))
	f.Add([]byte("apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: a}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		pods, _ := file.decodeList(data, now)
		for _, pod := range pods {
			if pod.Spec.NodeName != "n1" || !podspec.Static(pod) || !validUID.MatchString(string(pod.UID)) || apispec.RefersTo(&pod.Spec) != "" || !strings.HasSuffix(pod.Name, "-n1") {
				t.Errorf("%+v", pod)
			}
		}
		again, _ := file.decodeList(data, now)
		if diff := cmp.Diff(pods, again); diff != "" {
			t.Errorf("another pod (-first +second):\n%s", diff)
		}
	})
}
