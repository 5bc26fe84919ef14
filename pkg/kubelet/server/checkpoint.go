package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/podspec"
)

// checkpointDir is the directory of checkpoints below RootDir. A checkpoint is a copy of a
// container's memory and files: only root may read it.
const checkpointDir = "checkpoints"

// checkpoint makes the runtime write a checkpoint of a container to a file, and answers with
// its path. The container runs on.
func (s *server) checkpoint(w http.ResponseWriter, r *http.Request) error {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	pod, ok := s.find(r)
	if !ok {
		return failf(http.StatusNotFound, "pod does not exist")
	}
	if podspec.Container(pod, container) == nil {
		return failf(http.StatusNotFound, "container %s does not exist", container)
	}
	timeout, err := checkpointTimeout(r)
	if err != nil {
		return err
	}
	path, err := s.writeCheckpoint(r, pod, container, timeout)
	if err != nil {
		return failf(http.StatusInternalServerError, "checkpointing of %s/%s/%s failed (%v)", namespace, name, container, err)
	}
	s.Log.Info("container checkpointed", "pod", namespace+"/"+name, "container", container, "file", path)
	return writeJSON(w, map[string]any{"items": []string{path}})
}

// checkpointTimeout returns the seconds that the runtime has for a checkpoint: the last value
// of the parameter timeout; 0: the runtime's default.
func checkpointTimeout(r *http.Request) (int64, error) {
	values := r.URL.Query()["timeout"]
	if len(values) == 0 {
		return 0, nil
	}
	seconds, err := strconv.ParseInt(values[len(values)-1], 10, 32)
	if err != nil || seconds < 0 {
		return 0, failf(http.StatusBadRequest, "cannot parse value of timeout parameter")
	}
	return seconds, nil
}

// writeCheckpoint returns the path of the new checkpoint.
func (s *server) writeCheckpoint(r *http.Request, pod *corev1.Pod, container string, timeout int64) (string, error) {
	status := statusOf(pod, container)
	if status == nil || status.ContainerID == "" {
		return "", fmt.Errorf("container %s not found", container)
	}
	dir := filepath.Join(s.RootDir, checkpointDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", pod.Name, pod.Namespace, container, s.Now().Format(time.RFC3339)))
	_, err := s.Runtime.CheckpointContainer(r.Context(), &runtimeapi.CheckpointContainerRequest{ContainerId: bareID(status.ContainerID), Location: path, Timeout: timeout})
	return path, err
}
