package endpointslice

import (
	"cmp"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"podium/pkg/controllers/backends"
)

// draft is a slice being changed; was is nil for a new one.
type draft struct {
	*discoveryv1.EndpointSlice
	was     *discoveryv1.EndpointSlice
	dirty   bool
	changed time.Time // last change of an endpoint that was changed or added
}

// decide returns the changes after which the service's slices together hold the groups, at
// most limit endpoints each:
//
//  1. desired endpoints stay in their slices and are updated there;
//  2. new ones go to slices that change anyway;
//  3. the others go to the fullest slice that has room for all of them, otherwise to
//     slices that became empty, otherwise to new ones;
//  4. slices that are still empty are deleted, but one slice per family stays.
func decide(s *corev1.Service, groups []*group, have []*discoveryv1.EndpointSlice, limit int) backends.Plan {
	d := &decision{service: s, limit: limit, labels: labelsOf(s), names: map[string]bool{}}
	families := backends.Families(s)
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, es := range have {
		d.names[es.Name] = true
		key := backends.GroupKey(es.AddressType, es.Ports)
		byKey[key] = append(byKey[key], es)
	}
	for _, g := range groups {
		d.keep(g, byKey[g.key])
		delete(byKey, g.key)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		d.empty = append(d.empty, byKey[key]...)
	}
	for _, w := range d.waiting {
		d.place(w)
	}
	for _, family := range families {
		d.atLeastOne(discoveryv1.AddressType(family))
	}
	return d.plan()
}

type decision struct {
	service *corev1.Service
	limit   int
	labels  map[string]string
	names   map[string]bool // names in use

	drafts  []*draft
	empty   []*discoveryv1.EndpointSlice // reused, or else deleted
	waiting []waiting
}

// waiting are the endpoints of a group that are not in a slice yet.
type waiting struct {
	*group
	left []endpoint
	in   []*draft // the group's slices
}

// keep performs step 1 for one group.
func (d *decision) keep(g *group, have []*discoveryv1.EndpointSlice) {
	want := make(map[endpointKey]*endpoint, len(g.endpoints))
	for i := range g.endpoints {
		want[keyOf(g.endpoints[i].Endpoint)] = &g.endpoints[i]
	}
	w := waiting{group: g}
	for _, es := range have {
		draft := d.edit(es)
		draft.Endpoints = make([]discoveryv1.Endpoint, 0, len(es.Endpoints))
		for i := range es.Endpoints {
			key := keyOf(es.Endpoints[i])
			e, ok := want[key]
			if !ok || len(draft.Endpoints) == d.limit {
				continue
			}
			delete(want, key)
			draft.Endpoints = append(draft.Endpoints, e.Endpoint)
			if !sameEndpoint(&e.Endpoint, &es.Endpoints[i]) {
				draft.touch(e)
			}
		}
		draft.dirty = draft.dirty || len(draft.Endpoints) != len(es.Endpoints)
		if len(draft.Endpoints) == 0 {
			d.empty = append(d.empty, es)
			continue
		}
		d.drafts = append(d.drafts, draft)
		w.in = append(w.in, draft)
	}
	for i := range g.endpoints {
		if _, missing := want[keyOf(g.endpoints[i].Endpoint)]; missing {
			w.left = append(w.left, g.endpoints[i])
		}
	}
	d.waiting = append(d.waiting, w)
}

// place performs steps 2 and 3 for one group.
func (d *decision) place(w waiting) {
	byRoom := slices.SortedStableFunc(slices.Values(w.in), func(a, b *draft) int { return cmp.Compare(len(b.Endpoints), len(a.Endpoints)) })
	for _, draft := range byRoom {
		if draft.dirty {
			w.left = d.fill(draft, w.left)
		}
	}
	for len(w.left) > 0 {
		target := (*draft)(nil)
		for _, draft := range byRoom { // the fullest first
			if !draft.dirty && len(draft.Endpoints)+len(w.left) <= d.limit {
				target = draft
				break
			}
		}
		if target == nil {
			target = d.blank(w.family, w.ports)
		}
		w.left = d.fill(target, w.left)
	}
}

