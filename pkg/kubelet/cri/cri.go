package cri

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime is the CRI client for sandboxes and containers.
type Runtime = runtimeapi.RuntimeServiceClient

// Images is the CRI client for images.
type Images = runtimeapi.ImageServiceClient

// The labels of sandboxes and containers. They are upstream's, because tools on
// the node (crictl, log shippers) rely on them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// The annotations of a container from which a restarted kubelet recovers its
// state, and names of the CRI that other packages use.
const (
	AnnotationHash              = "io.kubernetes.container.hash"
	AnnotationRestartCount      = "io.kubernetes.container.restartCount"
	AnnotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	AnnotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationGracePeriod       = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationPreStop           = "io.kubernetes.container.preStopHandler"
	AnnotationRestartDelay      = "podium.dev/restart-delay" // the back-off before the next restart
	AnnotationResources         = "podium.dev/resources"     // CPU and memory when the container was created
	ReasonCompleted             = "Completed"
	ReasonError                 = "Error"
	ConditionRuntimeReady       = runtimeapi.RuntimeReady
	ConditionNetworkReady       = runtimeapi.NetworkReady
	maxMessageSize          int = 16 << 20
)

// OwnAnnotation reports whether an annotation of a container is the kubelet's.
func OwnAnnotation(key string) bool {
	switch key {
	case AnnotationHash, AnnotationRestartCount, AnnotationMessagePath, AnnotationMessagePolicy,
		AnnotationGracePeriod, AnnotationPreStop, AnnotationRestartDelay, AnnotationResources:
		return true
	}
	return false
}

// NotFound reports whether the runtime does not have the sandbox or container.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Unimplemented reports whether the runtime does not implement the call.
func Unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// Uncertain reports whether the runtime may still carry out the failed call.
func Uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}

// Message returns the error's text without gRPC's prefix, as upstream shows it in
// statuses and events.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
