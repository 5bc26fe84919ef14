package workloads

import (
	"context"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/client"
	"podium/test/e2e/docked"
)

const indexed = `
apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  completionMode: Indexed
  completions: 500
  parallelism: 30
  backoffLimitPerIndex: 3
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: localhost/podium/busybox:v1
        imagePullPolicy: Never
        command: [sh, -c, 'test $JOB_COMPLETION_INDEX -ge 0']
`

// A Job of 500 indexes completes each of them once, while the controller manager, the scheduler
// and kubelets are killed: no index ever has two active pods.
func TestAJobOf500Indexes(t *testing.T) {
	s := the.Space(t)
	keep(t, s.Pods, "batch.kubernetes.io/job-name=many", func(pods map[types.UID]*corev1.Pod) error {
		have := map[string]string{}
		for _, pod := range pods {
			index := pod.Annotations[batchv1.JobCompletionIndexAnnotation]
			if !active(pod) {
				continue
			}
			if other := have[index]; other != "" {
				return fmt.Errorf("%s and %s are active, both of index %s", pod.Name, other, index)
			}
			have[index] = pod.Name
		}
		if len(have) > 30 {
			return fmt.Errorf("%d pods are active, and the parallelism is 30", len(have))
		}
		return nil
	})
	s.Apply(indexed)
	// A kill undoes the starts that are under way: a kubelet has three minutes for the next.
	k := startKills(t, 30*time.Second, append([]victim{{plane, "kube-controller-manager"}, {plane, "kube-scheduler"}}, kubelets()...))
	docked.Eventually(t, 20*time.Minute, "the Job is complete", func(ctx context.Context) error {
		job, err := client.For[*batchv1.Job](s.API).In(s.Namespace).Get(ctx, "many")
		if err != nil {
			return err
		}
		if job.Status.Succeeded != 500 || job.Status.CompletedIndexes != "0-499" || job.Status.CompletionTime == nil {
			return fmt.Errorf("%+v", job.Status)
		}
		return nil
	})
	k.stop()
}
