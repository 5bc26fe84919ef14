package allocation

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"podium/pkg/deviceselector"
)

const driver = "d.example.com"

// world is a small random cluster of one node, as the reference sees it: plain lists.
type world struct {
	devices []resourcev1.Device
	total   resource.Quantity // of the counter that devices consume
	used    []string          // names of devices that are allocated as a whole
	shares  map[string]int64  // how much of shared devices is allocated
	claims  []*resourcev1.ResourceClaimSpec
}

func randomWorld(r *rand.Rand) *world {
	w := &world{shares: map[string]int64{}, total: *resource.NewQuantity(int64(r.IntN(6)), resource.DecimalSI)}
	for i := range 1 + r.IntN(5) {
		d := resourcev1.Device{Name: fmt.Sprint("d", i), Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"model": {StringValue: new([]string{"x", "y"}[r.IntN(2)])},
		}}
		if r.IntN(4) > 0 {
			d.Attributes["group"] = resourcev1.DeviceAttribute{IntValue: new(int64(r.IntN(3)))}
		}
		if r.IntN(3) == 0 {
			d.ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: "set", Counters: map[string]resourcev1.Counter{
				"c": {Value: *resource.NewQuantity(int64(1+r.IntN(3)), resource.DecimalSI)},
			}}}
		}
		if r.IntN(4) == 0 {
			d.Taints = []resourcev1.DeviceTaint{{Key: "k", Effect: resourcev1.DeviceTaintEffectNoSchedule}}
		}
		if r.IntN(3) == 0 {
			d.AllowMultipleAllocations = new(true)
			d.Capacity = map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{"m": {Value: *resource.NewQuantity(int64(1+r.IntN(4)), resource.DecimalSI)}}
			if r.IntN(3) == 0 {
				w.shares[d.Name] = 1
			}
		} else if r.IntN(4) == 0 {
			w.used = append(w.used, d.Name)
		}
		w.devices = append(w.devices, d)
	}
	for range 1 + r.IntN(2) {
		w.claims = append(w.claims, randomClaim(r))
	}
	return w
}

func randomClaim(r *rand.Rand) *resourcev1.ResourceClaimSpec {
	spec := &resourcev1.ResourceClaimSpec{}
	for i := range 1 + r.IntN(2) {
		req := resourcev1.DeviceRequest{Name: fmt.Sprint("r", i)}
		if r.IntN(3) == 0 {
			for j := range 2 {
				e := randomExact(r)
				req.FirstAvailable = append(req.FirstAvailable, resourcev1.DeviceSubRequest{
					Name: fmt.Sprint("s", j), DeviceClassName: e.DeviceClassName, AllocationMode: e.AllocationMode, Count: e.Count, Tolerations: e.Tolerations, Capacity: e.Capacity,
				})
			}
		} else {
			req.Exactly = randomExact(r)
		}
		spec.Devices.Requests = append(spec.Devices.Requests, req)
	}
	group := resourcev1.FullyQualifiedName(driver + "/group")
	switch r.IntN(4) {
	case 0:
		spec.Devices.Constraints = []resourcev1.DeviceConstraint{{MatchAttribute: &group}}
	case 1:
		spec.Devices.Constraints = []resourcev1.DeviceConstraint{{DistinctAttribute: &group, Requests: []string{"r0"}}}
	}
	return spec
}

func randomExact(r *rand.Rand) *resourcev1.ExactDeviceRequest {
	e := &resourcev1.ExactDeviceRequest{DeviceClassName: []string{"x", "y", "any"}[r.IntN(3)], AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: int64(1 + r.IntN(2))}
	if r.IntN(5) == 0 {
		e.AllocationMode, e.Count = resourcev1.DeviceAllocationModeAll, 0
	}
	if r.IntN(2) == 0 {
		e.Tolerations = []resourcev1.DeviceToleration{{Operator: resourcev1.DeviceTolerationOpExists}}
	}
	if r.IntN(4) == 0 {
		e.Capacity = &resourcev1.CapacityRequirements{Requests: quantities{"m": *resource.NewQuantity(int64(1+r.IntN(2)), resource.DecimalSI)}}
	}
	return e
}

// picked is a device that a request of a claim takes.
type picked struct {
	claim, device int
	request       string
	exact         *resourcev1.ExactDeviceRequest
}

// want is one way to choose among the alternatives of all requests.
type want struct {
	claim   int
	request string
	exact   *resourcev1.ExactDeviceRequest
}

// solvable tries every device for every place, and checks each complete choice as a whole.
func (w *world) solvable() bool {
	return w.alternatives(0, 0, nil)
}

