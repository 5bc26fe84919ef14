package podspec_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/podspec"
)

// Every signal of the runtime's API is accepted, and no other: the kubelet can pass on
// what the API server accepts.
func TestEverySignalOfTheRuntimeIsAccepted(t *testing.T) {
	spec := minimal()
	spec.OS = &corev1.PodOS{Name: corev1.Linux}
	podspec.Default(spec)
	for n, name := range runtimeapi.Signal_name {
		if n == int32(runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT) {
			continue
		}
		signal := corev1.Signal(strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(strings.TrimPrefix(name, "SIGNAL_")))
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &signal}
		if errs := podspec.Validate(spec, field.NewPath("spec")); len(errs) > 0 {
			t.Errorf("%s: %v", name, errs)
		}
	}
	for _, bad := range []corev1.Signal{"", "TERM", "SIGRTMIN+16", "SIGRTMAX-15", "RUNTIME_DEFAULT", "SIGRTMINPLUS1"} {
		spec.Containers[0].Lifecycle = &corev1.Lifecycle{StopSignal: &bad}
		if errs := podspec.Validate(spec, field.NewPath("spec")); len(errs) != 1 || errs[0].Type != field.ErrorTypeNotSupported {
			t.Errorf("%q: %v", bad, errs)
		}
	}
}

func TestTCPHooksWarn(t *testing.T) {
	spec := minimal()
	tcp := &corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{}}
	spec.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: tcp, PreStop: tcp}
	got := podspec.Warnings(spec, field.NewPath("spec"))
	const detail = ".tcpSocket: deprecated: lifecycle hooks do not support tcpSocket, the hook fails when it runs"
	if len(got) != 2 || got[0] != "spec.containers[0].lifecycle.postStart"+detail || got[1] != "spec.containers[0].lifecycle.preStop"+detail {
		t.Errorf("warnings %q", got)
	}
}
