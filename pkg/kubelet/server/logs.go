package server

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
	"podium/pkg/kubelet/logs"
	"podium/pkg/kubelet/podspec"
)

// containerLogs streams a container's log. Errors before the first byte have status
// 400 and upstream's texts, because the API server passes them on.
func (s *server) containerLogs(w http.ResponseWriter, r *http.Request) error {
	options, err := s.logOptions(r.URL.Query())
	if err != nil {
		return err
	}
	name := r.PathValue("container")
	pod, ok := s.find(r)
	if !ok {
		return failf(http.StatusNotFound, "pod %q does not exist", r.PathValue("pod"))
	}
	if podspec.Container(pod, name) == nil {
		return failf(http.StatusNotFound, "container %q not found in pod %q", name, pod.Name)
	}
	id, err := logOwner(pod, name, r.URL.Query().Get("previous") == "true")
	if err != nil {
		return failf(http.StatusBadRequest, "%v", err)
	}
	resp, err := s.Runtime.ContainerStatus(r.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: bareID(id)})
	if err != nil {
		s.Log.Info("container status for its log", "id", id, "err", cri.Message(err))
		return failf(http.StatusBadRequest, "unable to retrieve container logs for %v", id)
	}
	options.Running = func(ctx context.Context) (bool, error) {
		resp, err := s.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: bareID(id)})
		if cri.NotFound(err) {
			return false, nil // removed while its log was read
		}
		return resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING, err
	}
	out := &logWriter{w: w}
	err = logs.Read(r.Context(), s.LogsDir, resp.GetStatus().GetLogPath(), options, out, func() { http.NewResponseController(w).Flush() })
	if err != nil && !out.begun {
		return failf(http.StatusBadRequest, "%v", err)
	}
	return nil // the response has begun; the client has what there was
}

// queries passes requests with a query to LogQuery, if that is enabled.
func (s *server) queries(files http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.LogQuery != nil && r.URL.Path == "/logs/" && r.URL.Query().Has("query") {
			s.LogQuery.ServeHTTP(w, r)
			return
		}
		files.ServeHTTP(w, r)
	})
}

// logsDisabled responds as upstream does when the node's log files are not served.
func logsDisabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "logs endpoint is disabled.", http.StatusMethodNotAllowed)
}

// logWriter records whether the response has begun.
type logWriter struct {
	w     http.ResponseWriter
	begun bool
}

func (l *logWriter) Write(p []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	return l.w.Write(p)
}

// logOptions parses the query parameters of PodLogOptions.
func (s *server) logOptions(q url.Values) (logs.Options, error) {
	o := logs.Options{Follow: q.Get("follow") == "true", Timestamps: q.Get("timestamps") == "true", Log: s.Log}
	invalid := failf(http.StatusUnprocessableEntity, `{"message": "Invalid request."}`)
	undecodable := failf(http.StatusBadRequest, `{"message": "Unable to decode query."}`)
	number := func(name string, least int64) (*int64, error) {
		text := q.Get(name)
		if text == "" {
			return nil, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, undecodable
		}
		if n < least {
			return nil, invalid
		}
		return &n, nil
	}
	var err error
	if o.Tail, err = number("tailLines", 0); err != nil {
		return o, err
	}
	if o.Limit, err = number("limitBytes", 1); err != nil {
		return o, err
	}
	seconds, err := number("sinceSeconds", 1)
	if err != nil {
		return o, err
	}
	if seconds != nil {
		o.Since = s.Now().Add(-time.Duration(*seconds) * time.Second)
	}
	if text := q.Get("sinceTime"); text != "" {
		if seconds != nil {
			return o, invalid
		}
		if o.Since, err = time.Parse(time.RFC3339, text); err != nil {
			return o, undecodable
		}
	}
	switch q.Get("stream") {
	case "", corev1.LogStreamAll:
	case corev1.LogStreamStdout:
		o.Stream = "stdout"
	case corev1.LogStreamStderr:
		o.Stream = "stderr"
	default:
		return o, failf(http.StatusBadRequest, "invalid stream type %q", q.Get("stream"))
	}
	return o, nil
}

// logOwner returns the id of the container whose log is requested: the current one,
// or the previous one. The error texts are upstream's.
func logOwner(pod *corev1.Pod, name string, previous bool) (string, error) {
	st := statusOf(pod, name)
	if st == nil {
		return "", failf(0, "container %q in pod %q is not available", name, pod.Name)
	}
	last := st.LastTerminationState.Terminated
	switch state := st.State; {
	case previous:
		if last == nil || last.ContainerID == "" {
			return "", failf(0, "previous terminated container %q in pod %q not found", name, pod.Name)
		}
		return last.ContainerID, nil
	case state.Running != nil:
		return st.ContainerID, nil
	case state.Terminated != nil && state.Terminated.ContainerID != "":
		return state.Terminated.ContainerID, nil
	case last != nil && last.ContainerID != "":
		return last.ContainerID, nil
	case state.Terminated != nil || last != nil:
		return "", failf(0, "container %q in pod %q is terminated", name, pod.Name)
	case state.Waiting != nil:
		reason := state.Waiting.Reason
		switch reason {
		case "ErrImagePull":
			reason = "image can't be pulled"
		case "ImagePullBackOff":
			reason = "trying and failing to pull image"
		}
		return "", failf(0, "container %q in pod %q is waiting to start: %v", name, pod.Name, reason)
	}
	return "", failf(0, "container %q in pod %q is waiting to start - no logs yet", name, pod.Name)
}
