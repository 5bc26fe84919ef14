package statefulset

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := NewMetrics(r)
	if n, err := testutil.GatherAndCount(r); n != 0 || err != nil {
		t.Errorf("%d series, %v while another replica leads", n, err)
	}
	states := func() []*state {
		return []*state{stateOf(setOf(5, parallel, unavailable("40%")), podsOf("0:v1+ 1:v1+ 2:v1 4:v1f"), "", "", time.Now())}
	}
	m.states.Store(&states)
	const want = `
# HELP statefulset_controller_statefulset_max_unavailable How many replicas a rolling update of a StatefulSet may make unavailable
# TYPE statefulset_controller_statefulset_max_unavailable gauge
statefulset_controller_statefulset_max_unavailable{pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="ns"} 2
# HELP statefulset_controller_statefulset_unavailable_replicas How many replicas of a StatefulSet are unavailable
# TYPE statefulset_controller_statefulset_unavailable_replicas gauge
statefulset_controller_statefulset_unavailable_replicas{pod_management_policy="Parallel",statefulset_name="web",statefulset_namespace="ns"} 3
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
