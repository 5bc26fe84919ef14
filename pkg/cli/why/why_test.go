package why

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the reports into testdata")

// now is the time of all situations.
var now = time.Date(2026, 1, 1, 0, 10, 0, 0, time.UTC)

// TestSituations explains the broken situations in testdata. A situation is a
// file NAME.yaml, whose first object is explained, and the report NAME.want.
// Objects are abbreviated: see expand.
func TestSituations(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	situations := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, section := range archive.Files {
			name, ok := strings.CutSuffix(section.Name, ".yaml")
			if !ok {
				continue
			}
			situations++
			t.Run(name, func(t *testing.T) {
				got := explain(t, string(section.Data))
				if *update {
					archive.Files[i+1] = txtar.File{Name: name + ".want", Data: []byte(got)}
				}
				if want := archive.Files[i+1]; want.Name != name+".want" || string(want.Data) != got {
					t.Errorf("%s:\n%s", want.Name, cmp.Diff(string(want.Data), got))
				}
			})
		}
		if *update {
			if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	if situations < 40 {
		t.Errorf("there are %d situations in testdata", situations)
	}
}

func explain(t *testing.T, text string) string {
	w := parse(t, text)
	facts, err := Read(t.Context(), w, w.objects[0], now)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Explain(facts).Write(&out); err != nil {
		t.Fatal(err)
	}
	if w.requests > maxRequests {
		t.Errorf("%d requests", w.requests)
	}
	return out.String()
}

// TestReadsAreBounded explains a pod with more claims than there are requests.
func TestReadsAreBounded(t *testing.T) {
	pod := &Object{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p", "namespace": "ns"}}}
	var volumes []any
	for i := range 2 * maxRequests {
		volumes = append(volumes, map[string]any{"name": "v", "persistentVolumeClaim": map[string]any{"claimName": fmt.Sprint("c", i)}})
	}
	pod.Object["spec"] = map[string]any{"volumes": volumes}
	w := &world{objects: []*Object{pod}}
	facts, err := Read(t.Context(), w, pod, now)
	if err != nil || w.requests != maxRequests {
		t.Errorf("%d requests, %v", w.requests, err)
	}
	if r := Explain(facts); len(r.Unread) == 0 {
		t.Error("the report does not say that it is incomplete")
	}
}

// TestReadFailsWithTheServer: a server that does not answer is no finding.
func TestReadFailsWithTheServer(t *testing.T) {
	w := parse(t, "kind: Pod\nmetadata: {name: p}\n")
	w.broken = true
	if _, err := Read(t.Context(), w, w.objects[0], now); err == nil {
		t.Error("no error")
	}
}

// TestEventsOfAnEarlierObject: a pod of a StatefulSet has the name of the one
// before it, whose events explain nothing.
func TestEventsOfAnEarlierObject(t *testing.T) {
	w := parse(t, "kind: Pod\nmetadata: {name: db-0}\nspec: {nodeName: n1}\nstatus: {phase: Pending}\nevents: {FailedMount: 'secret \"a\" not found'}\n")
	if err := unstructured.SetNestedField(w.objects[1].Object, "another", "involvedObject", "uid"); err != nil {
		t.Fatal(err)
	}
	facts, err := Read(t.Context(), w, w.objects[0], now)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range Explain(facts).Findings {
		if strings.Contains(f.Cause, "volume") {
			t.Errorf("found %q", f.Cause)
		}
	}
}

// FuzzExplain explains objects of any shape: what an API returns may be of
// another version than the rules know.
func FuzzExplain(f *testing.F) {
	f.Add([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"},"status":{"conditions":[{"type":"PodScheduled","status":"False","message":"0/1 nodes are available: 1 Insufficient cpu."}]}}`))
	f.Add([]byte(`{"kind":"Service","apiVersion":"v1","spec":{"selector":{"a":1},"ports":[{"targetPort":"x"}]}}`))
	f.Add([]byte(`{"kind":"Namespace","apiVersion":"v1","metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"conditions":[{},7]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := map[string]any{}
		if utiljson.Unmarshal(data, &m) != nil || m == nil {
			return
		}
		w := &world{objects: []*Object{{Object: m}}}
		facts, err := Read(context.Background(), w, w.objects[0], now)
		if err != nil {
			return
		}
		if err := Explain(facts).Write(&bytes.Buffer{}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzReasons: every reason of a scheduler's message has a number and a text.
func FuzzReasons(f *testing.F) {
	f.Add("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint {a: b, c}. preemption: none.")
	f.Fuzz(func(t *testing.T, message string) {
		for _, r := range reasons(message) {
			if r.nodes == "" || r.text == "" {
				t.Errorf("%q: %+v", message, r)
			}
		}
	})
}

// world is an API in memory.
type world struct {
	objects   []*Object
	forbidden []string // resources
	warning   string
	broken    bool
	requests  int
}

// parse reads objects. Comments say what is forbidden ("# forbidden: nodes")
// and what the server warns of ("# warning: text"). There is a node n1, unless
// a comment says "# no nodes".
func parse(t *testing.T, text string) *world {
	t.Helper()
	w := &world{}
	for _, line := range strings.Split(text, "\n") {
		if what, ok := strings.CutPrefix(line, "# forbidden: "); ok {
			w.forbidden = append(w.forbidden, strings.Fields(what)...)
		}
		if what, ok := strings.CutPrefix(line, "# warning: "); ok {
			w.warning = what
		}
	}
	for _, doc := range strings.Split(text, "\n---\n") {
		text, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		m := map[string]any{}
		if err := utiljson.Unmarshal(text, &m); err != nil { // integers are int64, as in objects of the API
			t.Fatalf("%v in\n%s", err, doc)
		}
		w.objects = append(w.objects, expand(m)...)
	}
	if !strings.Contains(text, "kind: Node\n") && !strings.Contains(text, "# no nodes") {
		w.objects = append(w.objects, expand(map[string]any{"kind": "Node", "metadata": map[string]any{"name": "n1"}, "conditions": map[string]any{"Ready=True/": ""}})...)
	}
	return w
}

var groups = map[string]string{
	"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "Job": "batch/v1", "CronJob": "batch/v1",
	"StorageClass": "storage.k8s.io/v1", "PodDisruptionBudget": "policy/v1", "HorizontalPodAutoscaler": "autoscaling/v2", "Lease": "coordination.k8s.io/v1",
	"Ingress": "networking.k8s.io/v1", "IngressClass": "networking.k8s.io/v1", "NetworkPolicy": "networking.k8s.io/v1", "EndpointSlice": "discovery.k8s.io/v1",
	"ResourceClaim": "resource.k8s.io/v1", "ResourceClaimTemplate": "resource.k8s.io/v1", "DeviceClass": "resource.k8s.io/v1", "ResourceSlice": "resource.k8s.io/v1",
	"DeviceTaintRule": "resource.k8s.io/v1", "APIService": "apiregistration.k8s.io/v1", "CustomResourceDefinition": "apiextensions.k8s.io/v1", "CertificateSigningRequest": "certificates.k8s.io/v1",
}

var clusterScoped = []string{"Node", "Namespace", "PersistentVolume", "StorageClass", "IngressClass", "DeviceClass", "ResourceSlice", "DeviceTaintRule", "APIService", "CustomResourceDefinition", "CertificateSigningRequest"}

// expand completes an object: apiVersion, namespace ns, uid, and creation nine
// minutes ago. "owner: ReplicaSet/a" is its controller, "events: {Reason:
// message}" are events about it, "ready: true" is a pod's condition, and
// "conditions: {Type=Status/Reason: message}" are conditions.
func expand(m map[string]any) []*Object {
	o := &Object{Object: m}
	kind := o.GetKind()
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion(orV1(groups[kind]))
	}
	if o.GetNamespace() == "" && !slices.Contains(clusterScoped, kind) {
		o.SetNamespace("ns")
	}
	o.SetUID(types.UID(kind + "/" + o.GetName()))
	if created := o.GetCreationTimestamp(); created.IsZero() {
		o.SetCreationTimestamp(metav1.Time{Time: now.Add(-9 * time.Minute)})
	}
	if owner, ok := m["owner"].(string); ok {
		kind, name, _ := strings.Cut(owner, "/")
		yes := true
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: orV1(groups[kind]), Kind: kind, Name: name, UID: types.UID(owner), Controller: &yes}})
		delete(m, "owner")
	}
	if list, ok := m["conditions"].(map[string]any); ok {
		var all []any
		for _, key := range slices.Sorted(maps.Keys(list)) {
			message := list[key]
			what, reason, _ := strings.Cut(key, "/")
			t, status, _ := strings.Cut(what, "=")
			all = append(all, map[string]any{"type": t, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-01-01T00:05:00Z"})
		}
		_ = unstructured.SetNestedSlice(m, all, "status", "conditions")
		delete(m, "conditions")
	}
	out := []*Object{o}
	events, _ := m["events"].(map[string]any)
	delete(m, "events")
	for _, reason := range slices.Sorted(maps.Keys(events)) {
		message := events[reason]
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = "default"
		}
		out = append(out, &Object{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": o.GetName() + "." + reason, "namespace": namespace},
			"involvedObject": map[string]any{"kind": kind, "name": o.GetName()}, "reason": reason, "message": message, "lastTimestamp": "2026-01-01T00:09:50Z",
		}})
	}
	return out
}

func orV1(group string) string {
	if group == "" {
		return "v1"
	}
	return group
}

// is reports whether an object belongs to a resource: "pods", "replicaset.apps".
func is(o *Object, resource string) bool {
	word, group, _ := strings.Cut(resource, ".")
	kind := strings.ToLower(o.GetKind())
	same := word == kind || word == kind+"s" || word == kind+"es" || word == strings.TrimSuffix(kind, "y")+"ies"
	return same && o.GroupVersionKind().Group == group
}

func (w *world) ask(resource string) error {
	w.requests++
	if w.broken {
		return fmt.Errorf("connection refused")
	}
	for _, f := range w.forbidden {
		if f == resource {
			return apierrors.NewForbidden(schema.ParseGroupResource(resource), "", nil)
		}
	}
	return nil
}

func (w *world) Get(_ context.Context, resource, namespace, name string) (*Object, error) {
	if err := w.ask(resource); err != nil {
		return nil, err
	}
	for _, o := range w.objects {
		if is(o, resource) && o.GetName() == name && (o.GetNamespace() == namespace || o.GetNamespace() == "") {
			return o, nil
		}
	}
	return nil, apierrors.NewNotFound(schema.ParseGroupResource(resource), name)
}

func (w *world) List(_ context.Context, resource, namespace, selector, fields string) (out []*Object, err error) {
	if err := w.ask(resource); err != nil {
		return nil, err
	}
	match, err := labels.Parse(selector)
	if err != nil {
		return nil, err
	}
	for _, o := range w.objects {
		if is(o, resource) && (namespace == "" || o.GetNamespace() == namespace || o.GetNamespace() == "") && match.Matches(labels.Set(o.GetLabels())) && hasFields(o, fields) {
			out = append(out, o)
		}
	}
	return out, nil
}

func hasFields(o *Object, fields string) bool {
	for _, term := range strings.Split(fields, ",") {
		path, want, ok := strings.Cut(term, "=")
		if !ok {
			continue
		}
		if got, _, _ := unstructured.NestedString(o.Object, strings.Split(path, ".")...); got != want {
			return false
		}
	}
	return true
}

func (w *world) Warnings(context.Context, *Object) ([]string, error) {
	if err := w.ask("dry run"); err != nil || w.warning == "" {
		return nil, err
	}
	return []string{w.warning}, nil
}

func TestReportCannotControlTheTerminal(t *testing.T) {
	var out strings.Builder
	if err := (Report{Object: "pod/a", Findings: []Finding{{Object: "pod/a", Cause: "a\x1b[2Jb"}}}).Write(&out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.Contains(text, "\x1b") || !strings.Contains(text, `a\x1b[2Jb`) {
		t.Errorf("got %q", text)
	}
}
