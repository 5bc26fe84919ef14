package allocation

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/deviceselector"
)

// FuzzAllocation searches devices for claims of any shape in slices of any shape. What it finds
// can be used by the node, and each device once.
func FuzzAllocation(f *testing.F) {
	f.Add([]byte(`[{"spec":{"driver":"d.example.com","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},
		"sharedCounters":[{"name":"set","counters":{"c":{"value":"3"}}}],
		"devices":[{"name":"a","attributes":{"model":{"string":"x"}},"capacity":{"m":{"value":"4"}},"consumesCounters":[{"counterSet":"set","counters":{"c":{"value":"2"}}}]},
			{"name":"b","allowMultipleAllocations":true,"capacity":{"m":{"value":"4","requestPolicy":{"default":"1","validRange":{"min":"1","step":"1"}}}},"taints":[{"key":"k","effect":"NoSchedule"}]}]}}]`),
		[]byte(`[{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","allocationMode":"ExactCount","count":1,"selectors":[{"cel":{"expression":"device.attributes['d.example.com'].model == 'x'"}}]}},
			{"name":"s","firstAvailable":[{"name":"t","deviceClassName":"c","allocationMode":"All","capacity":{"requests":{"m":"2"}}}]}],"constraints":[{"matchAttribute":"d.example.com/model"}]}}]`))
	f.Add([]byte(`[{"spec":{"pool":{"generation":-1}}},{"spec":{"devices":[{},{}],"allNodes":true,"pool":{"resourceSliceCount":-5}}}]`),
		[]byte(`[{"devices":{"requests":[{"exactly":{"count":-1}},{"exactly":{"allocationMode":"All"}}]}}]`))
	compiler := deviceselector.NewCompiler()
	f.Fuzz(func(t *testing.T, slices, specs []byte) {
		var published []*resourcev1.ResourceSlice
		var wanted []*resourcev1.ResourceClaimSpec
		if json.Unmarshal(slices, &published) != nil || json.Unmarshal(specs, &wanted) != nil {
			return
		}
		index := NewIndex()
		for _, s := range published {
			if s != nil {
				index.SetSlice(s)
			}
		}
		var claims []Claim
		for _, spec := range wanted {
			if spec != nil {
				claims = append(claims, Claim{Name: "c", Spec: spec})
			}
		}
		problem, err := NewProblem(claims, class, compiler, index, NewUsage())
		if err != nil {
			return
		}
		found, err := problem.On(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}})
		if err != nil {
			return
		}
		if len(found) != len(claims) {
			t.Fatalf("%d allocations for %d claims", len(found), len(claims))
		}
		have := map[DeviceID]bool{}
		for _, a := range found {
			for _, r := range a.Devices.Results {
				id := DeviceID{Driver: r.Driver, Pool: r.Pool, Device: r.Device}
				if have[id] && r.ShareID == nil && r.AdminAccess == nil {
					t.Errorf("%v is allocated twice", id)
				}
				have[id] = true
			}
		}
	})
}