func (w *world) alternatives(c, r int, chosen []want) bool {
	if c == len(w.claims) {
		return w.fill(chosen, nil)
	}
	requests := w.claims[c].Devices.Requests
	if r == len(requests) {
		return w.alternatives(c+1, 0, chosen)
	}
	q := requests[r]
	if q.Exactly != nil {
		return w.alternatives(c, r+1, append(chosen[:len(chosen):len(chosen)], want{c, q.Name, q.Exactly}))
	}
	for _, s := range q.FirstAvailable {
		e := &resourcev1.ExactDeviceRequest{DeviceClassName: s.DeviceClassName, AllocationMode: s.AllocationMode, Count: s.Count, Tolerations: s.Tolerations, Capacity: s.Capacity}
		if w.alternatives(c, r+1, append(chosen[:len(chosen):len(chosen)], want{c, q.Name + "/" + s.Name, e})) {
			return true
		}
	}
	return false
}

func (w *world) fill(wants []want, have []picked) bool {
	if len(wants) == 0 {
		return w.valid(have)
	}
	first := wants[0]
	if first.exact.AllocationMode == resourcev1.DeviceAllocationModeAll {
		for i := range w.devices {
			if w.matches(&w.devices[i], first.exact) {
				have = append(have[:len(have):len(have)], picked{first.claim, i, first.request, first.exact})
			}
		}
		return len(have) > 0 && have[len(have)-1].exact == first.exact && w.fill(wants[1:], have)
	}
	return w.places(wants, int(first.exact.Count), have)
}

func (w *world) places(wants []want, left int, have []picked) bool {
	if left == 0 {
		return w.fill(wants[1:], have)
	}
	for i := range w.devices {
		if w.matches(&w.devices[i], wants[0].exact) && w.places(wants, left-1, append(have[:len(have):len(have)], picked{wants[0].claim, i, wants[0].request, wants[0].exact})) {
			return true
		}
	}
	return false
}

// matches reports whether a device is what a request asks for.
func (w *world) matches(d *resourcev1.Device, e *resourcev1.ExactDeviceRequest) bool {
	if e.DeviceClassName != "any" && *d.Attributes["model"].StringValue != e.DeviceClassName {
		return false
	}
	if e.Capacity == nil {
		return true
	}
	has, ok := d.Capacity["m"]
	asks := e.Capacity.Requests["m"]
	return ok && asks.Cmp(has.Value) <= 0
}

func (w *world) valid(have []picked) bool {
	times, amount := map[int]int{}, map[int]int64{}
	for _, p := range have {
		d := &w.devices[p.device]
		if len(d.Taints) > 0 && len(p.exact.Tolerations) == 0 {
			return false
		}
		times[p.device]++
		takes := d.Capacity["m"].Value
		if p.exact.Capacity != nil {
			takes = p.exact.Capacity.Requests["m"]
		}
		amount[p.device] += takes.Value()
	}
	var counter int64
	for i := range w.devices {
		d := &w.devices[i]
		shared, size := d.AllowMultipleAllocations != nil, d.Capacity["m"].Value
		before := w.wasUsed(d.Name)
		if !shared && (times[i] > 1 || times[i] == 1 && before) || shared && times[i] > 0 && amount[i]+w.shares[d.Name] > size.Value() {
			return false
		}
		if len(d.ConsumesCounters) > 0 && (times[i] > 0 || before) {
			c := d.ConsumesCounters[0].Counters["c"].Value
			counter += c.Value()
		}
	}
	return w.constrained(have) && (counter <= w.total.Value() || !w.consumesMore(times))
}

// consumesMore reports whether a device is taken that consumes counters and was free before.
func (w *world) consumesMore(times map[int]int) bool {
	for i := range w.devices {
		if times[i] > 0 && len(w.devices[i].ConsumesCounters) > 0 && !w.wasUsed(w.devices[i].Name) {
			return true
		}
	}
	return false
}

func (w *world) wasUsed(name string) bool {
	for _, u := range w.used {
		if u == name {
			return true
		}
	}
	return w.shares[name] > 0
}

func (w *world) constrained(have []picked) bool {
	for i, a := range have {
		for _, c := range w.claims[a.claim].Devices.Constraints {
			x := w.devices[a.device].Attributes["group"].IntValue
			if !applies(c.Requests, a.request) {
				continue
			}
			if x == nil {
				return false
			}
			for j, b := range have {
				y := w.devices[b.device].Attributes["group"].IntValue
				if i == j || a.claim != b.claim || !applies(c.Requests, b.request) {
					continue
				}
				if y == nil || (*x == *y) != (c.MatchAttribute != nil) {
					return false
				}
			}
		}
	}
	return true
}

