package statefulset

import (
	"maps"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	podstate "podium/pkg/controller/pods"
)

// ordinalOf returns the ordinal of a pod, and whether the pod's name is one of the set's.
func ordinalOf(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	digits, ok := strings.CutPrefix(pod.Name, set.Name+"-")
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	return int(n), err == nil && n >= 0 && strconv.FormatInt(n, 10) == digits
}

func firstOrdinal(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// indexOf returns the index of a pod among the replicas, and whether it is one of them.
func indexOf(set *appsv1.StatefulSet, pod *corev1.Pod) (int, bool) {
	ordinal, _ := ordinalOf(set, pod)
	i := ordinal - firstOrdinal(set)
	return i, i >= 0 && i < int(*set.Spec.Replicas)
}

// identity returns the labels that tell a pod of a set from the others.
func identity(name string, ordinal int) map[string]string {
	return map[string]string{appsv1.StatefulSetPodNameLabel: name, appsv1.PodIndexLabel: strconv.Itoa(ordinal)}
}

// identified reports whether the pod has the labels of its identity.
func identified(pod *corev1.Pod, ordinal int) bool {
	for k, v := range identity(pod.Name, ordinal) {
		if pod.Labels[k] != v {
			return false
		}
	}
	return true
}

// identify makes pod, which is made from the set's template, the pod of an ordinal.
func identify(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int, revision string) *corev1.Pod {
	pod.Name = set.Name + "-" + strconv.Itoa(ordinal)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	maps.Copy(pod.Labels, identity(pod.Name, ordinal))
	pod.Labels[appsv1.StatefulSetRevisionLabel] = revision
	pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, set.Spec.ServiceName
	pod.Spec.Volumes = withClaims(set, pod.Spec.Volumes, ordinal)
	return pod
}

// withClaims returns the volumes of a pod: those of its claims, and those of the template
// that no claim replaces.
func withClaims(set *appsv1.StatefulSet, template []corev1.Volume, ordinal int) []corev1.Volume {
	var volumes []corev1.Volume
	claimed := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		claimed[t.Name] = true
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, t, ordinal)},
		}})
	}
	for _, v := range template {
		if !claimed[v.Name] {
			volumes = append(volumes, v)
		}
	}
	return volumes
}

func revisionOf(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// ready reports whether the pod runs and is ready. A pod that is being deleted may be.
func ready(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && podstate.Ready(pod)
}

// availability reports whether the pod is available and not being deleted; if it is ready
// and not yet available, wait is the remaining time. pod may be nil.
func availability(set *appsv1.StatefulSet, pod *corev1.Pod, now time.Time) (ok bool, wait time.Duration) {
	if pod == nil || pod.DeletionTimestamp != nil || !ready(pod) {
		return false, 0
	}
	return podstate.Available(pod, time.Duration(set.Spec.MinReadySeconds)*time.Second, now)
}

// running reports whether all containers of the pod run.
func running(pod *corev1.Pod) bool {
	for _, c := range pod.Status.ContainerStatuses {
		if c.State.Running == nil {
			return false
		}
	}
	return pod.Status.Phase == corev1.PodRunning
}