func (d *decision) fill(to *draft, from []endpoint) (left []endpoint) {
	n := min(len(from), d.limit-len(to.Endpoints))
	for i := range from[:n] {
		to.Endpoints = append(to.Endpoints, from[i].Endpoint)
		to.touch(&from[i])
	}
	return from[n:]
}

// blank returns a slice without endpoints: an unused one or a new one.
func (d *decision) blank(family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *draft {
	for i, es := range d.empty {
		if es.AddressType == family {
			d.empty = slices.Delete(d.empty, i, i+1)
			draft := d.edit(es)
			draft.dirty = draft.dirty || len(es.Endpoints) > 0 || backends.GroupKey(family, ports) != backends.GroupKey(family, es.Ports)
			draft.Endpoints, draft.Ports = []discoveryv1.Endpoint{}, ports
			d.drafts = append(d.drafts, draft)
			return draft
		}
	}
	name := ""
	for n := 0; ; n++ {
		if name = d.service.Name + "-" + suffix(d.service.UID, family, n); !d.names[name] {
			break
		}
	}
	d.names[name] = true
	draft := &draft{EndpointSlice: newSlice(d.service, name, family, ports), dirty: true}
	d.drafts = append(d.drafts, draft)
	return draft
}

// atLeastOne performs step 4: a service without endpoints has an empty slice.
func (d *decision) atLeastOne(family discoveryv1.AddressType) {
	for _, draft := range d.drafts {
		if draft.AddressType == family {
			return
		}
	}
	d.blank(family, []discoveryv1.EndpointPort{})
}

// edit starts a change of a slice and updates its labels.
func (d *decision) edit(es *discoveryv1.EndpointSlice) *draft {
	next := *es // endpoints and ports are replaced, never changed in place
	next.Labels = d.labels
	return &draft{EndpointSlice: &next, was: es, dirty: !maps.Equal(d.labels, es.Labels)}
}

func (d *decision) plan() backends.Plan {
	p := backends.Plan{Delete: d.empty}
	for _, x := range d.drafts {
		if !x.dirty {
			continue
		}
		x.Annotations = maps.Clone(x.Annotations)
		delete(x.Annotations, corev1.EndpointsLastChangeTriggerTime)
		if !x.changed.IsZero() {
			if x.Annotations == nil {
				x.Annotations = map[string]string{}
			}
			x.Annotations[corev1.EndpointsLastChangeTriggerTime] = x.changed.UTC().Format(time.RFC3339Nano)
		}
		if x.was == nil {
			p.Create = append(p.Create, x.EndpointSlice)
		} else {
			p.Update = append(p.Update, x.EndpointSlice)
		}
	}
	return p
}

func (x *draft) touch(e *endpoint) {
	x.dirty = true
	if e.changed.After(x.changed) {
		x.changed = e.changed
	}
}

// endpointKey identifies an endpoint: a pod's address, or an address only.
type endpointKey struct {
	uid types.UID
	ip  string
}

func keyOf(e discoveryv1.Endpoint) endpointKey {
	k := endpointKey{}
	if e.TargetRef != nil {
		k.uid = e.TargetRef.UID
	}
	if len(e.Addresses) > 0 {
		k.ip = e.Addresses[0]
	}
	return k
}

// suffix returns the name suffix of a service's n-th slice. It is deterministic, so that a
// retried create does not create a second slice.
func suffix(service types.UID, family discoveryv1.AddressType, n int) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789"
	h := fnv.New64a()
	h.Write([]byte(string(service) + string(family) + strconv.Itoa(n)))
	sum := h.Sum64()
	out := make([]byte, 5)
	for i := range out {
		out[i] = alphabet[sum%uint64(len(alphabet))]
		sum /= uint64(len(alphabet))
	}
	return string(out)
}
