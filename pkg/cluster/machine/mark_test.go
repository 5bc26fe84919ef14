package machine

import (
	"encoding/json"
	"slices"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestControlPlaneMark checks that the mark keeps the taints of controllers,
// and the taint that an operator removed stays removed.
func TestControlPlaneMark(t *testing.T) {
	const waits = "node.cloudprovider.kubernetes.io/uninitialized"
	for name, row := range map[string]struct {
		where  Placement
		marked bool
		taints []string
		want   []string
	}{
		"New":            {Dedicated, false, nil, []string{controlPlaneLabel}},
		"WaitsToBeMet":   {Dedicated, false, []string{waits}, []string{waits, controlPlaneLabel}},
		"Shared":         {Shared, false, []string{waits}, []string{waits}},
		"TaintTakenAway": {Dedicated, true, []string{waits}, []string{waits}},
		"TaintedAtFirst": {Dedicated, false, []string{controlPlaneLabel}, []string{controlPlaneLabel}},
		"MarkedBefore":   {Dedicated, true, []string{controlPlaneLabel}, []string{controlPlaneLabel}},
	} {
		t.Run(name, func(t *testing.T) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: "7"}}
			if row.marked {
				node.Labels = map[string]string{controlPlaneLabel: ""}
			}
			for _, key := range row.taints {
				node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
			}
			patch, err := controlPlaneMark(node, row.where)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(node)
			if err != nil {
				t.Fatal(err)
			}
			if text, err = jsonpatch.MergePatch(text, patch); err != nil {
				t.Fatal(err)
			}
			got := &corev1.Node{}
			if err := json.Unmarshal(text, got); err != nil {
				t.Fatal(err)
			}
			var keys []string
			for _, taint := range got.Spec.Taints {
				keys = append(keys, taint.Key)
			}
			if _, ok := got.Labels[controlPlaneLabel]; !ok || !slices.Equal(keys, row.want) {
				t.Errorf("labels %v, taints %v, want %v", got.Labels, keys, row.want)
			}
			var body corev1.Node
			if err := json.Unmarshal(patch, &body); err != nil {
				t.Fatal(err)
			}
			if len(body.Spec.Taints) > 0 && body.ResourceVersion != "7" {
				t.Errorf("%s would overwrite the taints that somebody else has written meanwhile", patch)
			}
		})
	}
}
