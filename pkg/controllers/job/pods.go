package job

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
)

const (
	indexEnv     = "JOB_COMPLETION_INDEX"
	maxName      = 63
	suffixLength = 5
)

// podNames returns the names of the next pods, one for each index: the first ones for which
// taken returns false. taken reports whether the informer shows a pod of a name. A pod that it
// does not show yet, because the response to its creation was lost, gets its name again, and
// the API refuses to create it twice.
func podNames(job *batchv1.Job, indexes []int, taken func(name string) bool) []string {
	var out []string
	attempt := 0
	for _, index := range indexes {
		if index != noIndex {
			attempt = 0
		}
		for ; ; attempt++ {
			if name := podName(job, index, attempt); !taken(name) {
				out = append(out, name)
				attempt++
				break
			}
		}
	}
	return out
}

// podName returns the name of a pod: that of the Job, the index if there is one, and five
// characters that depend on the Job's UID and the attempt.
func podName(job *batchv1.Job, index, attempt int) string {
	suffix := "-"
	if index != noIndex {
		suffix = fmt.Sprintf("-%d-", index)
	}
	h := fnv.New64a()
	fmt.Fprint(h, job.UID, index, attempt)
	hash := rand.SafeEncodeString(strconv.FormatUint(h.Sum64(), 36))
	prefix := job.Name[:min(len(job.Name), maxName-suffixLength-len(suffix))]
	return prefix + suffix + hash[len(hash)-suffixLength:]
}

// identify makes pod, which is new, a pod of v's Job with an index.
func (v *view) identify(pod *corev1.Pod, name string, index int) {
	pod.Name, pod.GenerateName = name, ""
	if !tracked(pod) {
		pod.Finalizers = append(pod.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if index == noIndex {
		return
	}
	number := strconv.Itoa(index)
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, number)
	metav1.SetMetaDataLabel(&pod.ObjectMeta, batchv1.JobCompletionIndexAnnotation, number)
	pod.Spec.Hostname = v.Name + "-" + number
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			addIndexEnv(&list[i])
		}
	}
	if v.perIndex() {
		v.addFailures(pod, v.last[index])
	}
}

func addIndexEnv(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == indexEnv }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: indexEnv, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['" + batchv1.JobCompletionIndexAnnotation + "']"},
	}})
}

// addFailures notes on a pod how often its index has failed, replaced being the pod that did
// last; nil: never.
func (v *view) addFailures(pod, replaced *corev1.Pod) {
	counted, ignored := 0, 0
	if replaced != nil {
		counted, ignored = indexFailures(replaced)
		if matchFailure(v.Spec.PodFailurePolicy, replaced).ignored() {
			ignored++
		} else {
			counted++
		}
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(counted))
	if ignored > 0 {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(ignored))
	}
}
