package registry_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"podium/pkg/apiserver/registry"
	"podium/pkg/scheme"
)

// The bodies of the smallest valid objects.
const (
	alwaysTemplate = `{metadata: {labels: {app: x}}, spec: {containers: [{name: c, image: i}]}}`
	neverTemplate  = `{spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}`
)

var smallest = map[string]string{
	"replicationcontrollers": `{spec: {template: ` + alwaysTemplate + `}}`,
	"statefulsets":           `{spec: {selector: {matchLabels: {app: x}}, serviceName: s, template: ` + alwaysTemplate + `}}`,
	"daemonsets":             `{spec: {selector: {matchLabels: {app: x}}, template: ` + alwaysTemplate + `}}`,
	"controllerrevisions":    `{revision: 1, data: {a: [1, {b: 2}]}}`,
	"jobs":                   `{spec: {template: ` + neverTemplate + `}}`,
	"cronjobs":               `{spec: {schedule: "*/5 * * * *", jobTemplate: {spec: {template: ` + neverTemplate + `}}}}`,
	"horizontalpodautoscalers": `{spec: {maxReplicas: 3, scaleTargetRef: {kind: Deployment, name: d, apiVersion: apps/v1},
		metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}}`,
	"poddisruptionbudgets": `{spec: {minAvailable: 1, selector: {matchLabels: {app: x}}}}`,
}

// decoded returns the smallest object of a kind, merged with a patch, with defaults.
func decoded(t *testing.T, k *registry.Kind, patch string) scheme.Object {
	t.Helper()
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(smallest[k.Resource]), &tree); err != nil {
		t.Fatal(err)
	}
	var change map[string]any
	if err := yaml.Unmarshal([]byte(patch), &change); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	mergeInto(tree, change)
	text, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	obj := k.New()
	if err := yaml.Unmarshal(text, obj); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	if obj.GetName() == "" {
		obj.SetName("x")
	}
	obj.SetNamespace("ns")
	obj.SetUID("uid")
	if k.Default != nil {
		k.Default(obj)
	}
	return obj
}

// mergeInto applies a JSON merge patch; null removes a field.
func mergeInto(tree, patch map[string]any) {
	for key, value := range patch {
		inner, ok := value.(map[string]any)
		into, have := tree[key].(map[string]any)
		switch {
		case value == nil:
			delete(tree, key)
		case ok && have:
			mergeInto(into, inner)
		default:
			tree[key] = value
		}
	}
}

// problems creates the object that a patch of the smallest one makes, or updates the
// smallest one with it, and returns the errors.
func problems(t *testing.T, k *registry.Kind, before *string, patch string) []string {
	t.Helper()
	prepare := func(obj, old scheme.Object) {
		if k.Prepare == nil {
			return
		}
		if err := k.Prepare(t.Context(), holding(nil), obj, old); err != nil {
			t.Fatal(err)
		}
	}
	if before == nil {
		obj := decoded(t, k, patch)
		prepare(obj, nil)
		return texts(k.Validate(obj, nil))
	}
	old := decoded(t, k, *before)
	prepare(old, nil)
	if errs := k.Validate(old, nil); len(errs) > 0 {
		t.Fatalf("the old object is not valid: %v", texts(errs))
	}
	obj := decoded(t, k, patch)
	if job, ok := obj.(*batchv1.Job); ok {
		made := old.(*batchv1.Job) // a client sends back what the server has generated
		if job.Spec.Selector == nil {
			job.Spec.Selector = made.Spec.Selector.DeepCopy()
		}
		if job.Spec.Template.Labels == nil {
			job.Spec.Template.Labels = made.Spec.Template.Labels
		}
	}
	prepare(obj, old)
	return texts(k.Validate(obj, old))
}

