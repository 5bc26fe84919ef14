package cri

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Runtime makes sandboxes and containers.
type Runtime = runtimeapi.RuntimeServiceClient

// Images pulls, lists and removes images.
type Images = runtimeapi.ImageServiceClient

// The labels of sandboxes and containers. Upstream's names: tools on the node
// (crictl, log shippers) know them.
const (
	LabelPodName       = "io.kubernetes.pod.name"
	LabelPodNamespace  = "io.kubernetes.pod.namespace"
	LabelPodUID        = "io.kubernetes.pod.uid"
	LabelContainerName = "io.kubernetes.container.name"
)

// The annotations that carry what a restarted kubelet must know of a container.
const (
	AnnotationHash              = "io.kubernetes.container.hash"
	AnnotationRestartCount      = "io.kubernetes.container.restartCount"
	AnnotationMessagePath       = "io.kubernetes.container.terminationMessagePath"
	AnnotationMessagePolicy     = "io.kubernetes.container.terminationMessagePolicy"
	AnnotationGracePeriod       = "io.kubernetes.pod.terminationGracePeriod"
	AnnotationPreStop           = "io.kubernetes.container.preStopHandler"
	AnnotationRestartDelay      = "podium.dev/restart-delay" // the back-off to wait when this container has exited
	ReasonCompleted             = "Completed"
	ReasonError                 = "Error"
	ConditionRuntimeReady       = runtimeapi.RuntimeReady
	ConditionNetworkReady       = runtimeapi.NetworkReady
	maxMessageSize          int = 16 << 20
)

// NotFound says that the runtime does not know the sandbox or container.
func NotFound(err error) bool { return status.Code(err) == codes.NotFound }

// Unimplemented says that the runtime does not have the call.
func Unimplemented(err error) bool { return status.Code(err) == codes.Unimplemented }

// Uncertain says that the runtime may still do what it was asked for.
func Uncertain(err error) bool {
	switch status.Code(err) {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}

// Message is the error's text without gRPC's wrapping, as upstream shows it in
// statuses and events.
func Message(err error) string {
	if s, ok := status.FromError(err); ok {
		return s.Message()
	}
	return err.Error()
}
