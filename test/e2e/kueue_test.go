package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const kueueImage = "localhost/podium/kueue:v1"

// kueueOverlay changes what the manifests of the operator say about its image.
const kueueOverlay = `
resources: [config/default]
patches:
- target: {kind: Deployment, name: controller-manager}
  patch: |
    - {op: replace, path: /spec/template/spec/containers/0/image, value: "` + kueueImage + `"}
    - {op: replace, path: /spec/template/spec/containers/0/imagePullPolicy, value: IfNotPresent}
    - {op: add, path: /spec/template/spec/securityContext/runAsUser, value: 65532} # the image of the operator says it
`

// kueueQueues has CPU for one of the Jobs below at a time. The cohort is written in an older
// version, whose field has another name than in the version that is stored.
const kueueQueues = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: batch}
spec:
  cohort: everyone
  namespaceSelector: {}
  preemption: {withinClusterQueue: LowerPriority}
  resourceGroups:
  - coveredResources: [cpu]
    flavors: [{name: any, resources: [{name: cpu, nominalQuota: 30m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: WorkloadPriorityClass
metadata: {name: normal}
value: 500
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: jobs}
spec: {clusterQueue: batch}
`

// queuedJob is a Job of two pods that wait in the queue.
func queuedJob(name, labels, command string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: %s, labels: {kueue.x-k8s.io/queue-name: jobs%s}}
spec:
  parallelism: 2
  completions: 2
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - {name: main, image: "localhost/podium/busybox:v1", command: [sh, -c, "%s"], resources: {requests: {cpu: 10m}}}
`, name, labels, command)
}

// An operator runs from its own manifests, with its own account: 11 kinds with validation by CEL,
// several versions and webhooks that convert, webhooks for Jobs and pods, and an API of its own that
// is aggregated. It suspends Jobs and resumes them in the order of their priority. Its webhooks are
// about all pods, so no other test runs beside it.
func TestKueue(t *testing.T) {
	if _, err := os.Stat(the.bin("peers/kueue.tar")); err != nil {
		t.Skip("there is no image of the operator: hack/peers kueue builds it, make soak runs this")
	}
	s := newSpace(t)
	installKueue(t)
	kubectl := func(stdin string, args ...string) (string, error) {
		return the.try(t.Context(), stdin, the.bin("peers/kubectl"), append([]string{"-n", s.name}, args...)...)
	}
	eventually(t, 3*time.Minute, "the webhooks admit queues", func() error {
		_, err := kubectl(kueueQueues, "apply", "-f", "-")
		return err
	})
	t.Cleanup(func() { // t's context has ended, and the operator has to remove finalizers
		remove(t, "--wait", "jobs,workloads,localqueues", "--all", "-n", s.name)
		remove(t, "--wait", "clusterqueues,resourceflavors,workloadpriorityclasses", "--all")
	})
	k := kueue{s, kubectl}
	k.converts()
	k.refuses()
	k.queues()
	k.preempts()
	k.survives()
}

type kueue struct {
	*space
	kubectl func(stdin string, args ...string) (string, error)
}

// converts reads objects in the other version than they were written in.
func (k kueue) converts() {
	k.Helper()
	for resource, field := range map[string]string{"clusterqueues.v1beta1.kueue.x-k8s.io": "{.spec.cohort}", "clusterqueues.v1beta2.kueue.x-k8s.io": "{.spec.cohortName}"} {
		if got := k.podium("get", resource, "batch", "-o", "jsonpath="+field); got != "everyone" {
			k.Errorf("%s: %s is %q", resource, field, got)
		}
	}
}

// refuses has a rule of the CRD and a webhook refuse objects.
func (k kueue) refuses() {
	k.Helper()
	bad := strings.Replace(strings.Split(kueueQueues, "---")[1], "cohort: everyone", "", 1)
	bad = strings.Replace(bad, "nominalQuota: 30m", "nominalQuota: 30m, borrowingLimit: 1", 1)
	bad = strings.Replace(bad, "name: batch", "name: bad", 1)
	for manifest, why := range map[string]string{
		bad: "borrowingLimit must be nil when cohort is empty",
		strings.Replace(queuedJob("bad", "", "true"), "queue-name: jobs", "queue-name: Not_A_Name", 1): `admission webhook "vjob.kb.io" denied the request`,
	} {
		if out, err := k.kubectl(manifest, "create", "-f", "-"); err == nil || !strings.Contains(err.Error(), why) {
			k.Errorf("want a refusal that says %q, got %s, %v", why, out, err)
		}
	}
}

// queues starts two Jobs, of which one finds room. The API of the operator tells which one waits.
func (k kueue) queues() {
	k.Helper()
	k.create(queuedJob("first", ", kueue.x-k8s.io/priority-class: normal", "trap exit TERM; sleep 3600 & wait"))
	k.has("first", 2)
	k.create(queuedJob("second", "", "trap exit TERM; sleep 3600 & wait"))
	k.waits("second")
	k.has("second", 0)
}

// preempts starts an urgent Job, for which the first one is suspended until it has completed.
func (k kueue) preempts() {
	k.Helper()
	k.create(queuedJob("third", ", kueue.x-k8s.io/priority-class: urgent", "trap exit TERM; sleep 3600 & wait"))
	k.has("first", 0)
	k.has("third", 2)
	k.waits("first", "second")
	k.podium("delete", "job", "third")
	k.has("first", 2)
}

// survives kills the operator, and ends the first Job while there is none.
func (k kueue) survives() {
	k.Helper()
	if out, err := k.kubectl("", "-n", "kueue-system", "delete", "pod", "--all", "--force"); err != nil {
		k.Fatal(out, err)
	}
	k.podium("delete", "job", "first", "--wait=false")
	k.has("second", 2)
}

func (k kueue) create(manifest string) {
	k.Helper()
	if out, err := k.kubectl(manifest, "create", "-f", "-"); err != nil {
		k.Fatal(out, err)
	}
}

// has waits until a Job has active pods, and is suspended if it has none.
func (k kueue) has(name string, active int32) {
	k.Helper()
	eventually(k.T, 2*time.Minute, fmt.Sprintf("Job %s has %d pods", name, active), func() error {
		job, err := in[*batchv1.Job](k.space).Get(k.Context(), name)
		if err != nil {
			return err
		}
		if suspended := job.Spec.Suspend != nil && *job.Spec.Suspend; job.Status.Active != active || suspended != (active == 0) {
			return fmt.Errorf("it has %d, suspended %t: %v", job.Status.Active, suspended, job.Status.Conditions)
		}
		return nil
	})
}

// waits waits until the operator's aggregated API lists the workloads of exactly these Jobs.
func (k kueue) waits(jobs ...string) {
	k.Helper()
	eventually(k.T, time.Minute, "pending workloads", func() error {
		out, err := k.kubectl("", "get", "--raw", "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/batch/pendingworkloads")
		if err != nil {
			return err
		}
		var list struct {
			Items []metav1.PartialObjectMetadata
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		var names []string
		for _, one := range list.Items {
			names = append(names, one.OwnerReferences[0].Name)
		}
		if strings.Join(names, " ") != strings.Join(jobs, " ") {
			return fmt.Errorf("%v wait, want %v", names, jobs)
		}
		return nil
	})
}

// installKueue imports the image of the operator and applies its manifests. All that they
// make is deleted after the test.
func installKueue(t *testing.T) {
	t.Helper()
	importImage(t, "kueue")
	dir := the.bin("peers/kueue")
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kueueOverlay), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := the.try(context.Background(), "", the.bin("podium"), "-n", "kueue-system", "logs", "deployment/kueue-controller-manager", "--tail=60")
			t.Logf("the operator's log: %v\n%s", err, out)
		}
		remove(t, "-k", dir)
	})
	the.run(t, "", the.bin("peers/kubectl"), "apply", "--server-side", "-k", dir)
	eventually(t, 5*time.Minute, "the operator is rolled out", func() error { // its certificates come into a volume that is mounted
		_, err := the.try(t.Context(), "", the.bin("peers/kubectl"), "-n", "kueue-system", "rollout", "status", "deployment/kueue-controller-manager", "--timeout=100s")
		return err
	})
}
