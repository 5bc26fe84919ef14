package server

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/stats"
)

// pods writes the list of the node's pods, as the kubelet has them.
func (s *server) pods(w http.ResponseWriter, r *http.Request) error {
	list := newPodList()
	for _, p := range s.Pods() {
		list.Items = append(list.Items, *p)
	}
	return writeJSON(w, list)
}

func newPodList() *corev1.PodList {
	return &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
}

// runningPods writes the list of the pods whose containers run in the runtime, even
// if the API does not have them.
func (s *server) runningPods(w http.ResponseWriter, r *http.Request) error {
	resp, err := s.Runtime.ListContainers(r.Context(), &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}})
	if err != nil {
		return fmt.Errorf("list containers: %s", cri.Message(err))
	}
	byUID := map[types.UID]*corev1.Pod{}
	for _, c := range resp.Containers {
		uid := types.UID(c.Labels[cri.LabelPodUID])
		pod := byUID[uid]
		if pod == nil {
			pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.Labels[cri.LabelPodName], Namespace: c.Labels[cri.LabelPodNamespace], UID: uid}}
			byUID[uid] = pod
		}
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: c.Labels[cri.LabelContainerName], Image: c.GetImage().GetImage()})
	}
	list := newPodList()
	for _, p := range byUID {
		list.Items = append(list.Items, *p)
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	return writeJSON(w, list)
}

func (s *server) summary(w http.ResponseWriter, r *http.Request) error {
	sum, err := s.stats.Summary(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, sum)
}

func (s *server) resourceMetrics(w http.ResponseWriter, r *http.Request) error {
	sum, err := s.stats.Summary(r.Context())
	if err != nil {
		s.Log.Warn("measure containers failed", "err", err)
		sum = nil
	}
	return writeSeries(w, stats.ResourceMetrics(sum))
}

func (s *server) containerMetrics(w http.ResponseWriter, r *http.Request) error {
	sum, err := s.stats.Summary(r.Context())
	if err != nil {
		return err
	}
	return writeSeries(w, stats.ContainerMetrics(sum))
}

func writeSeries(w http.ResponseWriter, text string) error {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = io.WriteString(w, text) // an error means that the client has gone
	return nil
}

// find returns the pod in the request's path; if the path has a uid, only that pod.
func (s *server) find(r *http.Request) (*corev1.Pod, bool) {
	namespace, name, uid := r.PathValue("namespace"), r.PathValue("pod"), types.UID(r.PathValue("uid"))
	var found *corev1.Pod
	for _, p := range s.Pods() {
		if p.Namespace != namespace || p.Name != name || uid != "" && p.UID != uid {
			continue
		}
		// A deleted pod and its successor may have the same name for a while.
		if found == nil || found.DeletionTimestamp != nil && p.DeletionTimestamp == nil {
			found = p
		}
	}
	return found, found != nil
}

// statusOf returns the status of a container of any type; nil if there is none.
func statusOf(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// bareID strips the runtime's name from a container id: containerd://abc.
func bareID(id string) string {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return bare
	}
	return id
}
