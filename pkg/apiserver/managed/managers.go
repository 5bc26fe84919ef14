package managed

import (
	"bytes"
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/apiserver/budget"
)

// manager is an entry of metadata.managedFields, with its fields apart.
type manager struct {
	metav1.ManagedFieldsEntry
	fields *fieldSet
}

type managers []manager

// id is what tells managers of an object apart. An apply has one entry for all
// versions.
type id struct {
	name        string
	operation   metav1.ManagedFieldsOperationType
	version     string // of updates
	subresource string
}

func (m *manager) id() id {
	out := id{m.Manager, m.Operation, m.APIVersion, m.Subresource}
	if m.Operation == metav1.ManagedFieldsOperationApply {
		out.version = ""
	}
	return out
}

const fieldsV1 = "FieldsV1"

var noFields = []byte("{}")

func rawOf(e *metav1.ManagedFieldsEntry) []byte {
	if e.FieldsV1 == nil {
		return noFields
	}
	return e.FieldsV1.GetRawBytes()
}

// managers returns stored entries, which are valid.
func (t *Type) managers(entries []metav1.ManagedFieldsEntry) managers {
	out := make(managers, 0, len(entries)+1)
	for i := range entries {
		out = append(out, manager{entries[i], t.sets.of(rawOf(&entries[i]))})
	}
	return out
}

// decode returns the entries that a client sent, in their canonical form. It returns
// none if one of them cannot be decoded, and a 413 if they have too many fields.
func (t *Type) decode(entries []metav1.ManagedFieldsEntry) (managers, error) {
	at := map[id]int{}
	var out managers
	for i := range entries {
		e := entries[i]
		switch {
		case e.Operation != metav1.ManagedFieldsOperationApply && e.Operation != metav1.ManagedFieldsOperationUpdate,
			e.APIVersion == "", e.FieldsType != fieldsV1:
			return nil, nil
		}
		raw := rawOf(&e)
		if err := budget.TrackFields(raw); err != nil {
			return nil, err
		}
		set := &fieldpath.Set{}
		if set.FromJSON(bytes.NewReader(raw)) != nil {
			return nil, nil
		}
		canonical, err := set.ToJSON()
		if err != nil {
			return nil, nil
		}
		m := manager{e, t.sets.of(canonical)}
		if have, twice := at[m.id()]; twice {
			out[have] = m
			continue
		}
		at[m.id()] = len(out)
		out = append(out, m)
	}
	return out, nil
}

// equalEntries reports whether two lists are equal.
func equalEntries(a, b []metav1.ManagedFieldsEntry) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool {
		return sameButTime(&x, &y) && x.Time.Equal(y.Time)
	})
}

// sameButTime reports whether two entries are equal but for their time.
func sameButTime(x, y *metav1.ManagedFieldsEntry) bool {
	return x.Manager == y.Manager && x.Operation == y.Operation && x.APIVersion == y.APIVersion && x.Subresource == y.Subresource &&
		x.FieldsType == y.FieldsType && bytes.Equal(rawOf(x), rawOf(y))
}

// OnlyTimes reports whether two lists differ, and only in times.
func OnlyTimes(a, b []metav1.ManagedFieldsEntry) bool {
	moved := false
	return slices.EqualFunc(a, b, func(x, y metav1.ManagedFieldsEntry) bool {
		moved = moved || !x.Time.Equal(y.Time)
		return sameButTime(&x, &y)
	}) && moved
}

// encode returns the entries in upstream's order.
func (all managers) encode() []metav1.ManagedFieldsEntry {
	if len(all) == 0 {
		return nil
	}
	out := make([]metav1.ManagedFieldsEntry, len(all))
	for i, m := range all {
		out[i] = m.ManagedFieldsEntry
		out[i].FieldsType, out[i].FieldsV1 = fieldsV1, &metav1.FieldsV1{}
		out[i].FieldsV1.SetRawBytes(m.fields.raw)
	}
	slices.SortFunc(out, func(p, q metav1.ManagedFieldsEntry) int {
		return cmp.Or(
			cmp.Compare(p.Operation, q.Operation), cmp.Compare(seconds(p.Time), seconds(q.Time)), cmp.Compare(p.Manager, q.Manager),
			cmp.Compare(p.APIVersion, q.APIVersion), cmp.Compare(p.Subresource, q.Subresource))
	})
	return out
}

func seconds(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// As upstream, an object keeps at most maxUpdaters managers of updates: the oldest of
// each version become one.
const (
	maxUpdaters = 10
	ancient     = "ancient-changes"
)

// limit merges the oldest updaters if there are too many.
func (all managers) limit(t *Type) (managers, error) {
	var updaters managers
	for _, m := range all {
		if m.Operation == metav1.ManagedFieldsOperationUpdate {
			updaters = append(updaters, m)
		}
	}
	excess := len(updaters) - maxUpdaters
	if excess <= 0 {
		return all, nil
	}
	slices.SortFunc(updaters, func(p, q manager) int {
		return cmp.Or(cmp.Compare(seconds(p.Time), seconds(q.Time)), cmp.Compare(p.Manager, q.Manager),
			cmp.Compare(p.APIVersion, q.APIVersion), cmp.Compare(p.Subresource, q.Subresource))
	})
	first := map[string]id{} // the oldest updater of each version
	for _, m := range updaters {
		if excess == 0 {
			break
		}
		into, ok := first[m.APIVersion]
		if !ok {
			first[m.APIVersion] = m.id()
			continue
		}
		var err error
		if all, err = all.merge(t, m, into); err != nil {
			return nil, err
		}
		first[m.APIVersion] = id{ancient, m.Operation, m.APIVersion, ""}
		excess--
	}
	return all, nil
}

// merge makes the manager into, and the newer manager m, the manager of ancient
// changes.
func (all managers) merge(t *Type, m manager, into id) (managers, error) {
	i := slices.IndexFunc(all, func(have manager) bool { return have.id() == into })
	j := slices.IndexFunc(all, func(have manager) bool { return have.id() == m.id() })
	older, err := all[i].fields.decode(t)
	if err != nil {
		return nil, err
	}
	newer, err := m.fields.decode(t)
	if err != nil {
		return nil, err
	}
	f, err := t.encode(older.Union(newer))
	if err != nil {
		return nil, err
	}
	all[i] = manager{metav1.ManagedFieldsEntry{Manager: ancient, Operation: m.Operation, APIVersion: m.APIVersion, Time: m.Time}, f}
	return slices.Delete(all, j, j+1), nil
}
