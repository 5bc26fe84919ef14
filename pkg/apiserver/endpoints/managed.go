package endpoints

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"podium/pkg/scheme"
)

// managedFields tracks who owns which field of the objects that have been
// applied. Objects that never were are not tracked, and their writes do not
// come here.
type managedFields struct {
	scheme  *scheme.Scheme
	openAPI func(path string) []byte

	mu         sync.Mutex
	converters map[schema.GroupVersion]managedfields.TypeConverter
	managers   map[managerKey]*managedfields.FieldManager
}

type managerKey struct {
	gvk schema.GroupVersionKind
	sub string
}

var errNoSchema = errors.New("server-side apply is not available: the kind has no schema")

func newManagedFields(s *scheme.Scheme, openAPI func(string) []byte) *managedFields {
	return &managedFields{
		scheme: s, openAPI: openAPI,
		converters: map[schema.GroupVersion]managedfields.TypeConverter{},
		managers:   map[managerKey]*managedfields.FieldManager{},
	}
}

// update books the difference between old and new on the writer. new is
// changed.
func (m *managedFields) update(r *resource, old, new scheme.Object, o writeOptions) error {
	sub := ""
	if o.sub != nil {
		sub = o.sub.Name
	}
	f, err := m.manager(r, sub)
	if errors.Is(err, errNoSchema) {
		new.SetManagedFields(nil) // what cannot be kept up to date must not be there
		return nil
	}
	if err != nil {
		return err
	}
	for _, obj := range []scheme.Object{old, new} {
		if err := trackable(obj); err != nil {
			return r.writeError(new.GetName(), err)
		}
	}
	live := old.DeepCopyObject()
	for _, obj := range []runtime.Object{live, new} {
		obj.GetObjectKind().SetGroupVersionKind(r.gvk())
	}
	defer new.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	out := f.UpdateNoErrors(live, new, o.manager)
	if out == runtime.Object(new) {
		return nil
	}
	accessor, err := meta.Accessor(out)
	if err != nil {
		return fmt.Errorf("track managed fields: %w", err)
	}
	new.SetManagedFields(accessor.GetManagedFields())
	return nil
}

// manager is the field manager of a kind or one of its subresources; made when
// first needed, since the schemas are large.
func (m *managedFields) manager(r *resource, sub string) (*managedfields.FieldManager, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := managerKey{r.gvk(), sub}
	if f := m.managers[key]; f != nil {
		return f, nil
	}
	types, err := m.converterLocked(r.GroupVersion())
	if err != nil {
		return nil, err
	}
	f, err := managedfields.NewDefaultFieldManager(types, m.scheme.Scheme, defaulter{r}, m.scheme.Scheme, r.gvk(), r.GroupVersion(), sub, resetFields(r, sub))
	if err != nil {
		return nil, fmt.Errorf("manage fields of %s: %w", r.Resource, err)
	}
	m.managers[key] = f
	return f, nil
}

// resetFields are those that a write through sub ("": the object itself) does
// not change, whatever it says: nobody comes to own them by it.
func resetFields(r *resource, sub string) map[fieldpath.APIVersion]fieldpath.Filter {
	var none *fieldpath.Set
	switch {
	case sub == "" && r.subs["status"] != nil:
		none = fieldpath.NewSet(fieldpath.MakePathOrDie("status"))
	case sub == "status":
		none = fieldpath.NewSet(fieldpath.MakePathOrDie("spec"))
	default:
		return nil
	}
	return map[fieldpath.APIVersion]fieldpath.Filter{
		fieldpath.APIVersion(r.GroupVersion().String()): fieldpath.NewExcludeSetFilter(none),
	}
}

// converterLocked reads a group version's schemas from its OpenAPI document.
func (m *managedFields) converterLocked(gv schema.GroupVersion) (managedfields.TypeConverter, error) {
	if c := m.converters[gv]; c != nil {
		return c, nil
	}
	path := "apis/" + gv.String()
	if gv.Group == "" {
		path = "api/" + gv.Version
	}
	var text []byte
	if m.openAPI != nil {
		text = m.openAPI(path)
	}
	if len(text) == 0 {
		return nil, errNoSchema
	}
	var doc spec3.OpenAPI
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read the OpenAPI document of %s: %w", path, err)
	}
	if doc.Components == nil {
		return nil, errNoSchema
	}
	schemas := make(map[string]*spec.Schema, len(doc.Components.Schemas))
	maps.Copy(schemas, doc.Components.Schemas)
	c, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		return nil, fmt.Errorf("read the schemas of %s: %w", path, err)
	}
	m.converters[gv] = c
	return c, nil
}

// defaulter fills in a merged object what its users left out.
type defaulter struct{ *resource }

func (d defaulter) Default(in runtime.Object) {
	if obj, ok := in.(scheme.Object); ok && d.resource.Default != nil {
		d.resource.Default(obj)
	}
}