// TestWorkloadValidation compares all errors of bad input with upstream's.
func TestWorkloadValidation(t *testing.T) {
	kinds := newRig(t, "10.0.0.0/24", somePorts).kinds
	none := ""
	suspended := `{spec: {suspend: true}}`
	indexed := `{spec: {completionMode: Indexed, completions: 3, parallelism: 3}}`
	for _, row := range []struct {
		resource string
		before   *string // nil: a create
		patch    string
		want     []string
	}{
		{"replicationcontrollers", nil, ``, nil},
		{"replicationcontrollers", nil, `{spec: {template: null}}`, []string{"spec.selector: Required value", "spec.template: Required value"}},
		{"replicationcontrollers", nil, `{spec: {replicas: -1, minReadySeconds: -2, selector: {app: z}}}`, []string{
			"spec.minReadySeconds: Invalid value: -2: must be greater than or equal to 0",
			"spec.replicas: Invalid value: -1: must be greater than or equal to 0",
			"spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"}},
		{"replicationcontrollers", nil, `{spec: {template: {spec: {activeDeadlineSeconds: 5}}}}`, []string{
			"spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicationController is not Supported"}},
		{"replicationcontrollers", &none, `{spec: {selector: {app: z}, template: {metadata: {labels: {app: z}}}}}`, nil},

		{"statefulsets", nil, ``, nil},
		{"statefulsets", nil, `{spec: {podManagementPolicy: Random, updateStrategy: {type: OnDelete, rollingUpdate: {}}, persistentVolumeClaimRetentionPolicy: {whenScaled: Keep}}}`, []string{
			`spec.updateStrategy.rollingUpdate: Invalid value: {}: only allowed for updateStrategy 'RollingUpdate'`,
			`spec.podManagementPolicy: Invalid value: "Random": must be 'OrderedReady' or 'Parallel'`,
			`spec.persistentVolumeClaimRetentionPolicy.whenScaled: Unsupported value: "Keep": supported values: "Retain", "Delete"`}},
		{"statefulsets", nil, `{spec: {ordinals: {start: -1}, serviceName: A_b, updateStrategy: {rollingUpdate: {partition: -1, maxUnavailable: 0}}}}`, []string{
			"spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: 0: cannot be 0",
			"spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
			`spec.serviceName: Invalid value: "A_b": a lowercase RFC 1123 label must consist of`}},
		{"statefulsets", nil, `{spec: {volumeClaimTemplates: [{metadata: {name: data}}], template: {spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}}}}`, nil},
		{"statefulsets", nil, `{spec: {template: {spec: {containers: [{name: c, image: i, volumeMounts: [{name: data, mountPath: /d}]}]}}}}`, []string{
			`spec.template.spec.containers[0].volumeMounts[0].name: Not found: "data"`}},
		{"statefulsets", &none, `{spec: {serviceName: other}}`, []string{
			"spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden"}},
		{"statefulsets", &none, `{spec: {replicas: 3, minReadySeconds: 1, revisionHistoryLimit: 0, updateStrategy: {type: OnDelete}, template: {spec: {hostNetwork: true}}}}`, nil},

		{"daemonsets", nil, ``, nil},
		{"daemonsets", nil, `{spec: {selector: null}}`, []string{"spec.template.metadata.labels: Invalid value: {\"app\":\"x\"}: `selector` does not match template `labels`"}},
		{"daemonsets", nil, `{spec: {selector: {matchLabels: null}}}`, []string{`spec.selector: Invalid value: {}: empty selector is invalid for daemonset`}},
		{"daemonsets", nil, `{spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 1, maxSurge: "120%"}}}}`, []string{
			`spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "120%": must not be greater than 100%`,
			`spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: "120%": may not be set when maxUnavailable is non-zero`}},
		{"daemonsets", nil, `{spec: {updateStrategy: {rollingUpdate: {maxUnavailable: 0}}}}`, []string{
			"spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"}},
		{"daemonsets", &none, `{spec: {selector: {matchLabels: {app: z}}, template: {metadata: {labels: {app: z}}}}}`, []string{
			`spec.selector: Invalid value: {"matchLabels":{"app":"z"}}: field is immutable`}},

		{"controllerrevisions", nil, ``, nil},
		{"controllerrevisions", nil, `{revision: -1, data: null}`, []string{"revision: Invalid value: -1: must be greater than or equal to 0", "data: Required value: data is mandatory"}},
		{"controllerrevisions", &none, `{revision: 2}`, nil},
		{"controllerrevisions", &none, `{data: {a: 2}}`, []string{`data: Invalid value: "{\"a\":2}": field is immutable`}},

		{"jobs", nil, ``, nil},
		{"jobs", nil, `{spec: {template: {spec: {restartPolicy: null}}, completions: -1, activeDeadlineSeconds: -1}}`, []string{
			"spec.completions: Invalid value: -1: must be greater than or equal to 0",
			"spec.activeDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
			`spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},
		{"jobs", nil, `{spec: {manualSelector: true}}`, []string{"spec.selector: Required value", "spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"}},
		{"jobs", nil, `{spec: {template: {metadata: {labels: {controller-uid: mine}}}}}`, []string{
			`spec.template.metadata.labels[controller-uid]: Invalid value: {"batch.kubernetes.io/controller-uid":"uid","batch.kubernetes.io/job-name":"x","controller-uid":"mine","job-name":"x"}: must be 'uid'`}},
		{"jobs", nil, `{spec: {completionMode: Indexed, completions: null, parallelism: 100001, managedBy: nobody}}`, []string{
			`spec.managedBy: Invalid value: "nobody": must be a domain-prefixed path`,
			"spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
			"spec.completions: Required value: when completion mode is Indexed"}},
		{"jobs", nil, `{spec: {backoffLimitPerIndex: 1, podReplacementPolicy: Always}}`, []string{
			"spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
			`spec.podReplacementPolicy: Unsupported value: "Always": supported values: "Failed", "TerminatingOrFailed"`}},
		{"jobs", nil, `{spec: {completionMode: Indexed, completions: 200000, parallelism: 20000, backoffLimitPerIndex: 1}}`, []string{
			"spec.parallelism: Invalid value: 20000: must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index",
			"spec.maxFailedIndexes: Required value: must be specified when completions is above 100000"}},
		{"jobs", nil, `{spec: {podReplacementPolicy: TerminatingOrFailed, podFailurePolicy: {rules: [{action: FailIndex, onExitCodes: {containerName: d, operator: In, values: [2, 0, 2]}}, {}]}}}`, []string{
			`spec.podFailurePolicy.rules[0].action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set`,
			`spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "d": must be one of the container or initContainer names in the pod template`,
			"spec.podFailurePolicy.rules[0].onExitCodes.values[1]: Invalid value: 0: must not be 0 for the In operator",
			"spec.podFailurePolicy.rules[0].onExitCodes.values[2]: Duplicate value: 2",
			"spec.podFailurePolicy.rules[0].onExitCodes.values: Invalid value: [2,0,2]: must be ordered",
			`spec.podFailurePolicy.rules[1].action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]`,
			"spec.podFailurePolicy.rules[1]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
			`spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"`}},
		{"jobs", nil, `{spec: {successPolicy: {rules: []}}}`, []string{"spec.successPolicy: Invalid value: {\"rules\":[]}: requires indexed completion mode"}},
		{"jobs", nil, `{spec: {completionMode: Indexed, completions: 5, successPolicy: {rules: [{}, {succeededIndexes: "1,3-4", succeededCount: 4}, {succeededIndexes: "2-1"}, {succeededIndexes: "5"}, {succeededIndexes: "1-2-3"}, {succeededIndexes: "a"}]}}}`, []string{
			"spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
			"spec.successPolicy.rules[1].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of indexes in the specified succeededIndexes field)",
			`spec.successPolicy.rules[2].succeededIndexes: Invalid value: "2-1": error parsing succeededIndexes: non-increasing order, previous: 2, current: 1`,
			`spec.successPolicy.rules[3].succeededIndexes: Invalid value: "5": error parsing succeededIndexes: too large index: "5"`,
			`spec.successPolicy.rules[4].succeededIndexes: Invalid value: "1-2-3": error parsing succeededIndexes: the fragment "1-2-3" violates the requirement that an index interval can have at most two parts separated by '-'`,
			`spec.successPolicy.rules[5].succeededIndexes: Invalid value: "a": error parsing succeededIndexes: cannot convert string to integer for index: "a"`}},
		{"jobs", &none, `{spec: {completions: 1, parallelism: 2, suspend: true, ttlSecondsAfterFinished: 1}}`, nil},
		{"jobs", &none, `{spec: {completions: 2}}`, []string{"spec.completions: Invalid value: 2: field is immutable"}},
		{"jobs", &none, `{spec: {template: {spec: {nodeSelector: {a: b}}}}}`, []string{"spec.template: Invalid value: {"}},
		{"jobs", &suspended, `{spec: {template: {spec: {nodeSelector: {a: b}, containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}}}}`, nil},
		{"jobs", &suspended, `{spec: {template: {spec: {containers: [{name: c, image: j}]}}}}`, []string{"spec.template: Invalid value: {"}},
		{"jobs", &indexed, `{spec: {completionMode: Indexed, completions: 5, parallelism: 5}}`, nil},
		{"jobs", &indexed, `{spec: {completionMode: Indexed, completions: 5, parallelism: 3}}`, []string{"spec.completions: Invalid value: 5: can only be modified in tandem with spec.parallelism"}},

		{"cronjobs", nil, ``, nil},
		{"cronjobs", nil, `{spec: {timeZone: Europe/Madrid}}`, nil},
		{"cronjobs", nil, `{spec: {schedule: null, concurrencyPolicy: Never, startingDeadlineSeconds: -1}}`, []string{
			"spec.schedule: Required value",
			"spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
			`spec.concurrencyPolicy: Unsupported value: "Never": supported values: "Allow", "Forbid", "Replace"`}},
		{"cronjobs", nil, `{spec: {schedule: "TZ=0", timeZone: "../etc/passwd"}}`, []string{
			`spec.schedule: Invalid value: "TZ=0": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`,
			`spec.timeZone: Invalid value: "../etc/passwd": unknown time zone ../etc/passwd`}},
		{"cronjobs", nil, `{spec: {schedule: "* * * *", timeZone: Local}}`, []string{
			`spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: [* * * *]`,
			`spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones`}},
		{"cronjobs", nil, `{metadata: {name: a-name-that-is-longer-than-the-52-characters-of-a-cronjob}, spec: {jobTemplate: {spec: {selector: {}, manualSelector: true}}}}`, []string{
			`metadata.name: Invalid value: "a-name-that-is-longer-than-the-52-characters-of-a-cronjob": must be no more than 52 characters`,
			"spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
			`spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"`}},
		{"cronjobs", nil, `{spec: {jobTemplate: {spec: {template: {spec: {restartPolicy: Always}}}}}}`, []string{
			`spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`}},

		{"horizontalpodautoscalers", nil, ``, nil},
		{"horizontalpodautoscalers", nil, `{spec: {minReplicas: 0, maxReplicas: -1, scaleTargetRef: {kind: a/b, name: null}}}`, []string{
			"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1",
			"spec.maxReplicas: Invalid value: -1: must be greater than 0",
			"spec.maxReplicas: Invalid value: -1: must be greater than or equal to `minReplicas`",
			`spec.scaleTargetRef.kind: Invalid value: "a/b": may not contain '/'`, "spec.scaleTargetRef.name: Required value"}},
		{"horizontalpodautoscalers", nil, `{spec: {metrics: [{type: Pods, resource: {name: cpu, target: {type: Share}}}, {}]}}`, []string{
			"spec.metrics[0].pods: Required value: must populate information for the given metric source",
			`spec.metrics[0].resource.target.type: Invalid value: "Share": must be either Utilization, Value, or AverageValue`,
			"spec.metrics[0].resource.target.averageUtilization: Required value: must set either a target raw value or a target utilization",
			"spec.metrics[0].resource: Forbidden: must populate the given metric source only",
			"spec.metrics[1].type: Required value: must specify a metric source type",
			`spec.metrics[1].type: Unsupported value: "": supported values: "ContainerResource", "External", "Object", "Pods", "Resource"`}},
		{"horizontalpodautoscalers", nil, `{spec: {behavior: {scaleUp: {stabilizationWindowSeconds: 3601, selectPolicy: Any, policies: []}, scaleDown: {tolerance: "-1", policies: [{type: Cores, value: 0, periodSeconds: 1801}]}}}}`, []string{
			"spec.behavior.scaleUp.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal to 3600",
			`spec.behavior.scaleUp.selectPolicy: Unsupported value: "Any": supported values: "Disabled", "Max", "Min"`,
			"spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
			`spec.behavior.scaleDown.policies[0].type: Unsupported value: "Cores": supported values: "Percent", "Pods"`,
			"spec.behavior.scaleDown.policies[0].value: Invalid value: 0: must be greater than zero",
			"spec.behavior.scaleDown.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
			`spec.behavior.scaleDown.tolerance: Invalid value: "-1": must be greater than or equal to 0`}},

		{"poddisruptionbudgets", nil, ``, nil},
		{"poddisruptionbudgets", nil, `{spec: {minAvailable: -1, maxUnavailable: "101%", unhealthyPodEvictionPolicy: Never}}`, []string{
			"spec: Invalid value: {",
			"spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
			`spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%`,
			`spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": supported values: "AlwaysAllow", "IfHealthyBudget"`}},
		{"poddisruptionbudgets", &none, `{spec: {minAvailable: null, maxUnavailable: "10%"}}`, nil},
	} {
		got := problems(t, kinds[row.resource], row.before, row.patch)
		if len(got) != len(row.want) {
			t.Errorf("%s %s:\n got %q\nwant %q", row.resource, row.patch, got, row.want)
			continue
		}
		for i, want := range row.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s %s:\n got %s\nwant %s", row.resource, row.patch, got[i], want)
			}
		}
	}
}