// problem returns the world as the allocator sees it.
func (w *world) problem(t *testing.T, compiler *deviceselector.Compiler) *Problem {
	index, usage := NewIndex(), NewUsage()
	spec := resourcev1.ResourceSliceSpec{Driver: driver, NodeName: new("n"), Pool: resourcev1.ResourcePool{Name: "p", Generation: 2, ResourceSliceCount: 2}}
	counters, devices := spec, spec
	counters.SharedCounters = []resourcev1.CounterSet{{Name: "set", Counters: map[string]resourcev1.Counter{"c": {Value: w.total}}}}
	devices.Devices = w.devices
	index.SetSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "devices"}, Spec: devices})
	index.SetSlice(&resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "counters"}, Spec: counters})
	before := &resourcev1.AllocationResult{}
	for _, name := range w.used {
		before.Devices.Results = append(before.Devices.Results, resourcev1.DeviceRequestAllocationResult{Driver: driver, Pool: "p", Device: name})
	}
	for name, n := range w.shares {
		before.Devices.Results = append(before.Devices.Results, resourcev1.DeviceRequestAllocationResult{
			Driver: driver, Pool: "p", Device: name, ConsumedCapacity: quantities{"m": *resource.NewQuantity(n, resource.DecimalSI)},
		})
	}
	usage.Add(before)
	var claims []Claim
	for i, spec := range w.claims {
		claims = append(claims, Claim{fmt.Sprint("c", i), spec})
	}
	p, err := NewProblem(claims, class, compiler, index, usage)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func class(name string) *resourcev1.DeviceClass {
	c := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name != "any" {
		c.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: fmt.Sprintf("device.attributes[%q].model == %q", driver, name)}}}
	}
	return c
}

// picked converts an answer of the allocator, so that the reference can check it.
func (w *world) picked(results []*resourcev1.AllocationResult) (out []picked) {
	for c, a := range results {
		for _, r := range a.Devices.Results {
			p := picked{claim: c, request: r.Request, exact: &resourcev1.ExactDeviceRequest{Tolerations: r.Tolerations}}
			for i := range w.devices {
				if w.devices[i].Name == r.Device {
					p.device = i
				}
			}
			if r.ConsumedCapacity != nil {
				p.exact.Capacity = &resourcev1.CapacityRequirements{Requests: r.ConsumedCapacity}
			}
			out = append(out, p)
		}
	}
	return out
}

// TestTheSearchAgreesWithTheReference compares the search with one that tries everything, on
// random small clusters, and lets the reference check what the search has found.
func TestTheSearchAgreesWithTheReference(t *testing.T) {
	compiler := deviceselector.NewCompiler()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	found, failed := 0, 0
	for seed := range uint64(3000) {
		w := randomWorld(rand.New(rand.NewPCG(seed, 1)))
		results, err := w.problem(t, compiler).On(node)
		if solvable := w.solvable(); solvable != (err == nil) {
			t.Fatalf("seed %d: %v, but a solution exists: %v\n%+v", seed, err, solvable, w)
		}
		if err != nil {
			failed++
			continue
		}
		found++
		if !w.valid(w.picked(results)) {
			t.Fatalf("seed %d: the result is wrong\n%+v\n%+v", seed, w, w.picked(results))
		}
	}
	if found < 300 || failed < 300 {
		t.Errorf("%d solved, %d not: the test shows little", found, failed)
	}
}

func TestAPoolThatIsBeingUpdatedIsNotUsed(t *testing.T) {
	index, usage := NewIndex(), NewUsage()
	slice := func(name string, generation, count int64, device string) *resourcev1.ResourceSlice {
		return &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "p", Generation: generation, ResourceSliceCount: count},
			Devices: []resourcev1.Device{{Name: device}},
		}}
	}
	spec := &resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "any", Count: 1}}}}}
	device := func() string {
		p, err := NewProblem([]Claim{{"c", spec}}, class, deviceselector.NewCompiler(), index, usage)
		if err != nil {
			t.Fatal(err)
		}
		results, err := p.On(&corev1.Node{})
		if err != nil {
			return err.Error()
		}
		return results[0].Devices.Results[0].Device
	}
	for _, step := range []struct {
		slice *resourcev1.ResourceSlice
		want  string
	}{
		{slice("a", 1, 1, "old"), "old"},
		{slice("b", 2, 2, "new"), ErrNoFit.Error()}, // the second slice of the generation is missing
		{slice("a", 2, 2, "other"), "other"},
		{slice("b", 2, 2, "other"), ErrNoFit.Error()}, // two devices have the same name
		{slice("b", 1, 1, "old"), ErrNoFit.Error()},   // the newest generation lacks a slice
	} {
		index.SetSlice(step.slice)
		if got := device(); got != step.want {
			t.Errorf("after %s of generation %d: %s, want %s", step.slice.Name, step.slice.Spec.Pool.Generation, got, step.want)
		}
	}
}
