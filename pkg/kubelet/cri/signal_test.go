package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestSignalsKeepTheirMeaning(t *testing.T) {
	for n, name := range runtimeapi.Signal_name {
		if got := Signal(SignalName(runtimeapi.Signal(n))); got != runtimeapi.Signal(n) {
			t.Errorf("%s becomes %s", name, got)
		}
	}
	if got := SignalName(runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3); *got != "SIGRTMIN+3" {
		t.Errorf("the API calls SIGRTMINPLUS3 %s", *got)
	}
}