func TestJobGetsASelector(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["jobs"]
	job := decoded(t, k, `{spec: {template: {metadata: {labels: {app: x}}}}}`).(*batchv1.Job)
	if err := k.Prepare(t.Context(), holding(nil), job, nil); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"app": "x", "controller-uid": "uid", "job-name": "x", "batch.kubernetes.io/controller-uid": "uid", "batch.kubernetes.io/job-name": "x"}
	if diff := cmp.Diff(want, job.Spec.Template.Labels); diff != "" {
		t.Error(diff)
	}
	if got := metav1.FormatLabelSelector(job.Spec.Selector); got != "batch.kubernetes.io/controller-uid=uid" {
		t.Errorf("the selector is %s", got)
	}
	if diff := cmp.Diff(want, job.Labels); diff != "" {
		t.Errorf("the labels of the job: %s", diff)
	}
	mine := decoded(t, k, `{metadata: {labels: {mine: "yes"}}}`).(*batchv1.Job)
	if err := k.Prepare(t.Context(), holding(nil), mine, nil); err != nil || len(mine.Labels) != 1 {
		t.Errorf("%v, labels of its own: %v", err, mine.Labels)
	}
}

func TestJobStatus(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["jobs"]
	status := subresource(t, k, "status")
	const finished = `startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T01:00:00Z", succeeded: 1,
		conditions: [{type: SuccessCriteriaMet, status: "True"}, {type: Complete, status: "True"}]`
	for name, row := range map[string]struct {
		spec, old, new string
		want           []string
	}{
		"Running":  {new: `active: 1, ready: 1, startTime: "2026-01-01T00:00:00Z"`},
		"Finished": {old: `startTime: "2026-01-01T00:00:00Z", active: 1`, new: finished},
		"TooEarly": {new: `conditions: [{type: Complete, status: "True"}]`, want: []string{
			"status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
			"status.completionTime: Required value: completionTime is required for Complete jobs",
			"status.startTime: Required value: startTime is required for finished job"}},
		"Undone": {old: finished, new: `startTime: "2026-01-01T00:00:00Z"`, want: []string{
			"status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
			"status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
			"status.succeeded: Invalid value: 0: cannot decrease the succeeded counter"}},
		"FailedWithoutTarget": {new: `startTime: "2026-01-01T00:00:00Z", active: -1, ready: 1, conditions: [{type: Failed, status: "True"}]`, want: []string{
			"status.active: Invalid value: -1: must be greater than or equal to 0",
			"status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
			"status.ready: Invalid value: 1: cannot set more ready pods than active"}},
		"Indexes": {spec: `completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1`, new: `completedIndexes: "0-2,4", failedIndexes: "3"`},
		"Overlap": {spec: `completionMode: Indexed, completions: 5, backoffLimitPerIndex: 1`, new: `completedIndexes: "0-2,4", failedIndexes: "2-3"`, want: []string{
			`status.failedIndexes: Invalid value: "2-3": failedIndexes and completedIndexes overlap at index: 2`}},
		"NoIndexes": {new: `completedIndexes: "0", failedIndexes: ""`, want: []string{
			`status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode`,
			`status.failedIndexes: Invalid value: "": cannot set non-null failedIndexes when backoffLimitPerIndex is null`}},
		"Uncounted": {new: `uncountedTerminatedPods: {succeeded: [a, ""], failed: [a]}`, want: []string{
			`status.uncountedTerminatedPods.succeeded[1]: Invalid value: "": must not be empty`,
			`status.uncountedTerminatedPods.failed[0]: Duplicate value: "a"`}},
	} {
		old := decoded(t, k, `{spec: {`+row.spec+`}, status: {`+row.old+`}}`)
		next := decoded(t, k, `{spec: {parallelism: 9}, status: {`+row.new+`}}`)
		if err := status.PreparePart(t.Context(), next, old); err != nil {
			t.Fatal(err)
		}
		if *next.(*batchv1.Job).Spec.Parallelism == 9 {
			t.Errorf("%s: a status update changed the spec", name)
		}
		if diff := cmp.Diff(row.want, texts(status.ValidatePart(next, old))); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestDaemonSetCountsTemplates(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["daemonsets"]
	generation := func(obj, old scheme.Object) string {
		if err := k.Prepare(t.Context(), holding(nil), obj, old); err != nil {
			t.Fatal(err)
		}
		return obj.GetAnnotations()[appsv1.DeprecatedTemplateGeneration]
	}
	old := decoded(t, k, ``)
	for name, got := range map[string][2]string{
		"create":           {generation(old, nil), "1"},
		"same template":    {generation(decoded(t, k, `{metadata: {annotations: {deprecated.daemonset.template.generation: "7"}}, spec: {minReadySeconds: 1}}`), old), "1"},
		"another template": {generation(decoded(t, k, `{spec: {template: {spec: {hostNetwork: true}}}}`), old), "2"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %s, want %s", name, got[0], got[1])
		}
	}
}

// A patch may write the fields of the data in another order.
func TestControllerRevisionDataIsCompared(t *testing.T) {
	k := newRig(t, "10.0.0.0/24", somePorts).kinds["controllerrevisions"]
	revision := func(raw string) *appsv1.ControllerRevision {
		return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: runtime.RawExtension{Raw: []byte(raw)}}
	}
	old := revision(`{"a":1,"b":{"c":2,"d":3}}`)
	if errs := k.Validate(revision(`{"b": {"d":3, "c":2}, "a":1}`), old); len(errs) > 0 {
		t.Error(errs)
	}
	if errs := texts(k.Validate(revision("\xff"), nil)); len(errs) != 1 || errs[0] != "data: Invalid value: must be JSON" {
		t.Errorf("bytes that are not JSON: %q", errs)
	}
}

func TestWorkloadRows(t *testing.T) {
	kinds := newRig(t, "10.0.0.0/24", somePorts).kinds
	const created = `metadata: {creationTimestamp: "2026-01-01T00:00:00Z", name: x}, `
	for _, row := range []struct {
		resource, patch string
		want            []any
	}{
		{"replicationcontrollers", `{` + created + `spec: {replicas: 3}, status: {replicas: 2, readyReplicas: 1}}`, []any{"x", int64(3), int64(2), int64(1), "c", "i", "app=x"}},
		{"statefulsets", `{` + created + `spec: {replicas: 3}, status: {readyReplicas: 1}}`, []any{"x", "1/3", "c", "i"}},
		{"daemonsets", `{` + created + `status: {desiredNumberScheduled: 5, currentNumberScheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberAvailable: 1}}`,
			[]any{"x", int64(5), int64(4), int64(3), int64(2), int64(1), "<none>", "c", "i", "app=x"}},
		{"controllerrevisions", `{metadata: {name: x, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: d, uid: u, controller: true}]}}`, []any{"x", "daemonset.apps/d", int64(1)}},
		{"jobs", `{` + created + `status: {succeeded: 1, startTime: "2026-01-01T00:00:00Z", completionTime: "2026-01-01T00:01:30Z", conditions: [{type: Complete, status: "True"}]}}`,
			[]any{"x", "Complete", "1/1", "90s", "c", "i", "<none>"}},
		{"jobs", `{` + created + `spec: {parallelism: 3}}`, []any{"x", "Running", "0/1 of 3", "", "c", "i", "<none>"}},
		{"cronjobs", `{` + created + `spec: {timeZone: Etc/UTC, suspend: true}, status: {active: [{name: a}]}}`,
			[]any{"x", "*/5 * * * *", "Etc/UTC", "True", int64(1), "<none>", "c", "i", "<none>"}},
		{"horizontalpodautoscalers", `{` + created + `status: {currentReplicas: 2, currentMetrics: [{type: Resource, resource: {name: cpu, current: {averageUtilization: 40}}}]}}`,
			[]any{"x", "Deployment/d", "cpu: 40%/50%", "1", int64(3), int64(2)}},
		{"horizontalpodautoscalers", `{` + created + `spec: {metrics: [{type: Pods, pods: {metric: {name: m}, target: {type: AverageValue, averageValue: 2k}}},
			{type: External, external: {metric: {name: m}, target: {type: AverageValue, averageValue: 1}}}, {type: Object}]}}`,
			[]any{"x", "Deployment/d", "<unknown>/2k, <unknown>/1 (avg) + 1 more...", "1", int64(3), int64(0)}},
		{"poddisruptionbudgets", `{` + created + `status: {disruptionsAllowed: 2}}`, []any{"x", "1", "N/A", int64(2)}},
	} {
		k := kinds[row.resource]
		var got []any
		for i, cell := range k.Row(decoded(t, k, row.patch), today) {
			if k.Columns[i].Name != "Age" {
				got = append(got, cell)
			}
		}
		if diff := cmp.Diff(row.want, got); diff != "" {
			t.Errorf("%s: %s", row.resource, diff)
		}
	}
	if got := kinds["replicationcontrollers"].Row(&corev1.ReplicationController{}, today); got[5] != "" {
		t.Errorf("without a template: %v", got)
	}
}
