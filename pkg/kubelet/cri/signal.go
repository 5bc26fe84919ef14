package cri

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// signalPrefix begins the runtime's names of signals.
const signalPrefix = "SIGNAL_"

// Signal returns the runtime's value of a stop signal; nil is the runtime's default.
func Signal(s *corev1.Signal) runtimeapi.Signal {
	if s == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*s))
	return runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+name])
}

// SignalName returns the API's name of a signal that the runtime reports; nil if it
// reports none.
func SignalName(s runtimeapi.Signal) *corev1.Signal {
	if s == runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return nil
	}
	name := corev1.Signal(strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(strings.TrimPrefix(s.String(), signalPrefix)))
	return &name
}
